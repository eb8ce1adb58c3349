//! An attacker: another user who waits for a name to appear and puts something of his own in its place at once.

use std::cell::RefCell;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::poll::PollFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{FchmodatFlags, Mode};
use remps_proto::holder::{AttachDone, FromHolder, VERSION};
use remps_proto::mps::handshake::GREETING;

use crate::lab::{A_WHILE, DEADLINE, listener, read, shows};

/// First argument of the role; what he puts there, the names in whose place, and where his link leads follow.
pub(crate) const ARGUMENT: &str = "--racer";
/// He was given something.
const WON: &[u8] = b"w";
/// Something of his has got the name.
const PLACED: &[u8] = b"p";
/// A link, as soon as something has the name.
const LINK: &str = "link";
/// A link, whether something has the name or not.
const LINK_FIRST: &str = "link-first";
/// A named pipe.
const PIPE: &str = "pipe";
/// A socket on which he says what a holder says, and takes what a daemon gives it.
const HOLDER: &str = "holder";
/// A socket on which he greets as the daemon does: from the beginning.
const DAEMON: &str = "daemon";
/// The holder's again, as root of a container: from the beginning, in a PID namespace of its own.
const CONTAINER: &str = "container";
/// Somebody who is neither root nor the daemon's user: `nobody`.
pub(crate) const STRANGER: u32 = 65_534;
/// How often he says that something of his has got the name; more would fill the pipe.
const MOST_TOLD: usize = 100;
/// How many tries he makes before he looks whether his own is still there.
const LOOK: usize = 1000;
/// How long he waits for a daemon that has connected to say something.
const PATIENCE: Duration = Duration::from_secs(2);

/// Is the attacker, until he is killed.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    // Nobody else would end him when the test is killed, and he never rests.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).unwrap();
    let (kind, target) = (arguments[0].as_str(), Path::new(&arguments[1]));
    if kind == CONTAINER {
        return contain(&arguments[1]);
    }
    if kind == DAEMON || kind == HOLDER && arguments.len() > 2 {
        // He is there first.
        let waiting = listener(target);
        nix::sys::stat::fchmodat(AT_FDCWD, target, Mode::from_bits_truncate(0o666), FchmodatFlags::FollowSymlink)
            .unwrap();
        say(b"ready");
        loop {
            if pretend(&waiting, kind) {
                say(WON);
            }
        }
    }
    let folder = target.parent().unwrap();
    let own = folder.join(format!(".evil-{}", std::process::id()));
    say(b"ready");
    let mut told = 0;
    loop {
        let _ = std::fs::remove_file(&own);
        let waiting = match kind {
            LINK | LINK_FIRST => std::os::unix::fs::symlink(&arguments[2], &own).map(|()| None),
            PIPE => nix::unistd::mkfifo(&own, Mode::from_bits_truncate(0o666)).map(|()| None).map_err(Into::into),
            _ if folder_is_open(folder) => Ok(Some(listener(&own))),
            _ => Err(std::io::ErrorKind::PermissionDenied.into()),
        };
        // Closed to him; the next one may not be.
        let Ok(waiting) = waiting else { continue };
        let ways: &[RenameFlags] = if kind == LINK_FIRST {
            &[RenameFlags::RENAME_NOREPLACE, RenameFlags::RENAME_EXCHANGE]
        } else {
            &[RenameFlags::RENAME_EXCHANGE]
        };
        // Nothing of that name, or no right.
        for turn in 0_usize.. {
            let done = renameat2(AT_FDCWD, &own, AT_FDCWD, target, ways[turn % ways.len()]).is_ok();
            if done && told < MOST_TOLD {
                told += 1;
                say(PLACED);
            }
            if done || turn % LOOK == 0 && !own.is_symlink() && !own.exists() {
                break;
            }
        }
        if let Some(waiting) = waiting {
            // While he goes on.
            std::thread::spawn(move || {
                if pretend(&waiting, HOLDER) {
                    say(WON);
                }
            });
        }
    }
}

fn say(word: &[u8]) {
    let mut said = std::io::stdout();
    said.write_all(word).and_then(|()| said.flush()).unwrap();
}

fn folder_is_open(folder: &Path) -> bool {
    nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok()
}

