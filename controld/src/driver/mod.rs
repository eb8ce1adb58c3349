//! The one task that owns the daemon's state: names what happened, asks the core, performs its effects in order.
//!
//! ```text
//!   holder ──accepted connections──┐
//!   tasks ──events─────────────────┤                      ┌──► servers, clients, sessions
//!   log FIFO ──records─────────────┼──► Driver ─► Core ───┤
//!   signals, timers ───────────────┘                      └──► log, holder (what a successor needs)
//! ```
//! Tasks only wait and report; nothing is decided in a select arm. Whatever must survive a `kill -9` of this process
//! is told to the holder *before* the packet that makes it true is taken from or given to a peer, in an order that lets
//! a successor find out from the peer's side what was done last (`restore`).

mod clients;
mod connections;
mod events;
mod following;
mod gifts;
mod handshake;
mod inheritance;
mod keeping;
mod keys;
mod links;
mod passage;
mod perform;
mod processes;
mod reports;
mod restore;
mod session;
mod succession;
mod vault;
mod witnesses;
mod word;

use crate::core::{ConnectionId, Core, Evidence, Input, JournalEvent, Peer, Pid, ServerEpoch, SessionId, Uid};
use crate::devices::{self, Device};
use crate::failpoint::reached;
use crate::holder::{FromHolder, HolderError, HolderLink, Kind};
use crate::io::log_fifo::LogFifo;
use crate::io::reaper::Reaper;
use crate::io::runtime_dir::RuntimeDir;
use crate::io::seqpacket::SeqPacket;
use crate::io::server_link::ServerLink;
use crate::observe::http::Question;
use crate::observe::log::LogSink;
use crate::observe::recorder::Recorder;
use crate::settings::Settings;
use connections::{Connection, Session};
use events::{Event, Events};
use keys::{Note, Stage};
use passage::Undecided;
use processes::RunningServer;
use remps_proto::admin::Personality;
use remps_proto::admin::reply::ps_table;
use remps_proto::mps::log::Record;
use remps_proto::mps::server::Dialect;
use reports::{Served, UnderWay};
use session::ToSession;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use vault::{Keeper, VaultNews};
use witnesses::{Sign, Witnesses};

pub use restore::StartError;

/// How long the last answers may take when the daemon ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long the holder may take to end.
const HOLDER_FAREWELL: Duration = Duration::from_secs(2);
/// How long to wait before a holder that can't be started is tried again.
const HOLDER_RETRY: Duration = Duration::from_secs(1);

/// A server's control connection and the tasks on it.
#[derive(Debug)]
struct Link {
    link: ServerLink,
    connection: ConnectionId,
    reader: AbortHandle,
    /// Whether a task waits for room in its socket.
    waits_for_room: bool,
}

/// Everything that the daemon has open.
pub struct Driver {
    core: Core,
    started: Instant,
    settings: Settings,
    owner: Uid,
    log: LogSink,
    own_pid: Pid,
    directory: RuntimeDir,
    holder: HolderLink,
    listeners: Vec<(u64, Kind, OwnedFd)>,
    fifo: LogFifo,
    events: Events,
    events_rx: mpsc::Receiver<Event>,
    signals: Signals,
    connections: HashMap<ConnectionId, Connection>,
    sessions: BTreeMap<SessionId, Session>,
    queued_sessions: VecDeque<(SessionId, Peer, Arc<SeqPacket>)>,
    links: BTreeMap<ServerEpoch, Link>,
    servers: BTreeMap<ServerEpoch, RunningServer>,
    /// Clients whose server has been told, or may have been, and has not answered yet.
    undecided: BTreeMap<ConnectionId, Undecided>,
    /// Inputs that follow from performing effects.
    pending: VecDeque<Input>,
    feeding: bool,
    /// How the installed release's servers are told of memory limits.
    dialect: Dialect,
    /// The machine's GPUs, when the option `-q` had them listed at the start.
    devices: Option<Vec<Device>>,
    /// Who waits for the listing of the devices that is under way; `None` is the option `-q`.
    listing: Vec<Option<SessionId>>,
    /// Bytes of the log FIFO that were no records, as last reported.
    fifo_garbage: u64,
    witnesses: Witnesses,
    vault: Keeper,
    recorder: Recorder,
    served: Served,
    personality: Personality,
    /// The version of the installed driver, where it is known.
    driver_version: Option<String>,
    exit: Option<u8>,
}

