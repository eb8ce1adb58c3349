//! Servers' processes: those that this daemon has started, and those of an earlier one.

use super::Driver;
use super::events::{Event, Events, Extent};
use super::processes::{core_pid, kernel_pid};
use super::successor::{Successor, keys};
use crate::core::{ExitCause, Input, Peer, Pid, ServerEpoch, ServerSignal, Uid};
use crate::devices;
use crate::failpoint::reached;
use crate::holder::Kind;
use crate::io::process::{WatchedProcess, start_time};
use crate::io::server_process::{ServerHandle, ServerSpec, find_server, look_up_identity};
use crate::io::server_stderr::ServerStderr;
use crate::settings::Settings;
use crate::sys::child::Identity;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// A server whose process has not ended.
#[derive(Debug)]
struct RunningServer {
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
    fn pid(&self) -> Pid {
        match &self.process {
            Process::Child(handle) => core_pid(handle.pid()),
            Process::Adopted(process) => core_pid(process.pid()),
        }
    }

    fn signal(&self, signal: Signal) -> std::io::Result<()> {
        match &self.process {
            Process::Child(handle) => handle.signal(signal),
            Process::Adopted(process) => process.signal(Some(signal)),
        }
    }
}

/// All of them.
pub(super) struct Servers {
    running: BTreeMap<ServerEpoch, RunningServer>,
    /// The server's program, and where it is looked for without that.
    binary: Option<OsString>,
    search_path: Option<OsString>,
    events: Events,
}

impl Servers {
    pub(super) fn new(settings: &Settings, events: Events) -> Self {
        let (binary, search_path) = (settings.server_binary.clone(), settings.search_path.clone());
        Self { running: BTreeMap::new(), binary, search_path, events }
    }

    /// The program that is started, or why there is none.
    pub(super) fn program(&self) -> Result<PathBuf, String> {
        find_server(self.binary.as_deref(), self.search_path.as_deref()).map_err(|error| error.to_string())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.running.values().map(RunningServer::pid)
    }

    /// Who a server is, as is noted beside its connection.
    pub(super) fn peer(&self, server: ServerEpoch) -> Peer {
        let running = self.running.get(&server);
        running.map_or(Peer { pid: 0, uid: 0, gid: 0 }, |it| Peer { pid: it.pid(), uid: it.uid, gid: 0 })
    }

    fn spawn(
        &mut self,
        server: ServerEpoch,
        identity: Identity,
        extent: Extent,
        successor: &Successor,
    ) -> Result<Pid, String> {
        let program = self.program()?;
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
        self.running.insert(server, running);
        self.hold_stderr(server, successor);
        reached("stderr-held");
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
    fn hold_stderr(&self, server: ServerEpoch, successor: &Successor) {
        if let Some(running) = self.running.get(&server)
            && let Some(stderr) = &running.stderr
        {
            let started = start_time(kernel_pid(running.pid())).unwrap_or_default();
            successor.hold(keys::stderr(server), Kind::SERVER_STDERR, &started.to_le_bytes(), &[stderr.as_fd()]);
        }
    }

    /// Gives another holder the standard error of all.
    pub(super) fn hold_all(&self, successor: &Successor) {
        self.running.keys().for_each(|server| self.hold_stderr(*server, successor));
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
    pub(super) fn adopt(&mut self, server: ServerEpoch, uid: Uid, process: WatchedProcess, stderr: Option<OwnedFd>) {
        let pid = core_pid(process.pid());
        let process = Arc::new(process);
        let watched = process.clone();
        let reader = stderr.as_ref().and_then(|fd| ServerStderr::from_fd(fd.try_clone().ok()?).ok());
        if let Some(reader) = reader {
            self.read_stderr(pid, reader);
        }
        self.running.insert(server, RunningServer { uid, process: Process::Adopted(process), stderr });
        let events = self.events.clone();
        tokio::spawn(async move {
            // A watch that fails can't tell more than that nothing more will be known of the process.
            let _ = watched.ended().await;
            events.send(Event::ServerExited { server, cause: ExitCause::Unknown }).await;
        });
    }

    /// Asks the driver's own account what a server costs on the GPU.
    pub(super) fn measure(&self, server: ServerEpoch, pid: Pid) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let memory = devices::memory_of(pid).await;
            let memory_bytes = memory.ok().filter(|bytes| *bytes > 0);
            events.send(Event::Measured { server, memory_bytes }).await;
        });
    }

    pub(super) fn signal(&self, server: ServerEpoch, signal: ServerSignal) {
        let Some(running) = self.running.get(&server) else {
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
        match self.servers.spawn(server, identity, extent, &self.successor) {
            Ok(pid) => {
                self.server_has(server, pid);
                let told = self.witnesses.look_for_notices();
                self.told(told);
                self.feed(Input::ServerSpawned { server, pid });
                reached("spawn-saved");
            }
            Err(reason) => self.feed(Input::SpawnFailed { server, reason }),
        }
    }

    pub(super) fn server_exited(&mut self, server: ServerEpoch, cause: ExitCause) {
        if self.servers.running.remove(&server).is_none() {
            return;
        }
        reached("server-exit-seen");
        self.successor.release(keys::stderr(server));
        let lost = self.links.lose(server, "its process ended".to_owned());
        self.link_lost(lost);
        self.feed(Input::ServerExited { server, cause });
        if self.servers.is_empty() {
            let told = self.witnesses.stop_reading_notices();
            self.told(told);
        }
        reached("server-exit-known");
    }
}
