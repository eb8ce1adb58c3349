//! The thin daemon of the option `--join`: a pipe directory of its own with the files, the log and the life of a daemon,
//! and no more. Its clients are served by the daemon of the node.
//!
//! It hands its directory over to that daemon ([`node`]), which listens there itself: so who a client is remains the
//! kernel's word, and a thin daemon that dies harms nobody. It keeps `control_privileged` ([`visitors`]): whoever is where
//! it is itself is its owner, and the connection goes to the node's daemon with that. So a command line finds a daemon here as
//! long as there is one, and `quit` ends it.
//!
//! When the node's daemon is gone, it tries to join again for [`REJOINING`], and then gives up with a status that
//! Kubernetes starts it again for. What limits its server had it was told, and tells the next daemon of the node, which
//! knows nothing of it after an orderly end.

mod node;
mod visitors;

pub(crate) use node::NodeError;

use crate::io::folder::Kind;
use crate::io::join_link::{JoinLink, Parcel};
use crate::io::program_defaults;
use crate::io::runtime_dir::{CONTROL, CONTROL_PRIVILEGED, RuntimeDir, RuntimeDirError};
use crate::observe::log::LogSink;
use crate::patience::patient;
use node::Node;
use remps_proto::join::{ToNode, ToThin};
use remps_proto::shim::ProgramDefaults;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};
use visitors::Visitors;

/// How long it tries to join again: as long as the holder process waits for another daemon of the node by default.
const REJOINING: Duration = Duration::from_secs(600);
/// Between the first two attempts; each later pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the node's daemon may take to say farewell.
const FAREWELL: Duration = Duration::from_secs(5);
/// The owner's and root's command line connects here, as to every daemon.
const PRIVILEGED_MODE: u32 = 0o700;
const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;

/// What a thin daemon is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// The pipe directory of the node's daemon, or a socket in it.
    pub socket: PathBuf,
    /// The name of its server there; `None` is one for its pipe directory.
    pub name: Option<String>,
    /// Its own pipe directory.
    pub pipe_directory: PathBuf,
    /// The GPUs that its clients may use: its `CUDA_VISIBLE_DEVICES`.
    pub devices: String,
}

/// Looks what its own configuration has for programs that have the preload library and say nothing.
pub(crate) type Replay = Box<dyn Fn() -> Option<ProgramDefaults>>;

/// Why there is no thin daemon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThinError {
    /// Its own directory.
    #[error(transparent)]
    Directory(#[from] RuntimeDirError),
    /// The node's daemon.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A system call.
    #[error(transparent)]
    Io(#[from] io::Error),
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

#[derive(PartialEq, Eq)]
enum Told {
    ToEnd,
    ToReopen,
}

impl Signals {
    fn caught() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::ToEnd,
            _ = self.interrupt.recv() => Told::ToEnd,
            _ = self.hangup.recv() => Told::ToReopen,
        }
    }
}

/// A thin daemon that has joined.
pub(crate) struct Thin {
    directory: RuntimeDir,
    node: Node,
    link: JoinLink,
    visitors: Visitors,
    signals: Signals,
    replay: Replay,
    log: LogSink,
}

/// Why it is not joined any longer.
enum Parted {
    /// It is to end with this status.
    End(u8),
    /// The node's daemon is gone.
    Lost,
}

impl Thin {
    /// Joins; call it within a current-thread runtime.
    ///
    /// # Errors
    /// See [`ThinError`].
    pub(crate) async fn start(request: Request, replay: Replay, log: LogSink) -> Result<Self, ThinError> {
        let signals = Signals::caught()?;
        let mut directory = RuntimeDir::open(&request.pipe_directory)?;
        say(&log, &format!("Starting control daemon using socket {}", directory.file(CONTROL).display()));
        let shown = directory.path().display();
        say(&log, &format!("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={shown}"));
        for remark in directory.take_remarks() {
            say(&log, &remark);
        }
        let node = Node::new(&request, directory.folder())?;
        let (link, name) = node.join(directory.folder(), replay()).await?;
        let privileged = directory.bind_listener(CONTROL_PRIVILEGED, PRIVILEGED_MODE)?;
        let visitors = Visitors::new(privileged)?;
        directory.write_pid_file()?;
        say(&log, &format!("Joined the daemon of {} as {name}", node.place()));
        Ok(Self { directory, node, link, visitors, signals, replay, log })
    }

