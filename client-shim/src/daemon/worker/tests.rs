use std::{
    os::fd::{AsRawFd, OwnedFd, RawFd},
    path::PathBuf,
    sync::{Mutex, OnceLock},
    thread,
};

use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv, send, socket,
};
use remps_proto::shim::{
    Answer, Failure, FromShim, MAX_MESSAGE_BYTES, Part, Recovered, RecoveryStage, ServerState, ToShim, Unrecovered,
    VERSION, Way, Welcome,
};

use super::super::recovered::Said;
use super::*;

static DOOR: OnceLock<PathBuf> = OnceLock::new();
/// How a server is, and of which copy of the driver.
static HEARD: Mutex<Vec<(ServerState, u64)>> = Mutex::new(Vec::new());
const ABLE: Capabilities = Capabilities::VAULT.and(Capabilities::NEWS).and(Capabilities::SUBSCRIPTIONS);

/// One connection of a daemon that does as it is told.
struct Daemon(RawFd);

impl Daemon {
    fn welcomes(listener: &OwnedFd, capabilities: Capabilities) -> Self {
        let daemon = Self(accept(listener.as_raw_fd()).unwrap());
        let hello = daemon.hears();
        assert!(matches!(hello.ask, Ask::Hello { .. }), "{hello:?}");
        let welcome = Welcome { version: VERSION, capabilities, most_bytes: 1, most_regions: 1, ttl_ms: 1 };
        daemon.says(hello.request, Answer::Welcome(welcome));
        daemon
    }

    fn hears(&self) -> FromShim {
        let mut packet = vec![0; MAX_MESSAGE_BYTES];
        let length = recv(self.0, &mut packet, MsgFlags::empty()).unwrap();
        FromShim::decode(&packet[..length]).unwrap()
    }

    fn says(&self, request: u64, answer: Answer) {
        send(self.0, &ToShim { request, answer }.encode().unwrap(), MsgFlags::MSG_NOSIGNAL).unwrap();
    }

    fn tells(&self, request: u64, state: ServerState) {
        self.tells_of(7, request, state);
    }

    fn tells_of(&self, server: u64, request: u64, state: ServerState) {
        self.says(request, Answer::Epoch { server, state, part: Part::UNKNOWN });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        nix::unistd::close(self.0).unwrap();
    }
}

fn is_heard(states: &[ServerState]) {
    let of_first = |states: &[ServerState]| states.iter().map(|state| (*state, 0)).collect::<Vec<_>>();
    while *HEARD.lock().unwrap() != of_first(states) {
        thread::yield_now();
    }
}

