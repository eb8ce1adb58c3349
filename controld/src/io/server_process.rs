//! Servers: where the program is, how one is started, how its end is learnt.
//!
//! A server gets the environment of the daemon as it is, the vendor's argument list, no descriptor but the standard
//! three (nothing on input and output, a pipe to us on error: the vendor throws that away, and with it the reason of a
//! failing start), and the identity of the client's user *with* that user's groups, which the vendor leaves at root's.
//!
//! Each server leads a process group of its own (the vendor's shares the daemon's): Ctrl-C on the terminal of
//! `nvidia-cuda-mps-control -f` must reach the daemon alone, which then drains its servers; they would else die
//! under their clients at the same moment. The session stays the daemon's, and with it whatever a service manager does
//! by cgroup. No parent-death signal is set: servers outlive a killed daemon and are taken back by the next one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Gid, Pid, Uid, User, getgrouplist};
use tokio::process::Child;

use super::blocking::USER_LOOKUPS;
use super::foreign_files::without_foreign_files;
pub use super::process::ExitCause;
use super::server_stderr::ServerStderr;
pub use crate::sys::child::Identity;
use crate::sys::{child, pidfd};

/// Name of the server program, and its first argument.
pub const SERVER_NAME: &str = "nvidia-cuda-mps-server";
const MULTI_USER_ARGUMENT: &str = "-multiuser-server";
/// Where the server is looked for when the daemon has no `PATH`, as under NVIDIA's device plugin.
const DEFAULT_PATH: &str = "/usr/local/nvidia/bin:/usr/bin:/bin";
/// How long the user database may take; it may be asked over a network.
const USER_LOOKUP_DEADLINE: Duration = Duration::from_secs(2);

/// There is no server program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindServerError {
    /// `MPS_SERVER_BINARY` does not name a program.
    #[error("MPS_SERVER_BINARY={} is no program that can be executed", .0.display())]
    Override(PathBuf),
    /// It is in none of the folders.
    #[error("no {SERVER_NAME} in {}", .0.display())]
    NotFound(OsString),
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The daemon is not root and the server would be another user's.
    #[error("user {own} may not start a server for user {wanted}")]
    NotPermitted {
        /// The daemon's user.
        own: u32,
        /// The user of the server.
        wanted: u32,
    },
    /// Fork, exec or a system call between them failed.
    #[error("cannot start {}: {source}", program.display())]
    Io {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Finds the server program: `override_path` (`MPS_SERVER_BINARY`) if given, else the first one in `search_path`
/// (`PATH`), else, when there is no `PATH` at all, in `/usr/local/nvidia/bin`, `/usr/bin` and `/bin`.
///
/// # Errors
/// See [`FindServerError`].
pub fn find_server(override_path: Option<&OsStr>, search_path: Option<&OsStr>) -> Result<PathBuf, FindServerError> {
    if let Some(path) = override_path.filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return if is_program(&path) { Ok(path) } else { Err(FindServerError::Override(path)) };
    }
    let folders = search_path.unwrap_or(OsStr::new(DEFAULT_PATH));
    std::env::split_paths(folders)
        .map(|folder| folder.join(SERVER_NAME))
        .find(|path| is_program(path))
        .ok_or_else(|| FindServerError::NotFound(folders.to_owned()))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// The identity of a user as the user database has it: its group and all its groups.
///
/// A user that the database does not know, or that it does not tell about within two seconds, gets `fallback_gid` (the
/// group that its client's credentials show) and no other group.
pub async fn look_up_identity(uid: u32, fallback_gid: u32) -> Identity {
    let known = USER_LOOKUPS.run(uid, USER_LOOKUP_DEADLINE, move || known_identity(uid)).await;
    let unknown = Identity { uid, gid: fallback_gid, groups: Vec::new() };
    known.ok().flatten().unwrap_or(unknown)
}

fn known_identity(uid: u32) -> Option<Identity> {
    let user = User::from_uid(Uid::from_raw(uid)).ok()??;
    let name = std::ffi::CString::new(user.name).ok()?;
    let groups = getgrouplist(&name, user.gid).unwrap_or_else(|_| vec![user.gid]);
    Some(Identity { uid, gid: user.gid.as_raw(), groups: groups.into_iter().map(Gid::as_raw).collect() })
}

/// What to start.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// The program, from [`find_server`].
    pub program: PathBuf,
    /// Whether it serves clients of every user (`-multiuser-server`).
    pub multi_user: bool,
    /// The GPU or MIG instance that it may use (`CUDA_VISIBLE_DEVICES`); `None` is what this process may.
    pub gpu: Option<String>,
    /// As whom it runs. For the daemon's own user nothing is changed, the groups included.
    pub identity: Identity,
}

