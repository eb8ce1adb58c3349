//! Named servers and namespaces: who is let in where, what servers are told, and what a successor knows.

mod changes;

use super::scene::{is_dispatched, spawned};
use super::world::{devices, identity, uuid};
use super::*;
use remps_proto::admin::module::{Change, Limits};
use remps_proto::mps::device::DeviceKey;
use remps_proto::mps::server::{Configuration, Request};

const ROOT: Peer = Peer { pid: 1, uid: 0, gid: 0 };
const ALICE: Peer = Peer { pid: 20, uid: 1000, gid: 1000 };
const BOB: Peer = Peer { pid: 21, uid: 1001, gid: 1001 };

/// A core with nothing, and whoever answers for the driver.
struct Story {
    core: Core,
    now: Duration,
    next: u64,
    /// Why sockets can't be made.
    trouble: Option<String>,
}

impl Story {
    fn new() -> Self {
        Self { core: Core::new(Policy::default(), Defaults::default()), now: Duration::ZERO, next: 1, trouble: None }
    }

    fn feed(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.core.handle(self.now, input);
        let mut at = 0;
        while at < effects.len() {
            let answer = match &effects[at] {
                Effect::ListDevices { session } => {
                    Some(Input::DevicesListed { session: *session, devices: Ok(devices()) })
                }
                Effect::OpenEntrance(entrance) => {
                    let result = self.trouble.clone().map_or(Ok(()), Err);
                    Some(Input::EntranceOpened { entrance: entrance.id, result })
                }
                _ => None,
            };
            effects.extend(answer.map(|input| self.core.handle(self.now, input)).unwrap_or_default());
            at += 1;
        }
        effects
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Root's command, its answer and all that comes of it.
    fn says(&mut self, line: &str) -> (Result<Vec<String>, String>, Vec<Effect>) {
        self.said_by(ROOT, Rights::beside_the_daemon(), line)
    }

    fn said_by(&mut self, peer: Peer, rights: Rights, line: &str) -> (Result<Vec<String>, String>, Vec<Effect>) {
        let session = SessionId(self.number());
        let effects = self.feed(Input::Command { session, peer, rights, line: line.as_bytes().to_vec() });
        let answers: Vec<Result<Vec<String>, String>> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Answer { session: of, lines } if *of == session => Some(Ok(lines.clone())),
                Effect::AnswerFailure { session: of, reason } if *of == session => Some(Err(reason.join("/"))),
                Effect::AnswerRows { session: of, rows, .. } if *of == session => {
                    Some(Ok(rows.iter().map(|row| row.join(",")).collect()))
                }
                _ => None,
            })
            .collect();
        let [answer] = answers.as_slice() else { panic!("{line} is answered once: {answers:?}") };
        (answer.clone(), effects)
    }

    fn does(&mut self, line: &str) -> Vec<Effect> {
        let (answer, effects) = self.says(line);
        assert_eq!(answer, Ok(vec![]), "{line}");
        effects
    }

    fn fails(&mut self, line: &str) -> String {
        self.says(line).0.expect_err(line)
    }

    fn entrance(&self, server: &str, namespace: &str) -> EntranceId {
        let all = self.core.entrances();
        let found = all.iter().find(|entrance| entrance.server == server && entrance.namespace == namespace);
        found.expect("there is such a namespace").id
    }

    fn comes(&mut self, peer: Peer, entrance: Option<EntranceId>) -> (ConnectionId, Vec<Effect>) {
        let connection = ConnectionId(self.number());
        let identity = identity(peer.pid, 0);
        (connection, self.feed(Input::ClientArrived { connection, peer, identity, entrance }))
    }

    /// Brings the server that the effects ask for to its hello; what it is told.
    fn serve(&mut self, effects: &[Effect], pid: Pid) -> (ServerEpoch, Configuration, Vec<Effect>) {
        let server = spawned(effects).expect("a server is asked for");
        self.feed(Input::ServerSpawned { server, pid });
        let connection = ConnectionId(self.number());
        let effects = self.feed(Input::ServerHello { connection, peer: Peer { pid, uid: 0, gid: 0 } });
        let told = effects.iter().find_map(|effect| match effect {
            Effect::AdoptLink { configuration, .. } => Some(configuration.clone()),
            _ => None,
        });
        (server, told.expect("it is configured"), effects)
    }

    fn saved_by_a_successor(&self) -> Core {
        let saved = self.core.saved();
        let again = saved::Saved::decode(prost::Message::encode_to_vec(&saved).as_slice()).unwrap();
        assert_eq!(again, saved);
        Core::restored(self.now, Policy::default(), &again, &[]).0
    }
}

