//! Tells the cluster that the machine is a node of what a verdict means for it: Kubernetes Events on the pods that it
//! concerns ([`events`], [`api`]), and an event for NVSentinel ([`sentinel`]), which would otherwise take an application's
//! Xid for the node's. Off unless the operator says where to.
//!
//! ```text
//! core ─Announce─► driver ─[`Cluster::tell`], never waits─► queue of [`MOST_QUEUED`] ─► a thread of its own ─► peers
//! ```
//! Peers are over a network and may be slow, dead or hostile: the thread waits for each at most [`DEADLINE`] at a time and
//! [`TRIES`] times in all, what does not fit into the queue is counted and dropped, and neither the core nor the driver's
//! task ever waits. What can't be delivered is said once in [`TELLING`], and costs nothing else: journal and metrics have
//! everything. At the daemon's end the thread has [`FAREWELL`] for what is queued, and what it has not told by then is
//! counted in the log ([`Cluster::end`]).

mod api;
mod events;
mod limit;
mod sentinel;
#[cfg(test)]
mod tests;

use crate::core::Announcement;
use events::Event;
use limit::Limit;
use parking_lot::Mutex;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, oneshot};

/// Verdicts that wait to be told.
const MOST_QUEUED: usize = 256;
/// How long one peer is waited for at one time.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often a peer is tried.
const TRIES: u32 = 4;
/// Names that are tried for an Event.
const NAMES: u32 = 3;
/// Before the second time; then twice as long each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How often what could not be delivered is said.
const TELLING: Duration = Duration::from_secs(60);
/// How long the daemon's end waits for verdicts that are not told yet.
pub(crate) const FAREWELL: Duration = Duration::from_secs(10);
/// Victims that have an Event each. A server has some 60 clients.
const MOST_VICTIMS: usize = 64;

/// Where to tell what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The node's name in its cluster.
    pub node: String,
    /// The API server, where Events are wanted.
    pub api: Option<ApiServer>,
    /// NVSentinel's socket, where it is to be told.
    pub sentinel: Option<PathBuf>,
}

/// How the API server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiServer {
    pub host: String,
    pub port: u16,
    /// The file with the service account's token, which the kubelet renews.
    pub token: PathBuf,
    /// The file with the certificates that the server's is checked by.
    pub ca: PathBuf,
}

/// Why something was not delivered.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// It may go better the next time, and may have been done all the same.
    #[error("{0}")]
    Passing(String),
    /// It was not done, and may go better the next time.
    #[error("{0}")]
    Refused(String),
    /// Another object has the name.
    #[error("another object has each name that was tried")]
    Taken,
    /// It will not.
    #[error("{0}")]
    Lasting(String),
}

/// What became of what was to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told {
    pub delivered: u64,
    pub failed: u64,
    /// What there was no room for, and Events on a pod that has had too many.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counts {
    delivered: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    /// Verdicts that the thread has not done with.
    open: AtomicU64,
    /// What is still to be said in the log.
    remark: Mutex<Option<String>>,
}

/// Tells the cluster, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// driver --verdicts--> thread
    queue: Option<mpsc::Sender<(Announcement, SystemTime)>>,
    /// thread --its end--> driver
    ended_rx: Option<oneshot::Receiver<()>>,
    counts: Arc<Counts>,
}