#[test]
fn news_is_heard_on_the_one_connection_whatever_else_is_asked_and_whoever_the_daemon_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = DOOR.get_or_init(|| folder.path().join("shim"));
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    news::LISTENER.set(|state, of| HEARD.lock().unwrap().push((state, of))).unwrap();
    let link: &'static Link = Box::leak(Box::new(Link::new().unwrap()));
    thread::spawn(move || Worker::new(link, || DOOR.get().unwrap().clone().into_os_string()).work());

    let daemon = Daemon::welcomes(&listener, ABLE);
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Subscribe { server: 0 });
    daemon.tells(0, ServerState::HEALTHY);
    daemon.says(request, Answer::Done { regions: 0 });
    // What a later daemon may say.
    send(daemon.0, &[0xfa, 0x07, 0], MsgFlags::MSG_NOSIGNAL).unwrap();
    thread::scope(|scope| {
        let asked = scope.spawn(|| link.ask(Ask::HandBack, Duration::from_secs(60)));
        let FromShim { request, ask } = daemon.hears();
        assert_eq!(ask, Ask::HandBack);
        daemon.tells(0, ServerState::TAINTED);
        is_heard(&[ServerState::HEALTHY, ServerState::TAINTED]);
        daemon.says(request, Answer::Done { regions: 0 });
        assert!(matches!(asked.join().unwrap().unwrap()[..], [(Answer::Done { .. }, None)]));
        // What the daemon is not able to do it is not asked.
        assert!(link.ask_now(Ask::Where, Capabilities::EPOCHS, Duration::from_secs(60)).is_none());
    });
    // Its successor is told what was heard last, and says how that has ended.
    drop(daemon);
    let daemon = Daemon::welcomes(&listener, ABLE);
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Subscribe { server: 7 });
    daemon.tells(0, ServerState::GONE);
    daemon.says(request, Answer::Done { regions: 0 });
    is_heard(&[ServerState::HEALTHY, ServerState::TAINTED, ServerState::GONE]);
    assert_eq!(news::said(), (7, ServerState::GONE));
    // What recoveries took is told to who knows of that, and to the next one where the first has not answered.
    let of =
        |number| Recovered { number, way: Way::COLD, error: 700, total_us: 1, steps_us: vec![], switch_us: vec![] };
    recovered::tell(Said::Recovered(of(1)));
    link.wake();
    while recovered::oldest().is_some() {
        thread::yield_now();
    }
    drop(daemon);
    let able = ABLE.and(Capabilities::RECOVERIES);
    recovered::tell(Said::Recovered(of(2)));
    let daemon = Daemon::welcomes(&listener, able);
    assert_eq!(daemon.hears().ask, Ask::Recovered(of(2)), "the first one was for a daemon that knows nothing of it");
    drop(daemon);
    recovered::tell(Said::Recovered(of(3)));
    let daemon = Daemon::welcomes(&listener, able);
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Recovered(of(2)));
    daemon.says(request, Answer::Failed(Failure::MALFORMED));
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Recovered(of(3)), "what one will not have is not said again");
    daemon.says(request, Answer::Done { regions: 0 });
    assert!(matches!(daemon.hears().ask, Ask::Subscribe { server: 7 }));
    // So is why one was refused, in its place among them.
    drop(daemon);
    let refused = |number| Unrecovered { number, error: 719, reason: "no".to_owned(), is_final: false };
    [Said::Refused(refused(1)), Said::Recovered(of(4)), Said::Refused(refused(2))]
        .into_iter()
        .for_each(recovered::tell);
    let daemon = Daemon::welcomes(&listener, ABLE.and(Capabilities::REFUSALS));
    for number in [1, 2] {
        let FromShim { request, ask } = daemon.hears();
        assert_eq!(ask, Ask::Unrecovered(refused(number)), "it knows nothing of the other one");
        daemon.says(request, Answer::Done { regions: 0 });
    }
    assert!(matches!(daemon.hears().ask, Ask::Subscribe { server: 7 }));
    // Who lets programs recover before it buries anything is told that this one would, on each connection until it would not.
    drop(daemon);
    let daemon = Daemon::welcomes(&listener, ABLE.and(Capabilities::BURIALS));
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Recovery { stage: RecoveryStage::ABLE });
    daemon.says(request, Answer::Done { regions: 0 });
    assert!(matches!(daemon.hears().ask, Ask::Subscribe { server: 7 }), "once");
    stage::gives_up();
    drop(daemon);
    let daemon = Daemon::welcomes(&listener, ABLE.and(Capabilities::BURIALS));
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Subscribe { server: 7 });
    daemon.says(request, Answer::Done { regions: 0 });
    // Of a spare copy that lives now its own server is known before the daemon knows that it lives.
    HEARD.lock().unwrap().clear();
    news::forget(3, 7, Some(news::SpareServer::Number(9)));
    link.wake();
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Subscribe { server: 9 });
    [ServerState::HEALTHY, ServerState::TAINTED].into_iter().for_each(|state| daemon.tells(0, state));
    daemon.tells_of(9, 0, ServerState::TAINTED);
    daemon.says(request, Answer::Done { regions: 0 });
    while HEARD.lock().unwrap().is_empty() {
        thread::yield_now();
    }
    assert_eq!(*HEARD.lock().unwrap(), [(ServerState::TAINTED, 3)]);
    assert_eq!(news::said(), (9, ServerState::TAINTED));
    // Of a fresh one only what the daemon says when it is asked for it, though its server be reaped by then.
    news::forget(4, 9, None);
    link.wake();
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Watch { server: 0, state: ServerState::HEALTHY, wait_ms: 0 });
    [ServerState::HEALTHY, ServerState::GONE].into_iter().for_each(|state| daemon.tells_of(9, 0, state));
    daemon.tells_of(11, request, ServerState::GONE);
    let FromShim { request, ask } = daemon.hears();
    assert_eq!(ask, Ask::Subscribe { server: 11 });
    assert_eq!(*HEARD.lock().unwrap(), [(ServerState::TAINTED, 3), (ServerState::GONE, 4)]);
    assert!(news::is_known_to_be_reaped(11) && news::is_server_reaped());
    daemon.says(request, Answer::Done { regions: 0 });
    // One of an earlier release is asked, and asked again.
    drop(daemon);
    let daemon = Daemon::welcomes(&listener, Capabilities::VAULT.and(Capabilities::NEWS));
    for _ in 0..2 {
        let FromShim { request, ask } = daemon.hears();
        assert_eq!(ask, Ask::Watch { server: 11, state: ServerState::HEALTHY, wait_ms: 0 });
        daemon.tells_of(11, request, ServerState::HEALTHY);
    }
    assert_eq!(link.progress().connections, 8);
}
