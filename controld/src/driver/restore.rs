//! The start of the daemon: fresh, or where a killed daemon stopped.
//!
//! What a successor finds with the holder, and what it does:
//!
//! | found | done |
//! |---|---|
//! | a server's connection, noted as a link and still open | resumed: answers to the earlier daemon are dropped |
//! | a server without a link, or one whose configuration may be half told | ended: it has no clients yet |
//! | a client that waits | it waits |
//! | a client whose server was being told | it waits until the server shows whether it was ([`passage`](super::passage)) |
//! | a client whose server has its end | it is sent its own end again; if it had it, it ignores the second |
//! | copies of a living client's UVM descriptors | watched and kept on when its server names it |
//! | a dead client's | kept for the rest of their time |
//! | a connection without a role | its next packet says what it is |
//!
//! Sessions of the command line are not kept: nobody could say which of their commands were done.

use super::events::Events;
use super::keys::{self, Note, Stage};
use super::processes::kernel_pid;
use super::vault::Keeper;
use super::{Connection, Driver, HOLDER_FAREWELL, Served, Signals, Witnesses, handshake, reports};
use crate::core::saved::{Saved, SavedServer};
use crate::core::{ConnectionId, Core, Peer, Policy, ServerEpoch};
use crate::failpoint::reached;
use crate::holder::{Held, HolderError, HolderLink, Kind, LOG_BACKLOG_KEY};
use crate::io::log_fifo::{self, FifoError, LogFifo};
use crate::io::process::{WatchedProcess, open_process, start_time};
use crate::io::runtime_dir::{CONTROL, CONTROL_PRIVILEGED, LOG, RuntimeDir, RuntimeDirError};
use crate::io::seqpacket::{Packet, SeqPacket};
use crate::io::server_link::ServerLink;
use crate::io::server_version;
use crate::observe::log::LogSink;
use crate::settings::Settings;
use nix::sys::signal::Signal;
use prost::Message as _;
use remps_proto::admin::Personality;
use remps_proto::mps::handshake::Role;
use remps_proto::mps::log::Decoder;
use remps_proto::mps::server::Dialect;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Clients, servers and users without privileges connect here.
const CONTROL_MODE: u32 = 0o666;
/// The owner's and root's command line connects here.
const PRIVILEGED_MODE: u32 = 0o700;