impl Cluster {
    /// Begins a thread for it where there is anybody to tell.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn begin(config: Config) -> std::io::Result<Self> {
        Self::begin_with(config, Patience { deadline: DEADLINE, first_pause: FIRST_PAUSE })
    }

    fn begin_with(config: Config, patience: Patience) -> std::io::Result<Self> {
        if config.api.is_none() && config.sentinel.is_none() {
            return Ok(Self::default());
        }
        let counts = Arc::<Counts>::default();
        let (queue, queue_rx) = mpsc::channel(MOST_QUEUED);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let limit = Limit::default();
        let teller = Teller { config, patience, counts: Arc::clone(&counts), limit, said_at: None };
        let (ended_tx, ended_rx) = oneshot::channel();
        let run = move || {
            runtime.block_on(teller.run(queue_rx));
            // Nobody may wait for it.
            let _ = ended_tx.send(());
        };
        std::thread::Builder::new().name("cluster".to_owned()).spawn(run)?;
        Ok(Self { queue: Some(queue), ended_rx: Some(ended_rx), counts })
    }

    /// Has a verdict told. Never waits.
    pub(crate) fn tell(&self, announcement: Announcement) {
        let Some(queue) = &self.queue else {
            return;
        };
        // Before the thread can have done with it.
        self.counts.open.fetch_add(1, Ordering::Relaxed);
        if queue.try_send((announcement, SystemTime::now())).is_err() {
            self.counts.open.fetch_sub(1, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes nothing more, and waits until all is told, for `limit` at the most; gives a line for the log, if anything was
    /// not. The thread is left alone then, and ends with the process.
    pub(crate) async fn end(self, limit: Duration) -> Option<String> {
        let Self { queue, ended_rx, counts } = self;
        drop(queue);
        let is_over = tokio::time::timeout(limit, ended_rx?).await.is_ok();
        let remark = counts.remark.lock().take();
        let open = counts.open.load(Ordering::Acquire);
        let late = || {
            let verdicts = if open == 1 { "verdict" } else { "verdicts" };
            format!("{open} {verdicts} could not be told to the cluster in {} s at the end", limit.as_secs_f64())
        };
        if is_over { remark } else { Some(late()) }
    }

    /// What has become of it all; `None` where nobody is to be told.
    pub(crate) fn told(&self) -> Option<Told> {
        self.queue.as_ref()?;
        let Counts { delivered, failed, dropped, .. } = &*self.counts;
        let [delivered, failed, dropped] = [delivered, failed, dropped].map(|count| count.load(Ordering::Acquire));
        Some(Told { delivered, failed, dropped })
    }

    /// A line for the log, if something could not be delivered of which nothing was said yet.
    pub(crate) fn remark(&self) -> Option<String> {
        self.counts.remark.lock().take()
    }
}

/// How long peers are waited for.
#[derive(Debug, Clone, Copy)]
struct Patience {
    deadline: Duration,
    first_pause: Duration,
}

/// The thread's.
struct Teller {
    config: Config,
    patience: Patience,
    counts: Arc<Counts>,
    limit: Limit,
    said_at: Option<Instant>,
}

impl Teller {
    async fn run(mut self, mut queue: mpsc::Receiver<(Announcement, SystemTime)>) {
        while let Some((announcement, at)) = queue.recv().await {
            self.tell(&announcement, at).await;
            self.counts.open.fetch_sub(1, Ordering::Release);
        }
    }

    async fn tell(&mut self, announcement: &Announcement, at: SystemTime) {
        if let Some(socket) = self.config.sentinel.clone() {
            let message = sentinel::event(announcement, &self.config.node, at);
            let call = || sentinel::send(&socket, &message);
            let done = self.patience.tried(call).await;
            self.count("NVSentinel", done);
        }
        let Some(api) = self.config.api.clone() else {
            return;
        };
        for event in events::of(announcement, &self.config.node, at) {
            if !self.limit.allows(&event.pod, Instant::now()) {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let done = self.make(&api, event).await;
            self.count("the API server", done);
        }
    }

    /// Makes an Event, under another name where another object has its own.
    async fn make(&self, api: &ApiServer, mut event: Event) -> Result<(), Failure> {
        let mut done = Err(Failure::Taken);
        for number in 1..=NAMES {
            let may_be_made = Cell::new(false);
            done = self.patience.tried(|| api::post(api, &event, &may_be_made)).await;
            if !matches!(done, Err(Failure::Taken)) {
                break;
            }
            event.rename(number);
        }
        done
    }

    fn count(&mut self, whom: &str, done: Result<(), Failure>) {
        match done {
            Ok(()) => drop(self.counts.delivered.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                let is_time = self.said_at.is_none_or(|at| at.elapsed() >= TELLING);
                if is_time {
                    self.said_at = Some(Instant::now());
                    *self.counts.remark.lock() = Some(format!("{whom} can't be told of a verdict: {error}"));
                }
                // Last: whoever has seen the count finds the remark.
                self.counts.failed.fetch_add(1, Ordering::Release);
            }
        }
    }
}

impl Patience {
    /// Does something until it has worked, or can't, or was tried often enough.
    async fn tried<F: Future<Output = Result<(), Failure>>>(self, act: impl Fn() -> F) -> Result<(), Failure> {
        let mut pause = self.first_pause;
        for _ in 1..TRIES {
            match self.within_deadline(act()).await {
                Err(Failure::Passing(_) | Failure::Refused(_)) => {
                    tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
                }
                done => return done,
            }
            pause *= 2;
        }
        self.within_deadline(act()).await
    }

    async fn within_deadline(self, act: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        let late = |_| Err(Failure::Passing(format!("no answer in {:?}", self.deadline)));
        tokio::time::timeout(self.deadline, act).await.unwrap_or_else(late)
    }
}
