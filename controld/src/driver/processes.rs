//! Server processes, and the clients' processes that are watched.

use super::clients::known_at_once;
use super::events::Event;
use super::{Driver, Kind, keys};
use crate::core::{ConnectionId, End, ExitCause, Input, Peer, Pid, ProcessKey, ServerEpoch, ServerSignal, Uid};
use crate::devices;
use crate::failpoint::reached;
use crate::io::process::{WatchedProcess, open_process};
use crate::io::server_process::{ServerHandle, ServerSpec, find_server, look_up_identity};
use crate::io::server_stderr::ServerStderr;
use crate::io::{process, reaper};
use crate::sys::child::Identity;
use crate::witness::end::EndWatch;
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before a process that can't be watched is tried again.
const WATCH_RETRY: Duration = Duration::from_secs(1);

/// A pid as system calls take it.
pub(super) fn kernel_pid(pid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(pid.cast_signed())
}

fn core_pid(pid: nix::unistd::Pid) -> Pid {
    pid.as_raw().cast_unsigned()
}

/// A server whose process has not ended.
#[derive(Debug)]
pub(super) struct RunningServer {
    uid: Uid,
    process: Process,
    /// A duplicate of the read end of its standard error, for the holder.
    stderr: Option<OwnedFd>,
}

#[derive(Debug)]
enum Process {
    /// Started by this daemon.
    Child(ServerHandle),
    /// Started by an earlier one.
    Adopted(Arc<WatchedProcess>),
}

impl RunningServer {
    pub(super) fn peer(&self) -> Peer {
        Peer { pid: self.pid(), uid: self.uid, gid: 0 }
    }

    fn pid(&self) -> Pid {
        match &self.process {
            Process::Child(handle) => core_pid(handle.pid()),
            Process::Adopted(process) => core_pid(process.pid()),
        }
    }

    fn stderr(&self) -> Option<BorrowedFd<'_>> {
        self.stderr.as_ref().map(AsFd::as_fd)
    }

    fn signal(&self, signal: Signal) -> std::io::Result<()> {
        match &self.process {
            Process::Child(handle) => handle.signal(signal),
            Process::Adopted(process) => process.signal(Some(signal)),
        }
    }
}

/// For whom a server is.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    /// Whether it serves all users.
    pub(super) multi_user: bool,
    /// The GPU or MIG instance that it may use, if not all that the daemon may.
    pub(super) gpu: Option<String>,
}

