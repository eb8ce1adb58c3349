//! Named servers and namespaces: who is let in where, what servers are told, and what a successor knows.

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
fn a_namespace_with_clients_is_deleted_by_force_alone() {
    let mut story = Story::new();
    story.does("server create a");
    story.does("namespace create n --server=a");
    let entrance = story.entrance("a", "n");
    let (connection, effects) = story.comes(ALICE, Some(entrance));
    let (server, ..) = story.serve(&effects, 501);
    story.feed(Input::ServerGreeted { connection });
    story.feed(Input::ClientDone { connection, status: Some(0) });
    assert_eq!(
        story.fails("namespace delete n --server=a"),
        "Namespace n has clients: 1; --force deletes it all the same"
    );
    assert_eq!(story.fails("namespace delete default --server=a"), "The namespace default goes with its server");
    let effects = story.does("namespace delete n --server=a --force");
    let interrupted = Effect::Signal { server, signal: ServerSignal::Interrupt };
    assert!(effects.contains(&interrupted), "{effects:?}");
    assert_eq!(story.fails("namespace delete n --server=a"), "Namespace n of server a not found");
    story.does("namespace create n --server=a");
    assert_ne!(story.entrance("a", "n"), entrance, "one that is made anew has other clients");
}

#[test]
fn names_are_had_once_and_never_those_of_the_daemons_files() {
    let mut story = Story::new();
    story.does("server create a");
    assert_eq!(story.fails("server create a"), "Server a exists already");
    assert_eq!(story.fails("namespace create default --server=a"), "Namespace default of server a exists already");
    for name in ["control", "control_privileged", "control_lock", "log", "shim", "shim_defaults"] {
        assert!(story.fails(&format!("server create {name}")).contains("the name of a file of the daemon's"));
        assert!(story.fails(&format!("namespace create {name} --server=a")).contains("the name of a file"));
    }
    assert!(story.fails("server create uid_7").starts_with("uid_7 is the name of a user's own server"));
    assert!(story.fails("server create uid_7 --uid=8").starts_with("uid_7 is the name of a user's own server"));
    assert_eq!(story.fails("namespace create n --server=b"), "Server b not found");
    for number in story.core.entrances().len()..servers::named::MOST_NAMESPACES {
        story.does(&format!("namespace create n{number} --server=a"));
    }
    let full = "There are 256 namespaces already, the most that there may be";
    assert_eq!(story.fails("namespace create one_more --server=a"), full);
    assert_eq!(story.fails("server create b"), full);
}

#[test]
fn nobody_but_the_owner_changes_anything() {
    let mut story = Story::new();
    story.does("server create a");
    for line in ["server create b", "server delete a --force", "namespace create n --server=a", "server set a --uid=1"]
    {
        for (peer, rights) in [(ALICE, Rights::beside_the_daemon()), (ROOT, Rights::default())] {
            let (answer, effects) = story.said_by(peer, rights, line);
            assert!(answer.unwrap_err().starts_with("Insufficient privileges for UID"), "{line}");
            assert!(effects.iter().all(|effect| !matches!(effect, Effect::OpenEntrance(_) | Effect::Save)), "{line}");
        }
    }
    assert_eq!(story.core.entrances().len(), 1);
}

#[test]
fn what_cannot_be_made_is_not_there() {
    let mut story = Story::new();
    story.trouble = Some("cannot make a: no space left on device".to_owned());
    assert_eq!(story.fails("server create a"), "cannot make a: no space left on device");
    assert_eq!(story.core.entrances(), []);
    story.trouble = None;
    story.does("server create a");
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

#[test]
fn every_change_has_a_server_and_a_namespace() {
    let change = Change::SetNamespace { server: "a".into(), name: "n".into(), limits: Limits::default() };
    assert_eq!((change.server(), change.namespace(), change.is_of_namespace()), ("a", "n", true));
}

/// What is to be kept, by its number.
fn kept(effects: &[Effect]) -> Option<(u64, Vec<String>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::KeepServers { number, servers, .. } => {
            let spaces = servers.iter().flat_map(|server| &server.namespaces).map(|space| space.name.clone());
            Some((*number, spaces.collect()))
        }
        _ => None,
    })
}

fn is_answered(effects: &[Effect]) -> Option<bool> {
    effects.iter().find_map(|effect| match effect {
        Effect::Answer { .. } => Some(true),
        Effect::AnswerFailure { .. } => Some(false),
        _ => None,
    })
}

#[test]
fn a_change_is_made_when_it_is_kept_one_after_the_other_and_not_at_all_when_it_cannot_be() {
    let mut story = Story::new();
    story.does("server create training");
    story.core.keep_servers();
    let says = |story: &mut Story, line: &str| {
        let session = SessionId(story.number());
        let rights = Rights::beside_the_daemon();
        story.feed(Input::Command { session, peer: ROOT, rights, line: line.as_bytes().to_vec() })
    };
    let create = says(&mut story, "namespace create jobs --server=training");
    let (first, spaces) = kept(&create).expect("it is to be kept");
    assert_eq!((spaces.as_slice(), is_answered(&create)), (["default".to_owned(), "jobs".to_owned()].as_slice(), None));
    assert_eq!(story.core.saved().named[0].namespaces.len(), 1, "not before it is kept");
    let set = says(&mut story, "namespace set jobs --server=training --active-thread-percentage=10");
    assert_eq!((kept(&set), is_answered(&set)), (None, None), "it waits for its turn");
    let done = story.feed(Input::ServersKept { number: first, result: Ok(()) });
    assert_eq!(is_answered(&done), Some(true));
    assert_eq!(story.core.saved().named[0].namespaces.len(), 2);
    let (second, _) = kept(&done).expect("the next one's turn");
    let refused = story.feed(Input::ServersKept { number: second, result: Err("the disk is full".to_owned()) });
    assert_eq!(is_answered(&refused), Some(false));
    let limits = story.core.saved().named[0].namespaces[1].limits.clone().unwrap_or_default();
    assert_eq!(limits.percentage, None, "nothing is half done");
    // One whose socket was made and that can't be kept has none any more.
    let create = says(&mut story, "server create other");
    let (third, _) = kept(&create).expect("it is to be kept");
    let refused = story.feed(Input::ServersKept { number: third, result: Err("the disk is full".to_owned()) });
    assert!(refused.iter().any(|effect| matches!(effect, Effect::CloseEntrance(it) if it.server == "other")));
    // Somebody comes while the end of his namespace is being kept: it stays, and so does what is kept.
    let delete = says(&mut story, "namespace delete jobs --server=training");
    let (fourth, spaces) = kept(&delete).expect("it is to be kept");
    assert_eq!(spaces, ["default"]);
    let jobs = story.entrance("training", "jobs");
    story.comes(ALICE, Some(jobs));
    let refused = story.feed(Input::ServersKept { number: fourth, result: Ok(()) });
    assert_eq!(is_answered(&refused), Some(false));
    let (_, spaces) = kept(&refused).expect("what is so is kept again");
    assert_eq!(spaces, ["default", "jobs"]);
}