use prost::Message as _;

fn limit(device: u32, gib: u64) -> (DeviceKey, u64) {
    (DeviceKey::new(&device.to_string()).unwrap(), gib << 30)
}

fn told(effects: &[Effect], of: ServerEpoch) -> Vec<Request> {
    let own = |effect: &Effect| match effect {
        Effect::Tell { server, request } if *server == of => Some(request.clone()),
        _ => None,
    };
    effects.iter().filter_map(own).collect()
}

fn is_closed(effects: &[Effect], wanted: ConnectionId) -> bool {
    effects.contains(&Effect::Close { connection: wanted })
}

#[test]
fn clients_of_a_namespace_have_a_server_of_their_own_with_what_they_may_have() {
    let mut story = Story::new();
    let effects = story.does("server create training");
    // It is seen at once whether it can run.
    let (_, configuration, _) = story.serve(&effects, 500);
    assert_eq!((configuration.thread_percentage, configuration.pinned_limits), (100.0, vec![]));
    story.does("server set training --pinned-memory-limit=4G --active-thread-percentage=50");
    story.does("namespace create jobs --server=training");
    story.does("namespace set jobs --server=training --active-thread-percentage=80 --client-priority=1");
    let jobs = story.entrance("training", "jobs");
    let (connection, effects) = story.comes(ALICE, Some(jobs));
    assert!(!is_dispatched(&effects, connection));
    let (server, configuration, effects) = story.serve(&effects, 501);
    assert!(is_dispatched(&effects, connection));
    // A namespace has what its server has and never more, also where nothing was said of it.
    assert_eq!(
        configuration,
        Configuration { thread_percentage: 50.0, pinned_limits: vec![limit(0, 4), limit(1, 4)], priority: 1 }
    );
    let of = story.core.servers.get(server).map(|server| story.core.servers.domain_name(server.domain));
    assert_eq!(of.as_deref(), Some("user 1000, server training, namespace jobs"));
    // What is said later reaches those that run.
    let effects = story.does("server set training --pinned-memory-limit=2G");
    let wanted = [0, 1].map(|device| {
        let (key, bytes) = limit(device, 2);
        Request::SetPinnedLimit(key, bytes)
    });
    assert_eq!(told(&effects, server), wanted);
    let effects = story.does("server set training --pinned-memory-limit=0");
    assert!(told(&effects, server).iter().all(|request| matches!(request, Request::SetPinnedLimit(_, 0))));
    // The daemon's default does not take away what a namespace has of its own.
    let effects = story.does("set_default_client_priority 0");
    assert_eq!(told(&effects, server), []);
}