/// The signals that mean something. They are caught before the sockets appear, so that none ends the daemon without
/// its files being removed.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    hand_over: Signal,
    /// As PID 1 only.
    reaper: Option<Reaper>,
}

impl Signals {
    fn caught() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            hand_over: signal(SignalKind::user_defined1())?,
            reaper: if std::process::id() == 1 { Some(Reaper::new()?) } else { None },
        })
    }
}

/// What woke the driver.
enum Wake {
    Event(Event),
    Holder(Result<FromHolder, HolderError>),
    Records(std::io::Result<Vec<Record>>),
    Sign(Sign),
    Vault(VaultNews),
    Asked(Question),
    Terminate,
    ChildEnded,
    HandOver,
    Reopen,
    Deadline,
}

impl Driver {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Serves until the daemon is told to end; returns its exit status.
    pub async fn run(mut self) -> u8 {
        while self.exit.is_none() {
            let wake = {
                let deadline = self.next_deadline();
                let timer = async {
                    match deadline {
                        Some(at) => tokio::time::sleep_until(at.into()).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    Some(event) = self.events_rx.recv() => Wake::Event(event),
                    news = self.holder.next() => Wake::Holder(news),
                    records = self.fifo.read() => Wake::Records(records),
                    sign = self.witnesses.next() => Wake::Sign(sign),
                    news = self.vault.next() => Wake::Vault(news),
                    question = self.served.next() => Wake::Asked(question),
                    () = received(&mut self.signals.terminate) => Wake::Terminate,
                    () = received(&mut self.signals.interrupt) => Wake::Terminate,
                    () = received(&mut self.signals.hangup) => Wake::Reopen,
                    () = received(&mut self.signals.hand_over) => Wake::HandOver,
                    () = child_ended(&mut self.signals.reaper) => Wake::ChildEnded,
                    () = timer => Wake::Deadline,
                }
            };
            self.woken(wake).await;
        }
        let status = self.exit.unwrap_or_default();
        self.farewell().await;
        status
    }

    async fn woken(&mut self, wake: Wake) {
        match wake {
            Wake::Event(event) => self.event(event),
            Wake::Holder(Ok(FromHolder::Accepted { key, privileged: _, fd })) => self.accepted(ConnectionId(key), fd),
            Wake::Holder(Ok(FromHolder::Failed { key, .. })) if self.vault_passed(key) => {}
            Wake::Holder(Ok(FromHolder::Failed { key, reason })) => {
                tracing::warn!(key, %reason, "the holder could not keep something");
            }
            Wake::Holder(Err(error)) => self.replace_holder(&error).await,
            Wake::Records(Ok(records)) => self.records(&records),
            Wake::Records(Err(error)) => self.say(&format!("The log FIFO can't be read: {error}")),
            Wake::Sign(sign) => self.sign(sign),
            Wake::Vault(news) => self.vault_news(news),
            Wake::Asked(question) => self.asked(question),
            Wake::Terminate => {
                self.feed(Input::Terminate);
                reached("quit-known");
            }
            Wake::HandOver => self.hand_over(),
            Wake::Reopen => self.reopen(),
            Wake::ChildEnded => self.reap(),
            Wake::Deadline => {
                self.answers_seem_overdue();
                self.expire_vault();
                self.feed(Input::Tick);
            }
        }
        self.succeed();
        self.tell_watchers();
        if self.log.has_suppressed() {
            self.log.report_suppressed();
        }
    }

    fn records(&mut self, records: &[Record]) {
        for record in records {
            self.log.record(record);
            self.log_sign(record);
        }
        let garbage = self.fifo.skipped();
        if garbage > self.fifo_garbage {
            let new = garbage - self.fifo_garbage;
            self.fifo_garbage = garbage;
            let line = format!("{new} bytes in the log FIFO are no records, {garbage} so far");
            self.log.chatter(self.own_pid, &line);
        }
    }

    /// Takes in what lies in the log FIFO, as much as one read gives: whoever floods it holds up nobody.
    fn read_log_now(&mut self) {
        // An error is met again when the FIFO is waited for.
        if let Ok(records) = self.fifo.read_now() {
            self.records(&records);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let core = self.core.next_deadline().map(|at| self.started + at);
        let links = self.links.values().filter_map(|link| link.link.next_deadline());
        let vault = self.vault.next_deadline().map(|at| self.started + at);
        core.into_iter().chain(links).chain(vault).min()
    }

    /// Tells the core what happened, and performs what it asks for until nothing is left.
    ///
    /// What happens while an effect is performed is told after the rest of its effects are done.
    fn feed(&mut self, input: Input) {
        self.pending.push_back(input);
        if self.feeding {
            return;
        }
        self.feeding = true;
        while let Some(input) = self.pending.pop_front() {
            let effects = self.core.handle(self.now(), input);
            for effect in effects {
                self.perform(effect);
            }
        }
        self.feeding = false;
    }

    /// Lists the devices now and not at the first `device_query` (option `-q`).
    pub fn ready_devices(&mut self) {
        self.list_devices(None);
    }

    /// Lists the devices for a session, or for good. One process does so at a time: whoever asks meanwhile gets its
    /// answer too, so that no number of sessions starts as many processes.
    fn list_devices(&mut self, session: Option<SessionId>) {
        self.listing.push(session);
        if self.listing.len() > 1 {
            return;
        }
        let events = self.events.clone();
        tokio::spawn(async move {
            let devices = devices::list().await.map_err(|error| error.to_string());
            events.send(Event::Devices { devices }).await;
        });
    }

    fn devices_listed(&mut self, devices: &Result<Vec<Device>, String>) {
        for waiting in std::mem::take(&mut self.listing) {
            match (waiting, devices) {
                (Some(session), devices) => self.feed(Input::DevicesListed { session, devices: devices.clone() }),
                (None, Ok(devices)) => self.devices = Some(devices.clone()),
                (None, Err(reason)) => self.say(&format!("The devices can't be listed: {reason}")),
            }
        }
    }

    /// A line of our own for `control.log`.
    fn say(&self, line: &str) {
        self.log.control(self.own_pid, line);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Role { connection, role, peer } => self.role(connection, role, peer),
            Event::Refused { connection, refusal } => {
                self.log.chatter(self.own_pid, refusal.line());
                self.close(connection);
            }
            Event::Hello { connection, peer, hello } => {
                reached("hello-seen");
                self.note(connection, Stage::Configuring, peer, None);
                reached("hello-noted");
                tracing::debug!(pid = peer.pid, shared_memory = hello.shared_memory, "server hello");
                self.feed(Input::ServerHello { connection, peer });
            }
            Event::ServerHasEnd { connection } => {
                // A fault that the server has told of before it greeted is known first.
                self.read_log_now();
                self.server_has_end(connection);
            }
            Event::ServerClosedEnd { connection } => self.server_closed_end(connection),
            Event::ClientDone { connection, status } => {
                reached("status-read");
                self.client_left(connection, status);
            }
            Event::HandshakeFinished { connection, is_answered } => {
                if is_answered {
                    self.feed(Input::RestAnswered { connection });
                }
                self.feed(Input::ClientDone { connection, status: None });
            }
            Event::Command { session, line } => {
                if let Some(known) = self.sessions.get_mut(&session) {
                    known.busy = true;
                    known.under_way = Some(UnderWay::of(&line, self.personality));
                    let peer = known.peer;
                    reached("command-read");
                    self.feed(Input::Command { session, peer, line });
                }
            }
            Event::SessionEnded { session } => {
                if self.sessions.remove(&session).is_some() {
                    self.log.chatter(self.own_pid, "UI closed");
                }
                if let Some((session, peer, socket)) = self.queued_sessions.pop_front() {
                    self.open_session(session, peer, socket);
                }
            }
            Event::LinkPacket { server, packet } => self.link_packet(server, &packet),
            Event::LinkEnded { server, reason } => self.link_lost(server, reason),
            Event::CaughtUp { server } => self.feed(Input::CaughtUp { server }),
            Event::AnswersOverdue { server } => self.overdue_answers(server),
            Event::LinkWritable { server } => self.link_writable(server),
            Event::IdentityKnown { server, identity, multi_user } if self.core.is_starting(server) => {
                self.spawn_server(server, identity, multi_user);
            }
            Event::IdentityKnown { server, .. } => {
                self.feed(Input::SpawnFailed { server, reason: "it is not wanted any longer".to_owned() });
            }
            Event::ServerSaid { pid, lines, dropped } => self.server_said(pid, &lines, dropped),
            Event::ServerExited { server, cause } => self.server_ended(server, cause),
            Event::ServerHeard { server, cause } => self.server_exited(server, cause),
            Event::ProcessGone { process, end } => self.process_ended(process, end),
            Event::ProcessHeard { process, end } => self.process_gone(process, end),
            Event::Known { connection, peer, found } => {
                // Unless it has left meanwhile.
                if self.connections.contains_key(&connection) {
                    self.feed(Input::ClientArrived { connection, peer, identity: Arc::new(found.identity) });
                }
            }
            Event::Identified { process, found } => self.identified(process, *found),
            Event::Attached { process, is_first, result } => self.attached(process, is_first, result),
            Event::HandedOver { process, result, reply } => self.attached_by_gift(process, result, reply),
            Event::Sifted { process, open, reply } => self.sifted(process, open, reply),
            Event::HeirlessEnded { process } => {
                self.mourn(process);
                self.forget_unless_held(process);
            }
            Event::LookOverdue { process, connection } => self.look_overdue(process, connection),
            Event::Fault { process, fault, lost } => {
                if lost > 0 {
                    let (witness, process) = ("uvm-event", Some(process));
                    self.record(&JournalEvent::WitnessLost { witness, process, count: lost });
                }
                self.feed(Input::Evidence(Evidence::UvmEvent { process, fault }));
            }
            Event::Unheard { process, error } => {
                tracing::warn!(pid = process.pid, %error, "a client's tools queue can't be read any longer");
                self.feed(Input::Tracked { process, tracked: false });
            }
            Event::Measured { server, memory_bytes } => self.feed(Input::ServerMeasured { server, memory_bytes }),
            Event::Described { session, rows } => self.answer(session, ps_table(&rows)),
            Event::Devices { devices } => self.devices_listed(&devices),
        }
    }

    // ---- the end -----------------------------------------------------------------------------------------------

    /// Answers those who wait for the end, removes what is ours, and ends the holder.
    async fn farewell(mut self) {
        self.directory.remove_files();
        reached("files-removed");
        let status = u32::from(self.exit.unwrap_or_default());
        for session in self.sessions.values().filter(|session| session.busy) {
            let _ = session.answers_tx.send(ToSession::End(status));
        }
        self.sessions.retain(|_, session| {
            if !session.busy {
                session.task.abort();
            }
            session.busy
        });
        let deadline = tokio::time::Instant::now() + FAREWELL;
        // Those who wait for `quit` must find the daemon gone when they are answered, so the holder goes first.
        let Self { holder, mut events_rx, mut sessions, .. } = self;
        if let Err(error) = holder.leave(HOLDER_FAREWELL).await {
            tracing::warn!(%error, "the holder did not end by itself");
        }
        reached("holder-left");
        while !sessions.is_empty() {
            match tokio::time::timeout_at(deadline, events_rx.recv()).await {
                Ok(Some(Event::SessionEnded { session })) => drop(sessions.remove(&session)),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
    }
}

async fn received(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}

async fn child_ended(reaper: &mut Option<Reaper>) {
    match reaper {
        Some(reaper) => reaper.child_ended().await,
        None => std::future::pending().await,
    }
}