/// Answers as the holder or the daemon would. Whether he who has connected then gave anything away.
fn pretend(waiting: &OwnedFd, kind: &str) -> bool {
    if !shows(waiting.as_fd(), PollFlags::POLLIN, PATIENCE) {
        return false;
    }
    let accepted = nix::sys::socket::accept(std::os::fd::AsRawFd::as_raw_fd(waiting)).unwrap();
    let link = PathBuf::from(format!("/proc/self/fd/{accepted}"));
    let done = AttachDone { version: VERSION, pid: std::process::id(), accept_pauses: 0, malformed: 0, abilities: 0 };
    let packet = if kind == DAEMON { GREETING.to_vec() } else { FromHolder::AttachDone(done).encode().unwrap() };
    let sent = nix::sys::socket::send(accepted, &packet, nix::sys::socket::MsgFlags::MSG_NOSIGNAL);
    let mut bytes = [0; 4096];
    let got = sent.and_then(|_| nix::sys::socket::recv(accepted, &mut bytes, nix::sys::socket::MsgFlags::empty()));
    assert!(link.symlink_metadata().is_ok());
    nix::unistd::close(accepted).unwrap();
    got.is_ok_and(|length| length > 0)
}

/// Starts the one who is there first, in a PID namespace of his own; says nothing where that can't be made.
fn contain(socket: &str) -> ExitCode {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWPID) {
        println!("none: {error}");
        return ExitCode::FAILURE;
    }
    let mut inner = Command::new("/proc/self/exe").args([ARGUMENT, HOLDER, socket, "first"]).spawn().unwrap();
    inner.wait().unwrap();
    ExitCode::SUCCESS
}

/// A running attacker.
pub(crate) struct Racer {
    child: Child,
    said: OwnedFd,
    heard: RefCell<Vec<u8>>,
}

impl Racer {
    /// Another user who puts a link to `victim` in the place of what appears as `target`.
    pub(crate) fn link(target: &Path, victim: &Path) -> Self {
        Self::start(&[LINK.as_ref(), target.as_os_str(), victim.as_os_str()], STRANGER)
    }

    /// Another user who puts a link to `victim` there before anything else is, or after that.
    pub(crate) fn link_first(target: &Path, victim: &Path) -> Self {
        Self::start(&[LINK_FIRST.as_ref(), target.as_os_str(), victim.as_os_str()], STRANGER)
    }

    /// Another user who puts a pipe there.
    pub(crate) fn pipe(target: &Path) -> Self {
        Self::start(&[PIPE.as_ref(), target.as_os_str()], STRANGER)
    }

    /// Another user who puts a socket there and says that he is the holder.
    pub(crate) fn holder(target: &Path) -> Self {
        Self::start(&[HOLDER.as_ref(), target.as_os_str()], STRANGER)
    }

    /// Root of a container that has the directory mounted; `None` where no namespace can be made.
    pub(crate) fn container(target: &Path) -> Option<Self> {
        let mut racer = Self::spawn(&[CONTAINER.as_ref(), target.as_os_str()], 0);
        let word = read(&racer.said);
        if word != b"ready" {
            eprintln!("Skipped(no PID namespace can be made here: {})", String::from_utf8_lossy(&word));
            racer.child.wait().unwrap();
            return None;
        }
        Some(racer)
    }

    /// Another user who listens there and says that he is the daemon.
    pub(crate) fn daemon(target: &Path) -> Self {
        Self::start(&[DAEMON.as_ref(), target.as_os_str()], STRANGER)
    }

    fn start(arguments: &[&std::ffi::OsStr], uid: u32) -> Self {
        let racer = Self::spawn(arguments, uid);
        let said = read(&racer.said);
        // He may have been quick.
        let quick = said.strip_prefix(b"ready").expect("he begins");
        racer.heard.borrow_mut().extend(quick);
        racer
    }

    fn spawn(arguments: &[&std::ffi::OsStr], uid: u32) -> Self {
        let mut command = Command::new("/proc/self/exe");
        command.arg(ARGUMENT).args(arguments).current_dir("/").uid(uid).gid(uid).process_group(0);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let said = child.stdout.take().unwrap().into();
        Self { child, said, heard: RefCell::default() }
    }

    /// How often a daemon gave something away to him so far.
    pub(crate) fn won(&self) -> usize {
        self.count(WON)
    }

    /// How often something of his has got the name so far, up to a bound. Where it never has, nothing was tried.
    pub(crate) fn placed(&self) -> usize {
        self.count(PLACED)
    }

    fn count(&self, word: &[u8]) -> usize {
        let mut heard = self.heard.borrow_mut();
        while shows(self.said.as_fd(), PollFlags::POLLIN, A_WHILE) {
            match read(&self.said) {
                // He has ended.
                said if said.is_empty() => break,
                said => heard.extend(said),
            }
        }
        heard.chunks(word.len()).filter(|said| *said == word).count()
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.wait();
        // The one inside a PID namespace too: the last writer's end is the end of the pipe.
        assert!(shows(self.said.as_fd(), PollFlags::POLLHUP, DEADLINE));
    }
}