/// A server that we started and its standard error. Dropping it leaves the process alone.
#[derive(Debug)]
pub struct ServerProcess {
    pid: Pid,
    child: Child,
    handle: ServerHandle,
    stderr: Option<ServerStderr>,
}

/// A way to signal a server that can be kept beside its [`ServerProcess`].
#[derive(Debug, Clone)]
pub struct ServerHandle {
    pid: Pid,
    pidfd: Option<Arc<OwnedFd>>,
}

impl ServerSpec {
    /// Starts the server. Returns after the exec, so a program that cannot be executed is an error here.
    ///
    /// # Errors
    /// See [`SpawnError`]. Panics outside a tokio runtime.
    pub fn spawn(&self) -> Result<ServerProcess, SpawnError> {
        let own = nix::unistd::geteuid();
        let wanted = self.identity.uid;
        let identity = (own.as_raw() != wanted).then(|| self.identity.clone());
        if identity.is_some() && !own.is_root() {
            return Err(SpawnError::NotPermitted { own: own.as_raw(), wanted });
        }
        let mut command = Command::new(&self.program);
        command
            .arg0(SERVER_NAME)
            .arg(if self.multi_user { MULTI_USER_ARGUMENT } else { "" })
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(gpu) = &self.gpu {
            command.env("CUDA_VISIBLE_DEVICES", gpu);
        }
        child::prepare(&mut command, identity);
        let failed = |source| SpawnError::Io { program: self.program.clone(), source };
        let mut child = without_foreign_files(|| tokio::process::Command::from(command).spawn()).map_err(failed)?;
        let id = child.id().expect("a process that was not waited for has its pid");
        let pid = Pid::from_raw(i32::try_from(id).expect("the kernel's pids are positive"));
        // Not reaped yet, so the pid is still its own.
        let pidfd = pidfd::open(pid).ok().map(Arc::new);
        let stderr = child.stderr.take().map(ServerStderr::new);
        Ok(ServerProcess { pid, child, handle: ServerHandle { pid, pidfd }, stderr })
    }
}

impl ServerProcess {
    /// Its pid, its own until [`ServerProcess::wait`] has returned.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A way to signal it.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Its standard error, once.
    pub fn take_stderr(&mut self) -> Option<ServerStderr> {
        self.stderr.take()
    }

    /// Waits for its end and reaps it. May be dropped and called again; a second call after the end gives the same.
    pub async fn wait(&mut self) -> ExitCause {
        self.child.wait().await.map_or(ExitCause::Unknown, ExitCause::from)
    }
}

impl ServerHandle {
    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The process descriptor, where the kernel has them (Linux 5.3).
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|fd| fd.as_fd())
    }

    /// Sends a signal to the server alone.
    ///
    /// # Errors
    /// `ESRCH` when it has ended and was reaped. Without process descriptors the pid is used, which is safe only as long as
    /// the server was not waited for.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.pidfd {
            Some(fd) => pidfd::send_signal(fd, Some(signal)),
            None => Ok(nix::sys::signal::kill(self.pid, signal)?),
        }
    }
}