    /// Serves until it is told to end; returns its exit status.
    pub(crate) async fn run(mut self) -> u8 {
        loop {
            let parted = self.joined().await;
            let status = match parted {
                Parted::End(status) => Some(status),
                Parted::Lost => self.join_again().await,
            };
            if let Some(status) = status {
                self.say(&format!("Exit with status {status}"));
                // Whoever waits for the end of the conversation finds the files and the lock gone.
                let Self { directory, link, .. } = self;
                drop(directory);
                drop(link);
                return status;
            }
        }
    }

    fn say(&self, line: &str) {
        say(&self.log, line);
    }

    async fn joined(&mut self) -> Parted {
        loop {
            tokio::select! {
                parcel = self.link.receive() => {
                    let Ok(Some(Parcel { bytes, .. })) = parcel else { return Parted::Lost };
                    match ToThin::decode(&bytes) {
                        Ok(ToThin::Ended(reason)) => {
                            self.say(&format!("The daemon of {} ends this one: {reason}", self.node.place()));
                            return Parted::End(SUCCESS);
                        }
                        Ok(ToThin::Refused(reason)) => {
                            self.say(&format!("The daemon of {} refuses: {reason}", self.node.place()));
                            return Parted::Lost;
                        }
                        Ok(ToThin::Limits(limits)) => self.node.has_said(limits),
                        Ok(ToThin::Joined { .. } | ToThin::Unknown(_)) => {}
                        Err(error) => {
                            self.say(&format!("The daemon of {} is not understood: {error}", self.node.place()));
                            return Parted::Lost;
                        }
                    }
                }
                visitor = self.visitors.next() => {
                    if let Some((fd, is_owner)) = visitor {
                        let visitor = ToNode::Visitor { is_owner }.encode();
                        if self.send(&visitor, Some(&fd)).await.is_err() {
                            return Parted::Lost;
                        }
                    }
                }
                told = self.signals.next() => match told {
                    Told::ToEnd => return self.leave().await,
                    Told::ToReopen => self.reopen(),
                },
            }
        }
    }

    async fn send(&self, bytes: &[u8], descriptor: Option<&std::os::fd::OwnedFd>) -> io::Result<()> {
        use std::os::fd::AsFd;
        let sending = self.link.send(bytes, descriptor.map(AsFd::as_fd));
        timeout(patient(FAREWELL), sending).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    fn reopen(&self) {
        if let Err(error) = self.log.reopen() {
            self.say(&format!("The log can't be opened again: {error}"));
        }
    }

    /// A signal to end: the server goes with this daemon, when it has no clients.
    async fn leave(&mut self) -> Parted {
        self.say("A signal to end");
        if self.send(&ToNode::Leave.encode(), None).await.is_ok() {
            let farewell = async {
                while let Ok(Some(Parcel { bytes, .. })) = self.link.receive().await {
                    if matches!(ToThin::decode(&bytes), Ok(ToThin::Ended(_))) {
                        break;
                    }
                }
            };
            // One that says nothing finds the conversation at its end.
            let _ = timeout(patient(FAREWELL), farewell).await;
        }
        Parted::End(SUCCESS)
    }

    /// Tries to join again; the status to end with when there is nothing to join.
    async fn join_again(&mut self) -> Option<u8> {
        self.say(&format!("The daemon of {} is gone, trying to join it again", self.node.place()));
        let give_up = Instant::now() + patient(REJOINING);
        let mut pause = FIRST_PAUSE;
        let mut told = String::new();
        loop {
            let attempt = async {
                sleep_until(Instant::now() + pause).await;
                // On one machine both may have the same file, which has changed since perhaps.
                self.node.join(self.directory.folder(), (self.replay)()).await
            };
            let joined = tokio::select! {
                joined = attempt => joined,
                told = self.signals.next() => {
                    if told == Told::ToEnd {
                        self.say("A signal to end");
                        return Some(SUCCESS);
                    }
                    self.reopen();
                    continue;
                }
            };
            match joined {
                Ok((link, name)) => {
                    self.link = link;
                    self.say(&format!("Joined the daemon of {} again as {name}", self.node.place()));
                    return None;
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != told {
                        self.say(&format!("Not joined yet: {error}"));
                        told = error;
                    }
                }
            }
            if Instant::now() >= give_up {
                self.say(&format!("Nobody to join for {} s", patient(REJOINING).as_secs()));
                // Nobody listens there any more, or nobody who could be joined, and what that one said is over.
                program_defaults::take_away(self.directory.folder());
                if self.directory.folder().has(CONTROL, Kind::Socket) {
                    let _ = self.directory.folder().remove(CONTROL);
                }
                return Some(FAILURE);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn say(log: &LogSink, line: &str) {
    log.control(std::process::id(), line);
}
