//! A pipe directory with its holder, killable daemons, and waiting with deadlines.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket, sockopt,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use remps_controld::parts::holder::{FromHolder, Held, HolderLink, SOCKET_NAME};
use tempfile::TempDir;

/// Whatever takes longer than this has hung. A virtual machine has been seen to stand still for half a minute.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// The same for a whole test.
const TEST_DEADLINE: Duration = Duration::from_secs(600);
/// How long something that must not happen is watched.
pub(crate) const A_WHILE: Duration = Duration::from_millis(200);

/// Makes the list of a module's tests from their names.
macro_rules! trials {
    ($($name:ident),+ $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$(libtest_mimic::Trial::test(
                concat!(module_path!(), "::", stringify!($name)),
                || { $crate::lab::run($name); Ok(()) },
            )),+]
        }
    };
}
pub(crate) use trials;

/// Runs one test with a lab of its own on a runtime of its own.
pub(crate) fn run(test: impl AsyncFnOnce(&Lab)) {
    let lab = Lab::fresh();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_DEADLINE, test(&lab)).await.expect("the test takes too long") });
}

/// A pipe directory; its holder ends with it.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    /// An empty one.
    pub(crate) fn fresh() -> Self {
        Self { folder: tempfile::Builder::new().prefix("holder").tempdir().unwrap() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub(crate) async fn attach(&self) -> (HolderLink, Vec<Held>) {
        HolderLink::attach(self.dir()).await.unwrap()
    }

    /// A daemon in a process of its own that does as told; it is there when all is done.
    pub(crate) fn daemon(&self, orders: &[&str]) -> Daemon {
        let mut command = Command::new("/proc/self/exe");
        command.arg(crate::daemon::ARGUMENT).arg(self.dir()).args(orders);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said: OwnedFd = child.stdout.take().unwrap().into();
        let mut text = [0; 64];
        assert!(shows(said.as_fd(), PollFlags::POLLIN, DEADLINE), "the daemon has not done {orders:?}");
        let length = nix::unistd::read(&said, &mut text).unwrap();
        assert_eq!(&text[..length], b"done\n", "the daemon could not do {orders:?}");
        Daemon(child)
    }

    /// The listening process of the attach socket, if it lives.
    pub(crate) fn holder(&self) -> Option<Pid> {
        let link = self.raw_attach().ok()?;
        Some(Pid::from_raw(getsockopt(&link, sockopt::PeerCredentials).ok()?.pid()))
    }

    /// A bare connection to the attach socket.
    pub(crate) fn raw_attach(&self) -> nix::Result<OwnedFd> {
        dial(&self.path(SOCKET_NAME))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(pid) = self.holder().filter(|pid| *pid != Pid::this()) {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
        }
    }
}

/// A daemon that is killed at the end, if not before.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Ends it as nothing can be prevented from.
    pub(crate) fn kill_9(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

fn new_socket() -> OwnedFd {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap()
}

/// Connects as a client does.
pub(crate) fn dial(path: &Path) -> nix::Result<OwnedFd> {
    let socket = new_socket();
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// A listening socket as the daemon makes it.
pub(crate) fn listener(path: &Path) -> OwnedFd {
    let socket = new_socket();
    bind(socket.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    listen(&socket, Backlog::MAXCONN).unwrap();
    socket
}

/// A connected pair.
pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    nix::sys::socket::socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

/// Whether a descriptor shows one of the flags within a time.
pub(crate) fn shows(fd: BorrowedFd<'_>, flags: PollFlags, within: Duration) -> bool {
    let mut polled = [PollFd::new(fd, flags)];
    poll(&mut polled, PollTimeout::try_from(within).unwrap()).unwrap();
    polled[0].revents().unwrap().intersects(flags)
}

/// Waits for a packet and reads it.
pub(crate) fn read(fd: &OwnedFd) -> Vec<u8> {
    assert!(shows(fd.as_fd(), PollFlags::POLLIN, DEADLINE), "nothing came");
    let mut bytes = vec![0; 64 * 1024];
    let length = nix::unistd::read(fd, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < DEADLINE, "it never came to be that {what}");
        // Nothing to wait on: the fact is another process's, read from outside.
        poll(&mut [], PollTimeout::from(5_u8)).unwrap();
    }
}

/// How a child ended, our own or an orphan that became ours.
pub(crate) fn exit_status(pid: Pid) -> i32 {
    let ended = waitpid(pid, None).unwrap();
    let WaitStatus::Exited(_, status) = ended else { panic!("the process ended by {ended:?}") };
    status
}

/// How many descriptors a process has open.
pub(crate) fn open_descriptors(pid: Pid) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// One field of a process's status.
pub(crate) fn status_field(pid: Pid, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Waits for a while in which a process does nothing at all: it neither wakes up nor works. Something that was under way
/// ends before it, and a busy machine may disturb one; a process that wakes up by itself does so in each.
pub(crate) fn rests(pid: Pid) {
    const WHILES: usize = 50;
    let done = || (status_field(pid, "voluntary_ctxt_switches"), cpu_ticks(pid));
    let rests = (0..WHILES).any(|_| {
        let before = done();
        pass_a_while();
        done() == before
    });
    assert!(rests, "it never rests for {A_WHILE:?}");
}

fn pass_a_while() {
    poll(&mut [], PollTimeout::try_from(A_WHILE).unwrap()).unwrap();
}

/// Processor time of a process so far, in clock ticks.
fn cpu_ticks(pid: Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    after_name[11].parse::<u64>().unwrap() + after_name[12].parse::<u64>().unwrap()
}

/// What is held under a key.
pub(crate) fn of(held: &[Held], key: u64) -> &Held {
    held.iter().find(|held| held.key == key).unwrap_or_else(|| panic!("{key} is not held"))
}

/// Waits until the holder has done everything asked so far.
pub(crate) async fn settle(link: &mut HolderLink) {
    while let Err(error) = link.barrier(0) {
        assert!(matches!(error, remps_controld::parts::holder::HolderError::Full), "{error}");
        tokio::task::yield_now().await;
    }
    let news = link.next().await.unwrap();
    assert!(matches!(news, FromHolder::Passed { number: 0 }), "{news:?}");
}