#[test]
fn a_server_is_given_devices_that_exist_and_nobody_makes_do_without() {
    let mut story = Story::new();
    let known = format!("0 ({}), 1 ({})", uuid(0), uuid(1));
    assert_eq!(story.fails("server create a --allowed-devices=7"), format!("There is no device 7; there are {known}"));
    let twice = format!("server create a --allowed-devices=1,{}", uuid(1));
    assert_eq!(story.fails(&twice), format!("Device {} is named twice", uuid(1)));
    assert_eq!(story.core.entrances(), [], "nothing is made of it");
    let effects = story.does("server create a --allowed-devices=1");
    let gpu = effects.iter().find_map(|effect| match effect {
        Effect::SpawnServer { gpu, .. } => Some(gpu.clone()),
        _ => None,
    });
    assert_eq!(gpu, Some(Some(uuid(1).to_string())));
    story.does("set_default_device_pinned_mem_limit 0 1G");
    story.does("set_default_device_pinned_mem_limit 1 3G");
    // By the number that it has there: a limit for a device that a server does not see would cost it all limits.
    let (_, configuration, _) = story.serve(&effects, 500);
    assert_eq!(configuration.pinned_limits, [limit(0, 3)]);
    let rows = story.says("device list --server=a").0.unwrap();
    assert_eq!(rows, [format!("0,a,0000:00:06.0,{},GPU,132,16,-", uuid(1))]);
    assert_eq!(story.says("device list").0.unwrap().len(), 3);
    assert_eq!(story.fails("device list --server=b"), "Server b not found");
}

#[test]
fn a_server_that_cannot_start_stays_and_its_clients_wait() {
    let mut story = Story::new();
    let effects = story.does("server create a");
    let server = spawned(&effects).unwrap();
    story.feed(Input::SpawnFailed { server, reason: "no CUDA-capable device".to_owned() });
    let (connection, effects) = story.comes(ALICE, Some(story.entrance("a", "default")));
    assert!(!is_closed(&effects, connection) && !is_dispatched(&effects, connection));
    assert_eq!(story.core.waiting(), 1);
    assert_eq!(story.core.entrances().len(), 1);
}

#[test]
fn a_namespace_lets_in_whom_its_server_is_for_and_nobody_who_comes_too_late() {
    let mut story = Story::new();
    story.does("server create a --uid=1000");
    let entrance = story.entrance("a", "default");
    for peer in [BOB, Peer { pid: 30, uid: 0, gid: 0 }] {
        let (connection, effects) = story.comes(peer, Some(entrance));
        assert!(is_closed(&effects, connection), "{effects:?}");
    }
    let (connection, effects) = story.comes(ALICE, Some(entrance));
    assert!(!is_closed(&effects, connection));
    assert_eq!(story.fails("server delete a"), "Server a has clients: 1; --force deletes it all the same");
    let effects = story.does("server delete a --force");
    assert!(is_closed(&effects, connection), "who waits there is let go");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::CloseEntrance(closed) if closed.id == entrance)));
    // He was accepted before that, and his role comes now.
    let (connection, effects) = story.comes(ALICE, Some(entrance));
    assert!(is_closed(&effects, connection));
    assert_eq!(story.core.waiting(), 0);
}

#[test]
fn a_users_own_named_server_is_where_he_goes_by_the_daemons_socket() {
    let mut story = Story::new();
    let effects = story.does("server create --uid=1000");
    let (_, _, effects_of_hello) = story.serve(&effects, 500);
    assert!(spawned(&effects_of_hello).is_none());
    let (connection, effects) = story.comes(ALICE, None);
    assert!(is_dispatched(&effects, connection), "he has no second server: {effects:?}");
    let (connection, effects) = story.comes(BOB, None);
    assert!(!is_dispatched(&effects, connection) && spawned(&effects).is_some());
}

#[test]
fn a_successor_has_the_same_servers_namespaces_and_limits() {
    let mut story = Story::new();
    story.does("server create a --uid=1000 --allowed-devices=1");
    story.does("namespace create n --server=a");
    story.does("namespace set n --server=a --active-thread-percentage=30 --pinned-memory-limit=512M");
    story.does("server create b");
    let successor = story.saved_by_a_successor();
    let named =
        |core: &Core| core.servers.named().iter().map(|(name, it)| (name.to_owned(), it.clone())).collect::<Vec<_>>();
    assert_eq!(named(&successor), named(&story.core));
    assert_eq!(successor.servers.named().last(), story.core.servers.named().last(), "no number is had twice");
    // One whose socket was never told to be there is not known.
    story.core.servers.named_mut().add_namespace("b", "half").unwrap();
    assert_eq!(story.saved_by_a_successor().entrances().len(), 3);
}