impl Driver {
    /// Finds out which groups the server's user has, then spawns it.
    pub(super) fn start_server(&mut self, server: ServerEpoch, uid: Uid, gid: u32, extent: Extent) {
        if uid == nix::unistd::geteuid().as_raw() {
            // It runs as this daemon does; nothing is looked up.
            self.spawn_server(server, Identity { uid, gid, groups: Vec::new() }, extent);
            return;
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            let identity = look_up_identity(uid, gid).await;
            events.send(Event::IdentityKnown { server, identity, extent }).await;
        });
    }

    pub(super) fn spawn_server(&mut self, server: ServerEpoch, identity: Identity, extent: Extent) {
        match self.try_spawn(server, identity, extent) {
            Ok(pid) => {
                self.look_for_notices();
                self.feed(Input::ServerSpawned { server, pid });
                reached("spawn-saved");
            }
            Err(reason) => self.feed(Input::SpawnFailed { server, reason }),
        }
    }

    fn try_spawn(&mut self, server: ServerEpoch, identity: Identity, extent: Extent) -> Result<Pid, String> {
        let program = find_server(self.settings.server_binary.as_deref(), self.settings.search_path.as_deref())
            .map_err(|error| error.to_string())?;
        let uid = identity.uid;
        reached("before-spawn");
        let mut process = ServerSpec { program, multi_user: extent.multi_user, gpu: extent.gpu, identity }
            .spawn()
            .map_err(|error| error.to_string())?;
        reached("spawned");
        let pid = core_pid(process.pid());
        let stderr = process.take_stderr();
        let duplicate = stderr.as_ref().and_then(|stderr| stderr.as_fd().try_clone_to_owned().ok());
        let running = RunningServer { uid, process: Process::Child(process.handle()), stderr: duplicate };
        self.hold_stderr(server, &running);
        reached("stderr-held");
        self.servers.insert(server, running);
        if let Some(stderr) = stderr {
            self.read_stderr(pid, stderr);
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            let cause = process.wait().await;
            events.send(Event::ServerExited { server, cause }).await;
        });
        Ok(pid)
    }

    /// Lets the holder keep a server's standard error open, since the server would get SIGPIPE; beside it, when its
    /// process was started, by which a successor knows it.
    pub(super) fn hold_stderr(&self, server: ServerEpoch, running: &RunningServer) {
        if let Some(stderr) = running.stderr() {
            let started = process::start_time(kernel_pid(running.pid())).unwrap_or_default();
            let key = keys::stderr(server);
            self.successor.hold(key, Kind::SERVER_STDERR, &started.to_le_bytes(), &[stderr]);
        }
    }

    fn read_stderr(&self, pid: Pid, mut stderr: ServerStderr) {
        let events = self.events.clone();
        tokio::spawn(async move {
            while let Some(said) = stderr.read().await {
                events.send(Event::ServerSaid { pid, lines: said.lines, dropped: said.dropped }).await;
            }
        });
    }

    /// Watches a server that an earlier daemon started.
    pub(super) fn adopt_process(
        &mut self,
        server: ServerEpoch,
        uid: Uid,
        process: WatchedProcess,
        stderr: Option<OwnedFd>,
    ) {
        let pid = core_pid(process.pid());
        let process = Arc::new(process);
        let watched = process.clone();
        let reader = stderr.as_ref().and_then(|fd| ServerStderr::from_fd(fd.try_clone().ok()?).ok());
        if let Some(reader) = reader {
            self.read_stderr(pid, reader);
        }
        let running = RunningServer { uid, process: Process::Adopted(process), stderr };
        self.servers.insert(server, running);
        let events = self.events.clone();
        tokio::spawn(async move {
            // A watch that fails can't tell more than that nothing more will be known of the process.
            let _ = watched.ended().await;
            events.send(Event::ServerExited { server, cause: ExitCause::Unknown }).await;
        });
    }

    /// Asks the driver's own account what a server costs on the GPU.
    pub(super) fn measure_server(&self, server: ServerEpoch, pid: Pid) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let memory = devices::memory_of(pid).await;
            let memory_bytes = memory.ok().filter(|bytes| *bytes > 0);
            events.send(Event::Measured { server, memory_bytes }).await;
        });
    }

    pub(super) fn server_exited(&mut self, server: ServerEpoch, cause: ExitCause) {
        if self.servers.remove(&server).is_none() {
            return;
        }
        reached("server-exit-seen");
        self.successor.release(keys::stderr(server));
        let lost = self.links.lose(server, "its process ended".to_owned());
        self.link_lost(lost);
        self.feed(Input::ServerExited { server, cause });
        if self.servers.is_empty() {
            self.stop_reading_notices();
        }
        reached("server-exit-known");
    }

    pub(super) fn signal_server(&self, server: ServerEpoch, signal: ServerSignal) {
        let Some(running) = self.servers.get(&server) else {
            return;
        };
        let signal = match signal {
            ServerSignal::Interrupt => Signal::SIGINT,
            ServerSignal::Kill => Signal::SIGKILL,
        };
        if let Err(error) = running.signal(signal) {
            tracing::debug!(pid = running.pid(), %error, "a server could not be sent a signal");
        }
        reached("server-signalled");
    }

    /// Reports when a client's process ends, and follows it with the witnesses. One that can't be watched, because the
    /// daemon is out of descriptors, is a client as long as it may live, and is tried again.
    pub(super) fn watch_process(&mut self, pid: Pid, connection: Option<ConnectionId>) {
        let socket = connection.and_then(|connection| self.connections.socket(connection));
        let named = socket.and_then(|socket| socket.peer_pidfd().ok());
        let opened = match named {
            Some(fd) => WatchedProcess::from_pidfd(kernel_pid(pid), fd),
            None => open_process(kernel_pid(pid)),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                let process = ProcessKey { pid, start_time: 0 };
                self.feed(Input::ProcessGone { process, end: End::Unknown });
                return;
            }
            Err(error) => {
                self.watch_later(pid, connection, &error);
                return;
            }
        };
        let identity = known_at_once(pid);
        let process = ProcessKey { pid, start_time: identity.start_time };
        if connection.is_none() {
            // A server has named it, by its pid alone: which process that is has to be known before it ends.
            self.feed(Input::IdentityKnown { pid, identity });
        }
        let uid = self.core.process_user(pid).unwrap_or(self.owner);
        self.follow(process, opened.pidfd().and_then(|fd| fd.try_clone_to_owned().ok()));
        let events = self.events.clone();
        let (identities, kills) = (self.witnesses.identities.clone(), self.witnesses.kills.clone());
        let mounts = Arc::clone(&self.witnesses.mounts);
        let task = tokio::spawn(async move {
            // A process that does not let itself be read must not delay the news of its own end.
            let found = tokio::select! {
                biased;
                found = identities.of(pid, uid, Some(process.start_time)) => Some(found),
                _ = opened.ended() => None,
            };
            let cgroups = found.as_ref().map(|found| found.cgroups.clone()).unwrap_or_default();
            let watch = EndWatch::begin(process, &kills, &cgroups, &mounts);
            if let Some(found) = found {
                events.send(Event::Identified { process, found: Box::new(found) }).await;
            }
            let _ = opened.ended().await;
            // What its tools queue still has to tell comes first: both may have become readable in the same moment.
            tokio::task::yield_now().await;
            let end = watch.end(opened.pidfd()).await;
            events.send(Event::ProcessGone { process, end }).await;
        });
        // A process that has outlived its server is watched anew when it comes back.
        let before = self.watched.insert(process, task.abort_handle()).filter(|_| process.start_time != 0);
        if let Some(before) = before {
            before.abort();
        }
    }

    fn watch_later(&self, pid: Pid, connection: Option<ConnectionId>, error: &std::io::Error) {
        tracing::warn!(pid, %error, "a client's process can't be watched yet");
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(tokio::time::Instant::now() + WATCH_RETRY).await;
            events.send(Event::WatchAgain { pid, connection }).await;
        });
    }

    /// Tries again to watch a process, unless its server has gone meanwhile, or its pid is another's by now.
    pub(super) fn watch_again(&mut self, pid: Pid, connection: Option<ConnectionId>) {
        let Some(known) = self.core.client_processes().into_iter().find(|known| known.pid == pid) else {
            return;
        };
        let started = process::start_time(kernel_pid(pid)).unwrap_or_default();
        if known.start_time != 0 && started != 0 && known.start_time != started {
            self.feed(Input::ProcessGone { process: known, end: End::Unknown });
        } else if !self.watched.contains_key(&known) {
            self.watch_process(pid, connection);
        }
    }

    pub(super) fn process_gone(&mut self, process: ProcessKey, end: End) {
        self.watched.remove(&process);
        self.feed(Input::ProcessGone { process, end });
        self.mourn(process);
        self.forget_unless_held(process);
    }

    /// As PID 1: buries the orphans that the kernel gives us, and nobody else's children.
    pub(super) fn reap(&self) {
        let servers = self.servers.values().map(RunningServer::pid);
        let ours: Vec<Pid> = servers.chain([self.successor.holder_pid()]).chain(devices::probe_pids()).collect();
        reaper::reap_orphans(|pid| ours.contains(&core_pid(pid)));
    }
}