/// Why the daemon can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pipe directory.
    #[error(transparent)]
    Directory(#[from] RuntimeDirError),
    /// The log FIFO.
    #[error(transparent)]
    Fifo(#[from] FifoError),
    /// The holder process.
    #[error("the holder process can't be started: {0}")]
    Holder(#[from] HolderError),
    /// A system call.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What the holder kept, sorted.
#[derive(Default)]
struct Found {
    state: Option<Saved>,
    public: Option<OwnedFd>,
    privileged: Option<OwnedFd>,
    fifo: Option<OwnedFd>,
    backlog: Vec<u8>,
    stderr: BTreeMap<ServerEpoch, (OwnedFd, u64)>,
    client_ends: HashMap<u64, OwnedFd>,
    connections: Vec<(ConnectionId, Note, SeqPacket)>,
    shim: Option<OwnedFd>,
    regions: Vec<Held>,
    copies: Vec<Held>,
}

impl Found {
    fn sort(held: Vec<Held>) -> Self {
        let mut found = Self::default();
        let (regions, others) = held.into_iter().partition(|held| [Kind::REGION, Kind::NAME].contains(&held.kind));
        found.regions = regions;
        for held in others {
            if held.kind == Kind::COPIES {
                found.copies.push(held);
                continue;
            }
            let Held { key, kind, state, mut fds, .. } = held;
            let fd = fds.pop();
            match (kind, fd) {
                (Kind::STATE, _) => found.state = Saved::decode(state.as_slice()).ok(),
                (Kind::LOG_BACKLOG, _) => found.backlog.extend(state),
                (Kind::LISTENER_PUBLIC, Some(fd)) => found.public = Some(fd),
                (Kind::LISTENER_PRIVILEGED, Some(fd)) => found.privileged = Some(fd),
                (Kind::LISTENER_SHIM, Some(fd)) => found.shim = Some(fd),
                (Kind::LOG_FIFO, Some(fd)) => found.fifo = Some(fd),
                (Kind::CLIENT_END, Some(fd)) => drop(found.client_ends.insert(key, fd)),
                (Kind::SERVER_STDERR, Some(fd)) => {
                    let started = <[u8; 8]>::try_from(state).map_or(0, u64::from_le_bytes);
                    if let Some(server) = keys::stderr_of(key) {
                        found.stderr.insert(server, (fd, started));
                    }
                }
                (Kind::CONNECTION | Kind::SERVER_CONNECTION, Some(fd)) => {
                    let note = Note::decode(state.as_slice()).unwrap_or_default();
                    if let Ok(socket) = SeqPacket::new(fd) {
                        found.connections.push((ConnectionId(key), note, socket));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// What lies in a socket now.
enum Next {
    Nothing,
    Packet(Packet),
    End,
}

fn next_packet(socket: &SeqPacket) -> Next {
    match socket.peek_now(1024) {
        Ok(Some(packet)) => Next::Packet(packet),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Next::Nothing,
        Ok(None) | Err(_) => Next::End,
    }
}

/// Takes the role away if the earlier daemon had noted it but not yet taken it.
fn skip_noted_role(socket: &SeqPacket, role: Role) {
    if let Next::Packet(packet) = next_packet(socket)
        && packet.bytes == role.encode()
    {
        let _ = socket.discard();
    }
}

fn open_fifo(directory: &mut RuntimeDir, found: &mut Found) -> Result<LogFifo, StartError> {
    // A FIFO whose file somebody has removed can't be found by the next server.
    let fifo = match found.fifo.take().filter(|_| directory.file(LOG).exists()) {
        Some(fd) => LogFifo::from_fd(fd)?,
        None => LogFifo::from_fd(log_fifo::create(&directory.file(LOG), log_fifo::MODE)?)?,
    };
    directory.remove_on_exit(LOG)?;
    Ok(fifo)
}

/// Undoes a start that failed. What an earlier daemon left stays for one that succeeds.
async fn abandon(is_fresh: bool, mut directory: RuntimeDir, holder: HolderLink) {
    if is_fresh {
        directory.remove_files();
        if let Err(error) = holder.leave(HOLDER_FAREWELL).await {
            tracing::warn!(%error, "the holder did not end by itself");
        }
    } else {
        directory.keep_files();
    }
}

impl Driver {
    /// Takes over what an earlier daemon left, or starts fresh, and opens the control sockets.
    ///
    /// The lock of the pipe directory must be held. Call it within a current-thread runtime.
    ///
    /// # Errors
    /// [`StartError`] when the daemon can't serve.
    pub async fn start(
        settings: Settings,
        policy: Policy,
        log: LogSink,
        mut directory: RuntimeDir,
    ) -> Result<Self, StartError> {
        let started = Instant::now();
        let own_pid = std::process::id();
        let signals = Signals::caught()?;
        let (holder, held) = HolderLink::attach(directory.path()).await?;
        reached("attached");
        let is_fresh = held.is_empty();
        let mut found = Found::sort(held);
        let fifo = match open_fifo(&mut directory, &mut found) {
            Ok(fifo) => fifo,
            Err(error) => {
                abandon(is_fresh, directory, holder).await;
                return Err(error);
            }
        };
        log.control(own_pid, &format!("Starting control daemon using socket {}", directory.file(CONTROL).display()));
        log.control(
            own_pid,
            &format!(
                "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
                directory.path().display()
            ),
        );
        if let Some(version) = policy.personality.binary_version().filter(|_| policy.personality.logs_binary_version())
        {
            log.control(own_pid, &format!("CUDA MPS Control binary version: {version}"));
        }
        for remark in &settings.remarks {
            log.control(own_pid, remark);
        }
        let mut backlog = Decoder::default();
        backlog.push(&found.backlog);
        backlog.for_each(|record| log.record(&record));

        let witnesses = Witnesses::open(&settings);
        let vault = Keeper::new(&settings);
        let recorder = reports::recorder(&settings);
        let installed = server_version::find(None, settings.library_path.as_deref());
        let (events, events_rx) = Events::channel();
        let owner = policy.owner;
        let defaults = settings.defaults.clone();
        let mut driver = Self {
            core: Core::new(policy.clone(), defaults),
            started,
            settings,
            owner,
            log,
            own_pid,
            directory,
            holder,
            listeners: Vec::new(),
            fifo,
            events,
            events_rx,
            signals,
            connections: HashMap::new(),
            sessions: BTreeMap::new(),
            queued_sessions: VecDeque::new(),
            links: BTreeMap::new(),
            servers: BTreeMap::new(),
            undecided: BTreeMap::new(),
            pending: VecDeque::new(),
            feeding: false,
            dialect: if policy.personality < Personality::V580 { Dialect::Ordinals } else { Dialect::Keys },
            devices: None,
            listing: Vec::new(),
            fifo_garbage: 0,
            witnesses,
            vault,
            recorder,
            served: Served::default(),
            personality: policy.personality,
            driver_version: installed.map(|installed| installed.version),
            exit: None,
        };
        driver.begin_witnessing();
        if let Some(saved) = found.state.take() {
            driver.take_over(policy, &saved, &mut found);
        }
        driver.take_over_copies(std::mem::take(&mut found.copies));
        reached("state-restored");
        driver.kept(driver.holder.hold(keys::LOG_FIFO, Kind::LOG_FIFO, &[], &[driver.fifo.as_fd()]));
        driver.save();
        reached("start-saved");
        driver.kept(driver.holder.release(LOG_BACKLOG_KEY));
        driver.take_over_connections(&mut found);
        reached("connections-restored");
        driver.take_over_vault(std::mem::take(&mut found.regions));
        match driver.appear(&mut found) {
            Ok(()) => {
                driver.begin_observing(is_fresh).await;
                Ok(driver)
            }
            Err(error) => {
                let Self { directory, holder, .. } = driver;
                abandon(is_fresh, directory, holder).await;
                Err(error)
            }
        }
    }

    /// Lets others find the daemon.
    fn appear(&mut self, found: &mut Found) -> Result<(), StartError> {
        self.listen(found)?;
        self.open_vault(found.shim.take());
        reached("listening");
        self.directory.write_pid_file()?;
        // Now that all files are there: the holder removes those that it is told of while they exist.
        self.hold_settings();
        reached("pid-file-written");
        Ok(())
    }

    /// Opens the control sockets, or goes on with those that an earlier daemon had, on which newcomers wait already.
    fn listen(&mut self, found: &mut Found) -> Result<(), StartError> {
        let sockets = [
            (keys::PRIVILEGED_LISTENER, Kind::LISTENER_PRIVILEGED, CONTROL_PRIVILEGED, PRIVILEGED_MODE),
            (keys::PUBLIC_LISTENER, Kind::LISTENER_PUBLIC, CONTROL, CONTROL_MODE),
        ];
        for (key, kind, name, mode) in sockets {
            let old = if kind == Kind::LISTENER_PUBLIC { found.public.take() } else { found.privileged.take() };
            // A socket whose file somebody has removed can't be found by anybody.
            let old = old.filter(|_| self.directory.file(name).exists());
            let listener = match old {
                Some(listener) => {
                    self.directory.remove_on_exit(name)?;
                    listener
                }
                None => {
                    let listener = self.directory.bind_listener(name, mode)?;
                    self.holder.hold(key, kind, &[], &[listener.as_fd()])?;
                    listener
                }
            };
            self.listeners.push((key, kind, listener));
        }
        Ok(())
    }

    /// Goes on with the servers of an earlier daemon.
    fn take_over(&mut self, policy: Policy, saved: &Saved, found: &mut Found) {
        let mut alive = Vec::new();
        for server in &saved.servers {
            match self.resume_server(server, found) {
                true => alive.push(server.clone()),
                false => self.end_unfinished(server, found),
            }
        }
        // Of servers that were started and not yet in the saved state: without us they end at their hello.
        for server in std::mem::take(&mut found.stderr).into_keys() {
            self.kept(self.holder.release(keys::stderr(server)));
        }
        let (core, effects) = Core::restored(self.now(), policy, saved, &alive);
        self.core = core;
        self.feeding = true;
        for effect in effects {
            self.perform(effect);
        }
        self.feeding = false;
    }

    fn resume_server(&mut self, saved: &SavedServer, found: &mut Found) -> bool {
        let epoch = ServerEpoch(saved.epoch);
        let is_link =
            |(_, note, _): &(ConnectionId, Note, SeqPacket)| note.stage() == Stage::Link && note.server == saved.epoch;
        let Some(index) = found.connections.iter().position(is_link) else {
            return false;
        };
        let (connection, _, socket) = found.connections.swap_remove(index);
        // An open connection proves that the process is alive, and names it.
        let process = match (next_packet(&socket), socket.peer_pidfd()) {
            (Next::End, _) => None,
            (_, Ok(fd)) => WatchedProcess::from_pidfd(kernel_pid(saved.pid), fd).ok(),
            (_, Err(_)) => open_process(kernel_pid(saved.pid)).ok(),
        };
        let link =
            process.and_then(|process| Some((process, ServerLink::resume(Arc::new(socket), self.dialect).ok()?)));
        let Some((process, link)) = link else {
            self.release(connection);
            return false;
        };
        let stderr = found.stderr.remove(&epoch).map(|(fd, _)| fd);
        self.adopt_process(epoch, saved.uid, process, stderr);
        self.insert_link(epoch, connection, link);
        true
    }

    /// Ends a server that was starting when its daemon was killed.
    fn end_unfinished(&mut self, saved: &SavedServer, found: &mut Found) {
        let epoch = ServerEpoch(saved.epoch);
        let started = found.stderr.remove(&epoch).map(|(_, started)| started);
        self.kept(self.holder.release(keys::stderr(epoch)));
        if saved.pid != 0
            && started.is_some()
            && let Ok(process) = open_process(kernel_pid(saved.pid))
            && start_time(kernel_pid(saved.pid)) == started
        {
            self.say(&format!("Server {} had not become ready under an earlier daemon, it is ended", saved.pid));
            // One that has ended by itself is as good.
            let _ = process.signal(Some(Signal::SIGKILL));
        }
    }

    fn take_over_connections(&mut self, found: &mut Found) {
        for (connection, note, socket) in std::mem::take(&mut found.connections) {
            let (peer, server) = (note.peer(), ServerEpoch(note.server));
            let end = found.client_ends.remove(&keys::client_end(connection));
            match note.stage() {
                Stage::Unknown => self.greeted(connection, Arc::new(socket)),
                Stage::Waiting => self.client_again(connection, peer, Arc::new(socket)),
                Stage::Dispatching | Stage::HandedOver => {
                    let end = end.filter(|_| self.links.contains_key(&server));
                    self.client_on_its_way(connection, &note, Arc::new(socket), end);
                }
                Stage::Server => {
                    skip_noted_role(&socket, Role::SERVER);
                    let socket = Arc::new(socket);
                    let task = handshake::read_hello(connection, peer, socket.clone(), self.events.clone());
                    self.insert_connection(connection, socket, peer, task);
                }
                // A server whose daemon died before it knew that it was configured, or one that is gone.
                Stage::Configuring | Stage::Link => self.release(connection),
            }
        }
        // Ends of clients that are gone.
        for key in std::mem::take(&mut found.client_ends).into_keys() {
            self.kept(self.holder.release(key));
        }
    }

    fn insert_connection(
        &mut self,
        connection: ConnectionId,
        socket: Arc<SeqPacket>,
        peer: Peer,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = tokio::spawn(task).abort_handle();
        self.connections
            .insert(connection, Connection { socket, uid: peer.uid, in_handshake: false, task, handed_over: None });
    }

    /// A client that waits, as before.
    fn client_again(&mut self, connection: ConnectionId, peer: Peer, socket: Arc<SeqPacket>) {
        skip_noted_role(&socket, Role::CLIENT);
        self.note(connection, Stage::Waiting, peer, None);
        let task = handshake::read_status(connection, socket.clone(), self.events.clone());
        self.insert_connection(connection, socket, peer, task);
        self.client_arrives(connection, peer);
    }

    /// A client that an earlier daemon was about to hand, or had handed, to a server.
    fn client_on_its_way(
        &mut self,
        connection: ConnectionId,
        note: &Note,
        socket: Arc<SeqPacket>,
        end: Option<OwnedFd>,
    ) {
        let (peer, server) = (note.peer(), ServerEpoch(note.server));
        let Some(end) = end else {
            self.kept(self.holder.release(keys::client_end(connection)));
            self.client_again(connection, peer, socket);
            return;
        };
        let task = handshake::read_status(connection, socket.clone(), self.events.clone());
        self.insert_connection(connection, socket.clone(), peer, task);
        if note.stage() == Stage::HandedOver {
            self.hand_over_end(connection, peer, server, end);
        } else if let Err(error) = self.await_greeting(connection, peer, server, end) {
            self.say(&format!("Client {} can't be taken over: {error}", peer.pid));
            self.close(connection);
        }
    }
}
