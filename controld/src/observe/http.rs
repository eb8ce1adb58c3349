//! `/metrics`, `/livez`, `/readyz` and `/startupz` over HTTP, on a Unix socket or a loopback address.
//!
//! ```text
//! scraper ──GET──► one task a connection ──Question──► driver
//!                                        ◄──Vitals────
//! ```
//! | path | 200 when | else |
//! |---|---|---|
//! | `/livez` | the driver's loop has turned within [`ALIVE_WITHIN`]: it is asked, so an idle one is not woken for it | 503 |
//! | `/readyz` | a client can be admitted now ([`Snapshot::obstacles`](crate::core::picture::Snapshot::obstacles)) | 503 and why not |
//! | `/startupz` | always: nothing listens before the daemon serves | |
//! | `/metrics` | the driver answers: OpenMetrics for who accepts it, else Prometheus' text | 503 |
//!
//! Nothing is served unless `listen` is configured. A Unix socket is for the daemon's user and group alone (mode
//! 0660); a loopback address is open to every user of the machine, and in its answers are the names of all domains.
//!
//! # Hostile peers
//! The head of a request is read into [`MAX_HEAD`] bytes with at most [`MAX_HEADERS`] lines, and no body is. A
//! connection has one request and [`PEER_DEADLINE`]. At [`MAX_CONNECTIONS`] the oldest gives way to a newcomer, so that
//! those who say nothing keep no probe out. Whatever the number of requests, the driver is asked once in [`FRESH`].

mod answer;
mod listener;
mod request;
#[cfg(test)]
mod tests;

pub use listener::Endpoint;

use answer::respond;
use listener::Stream;
use request::{BadRequest, Request};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// Within which time the driver's loop must turn for the daemon to be alive.
pub(crate) const ALIVE_WITHIN: Duration = Duration::from_secs(5);
/// How old an answer of the driver may be.
pub(crate) const FRESH: Duration = Duration::from_millis(100);
/// How long one connection may take from its first to its last byte.
pub(crate) const PEER_DEADLINE: Duration = Duration::from_secs(10);
/// Connections at one time.
pub(crate) const MAX_CONNECTIONS: usize = 32;
/// Bytes of a request's head.
pub(crate) const MAX_HEAD: usize = 8 * 1024;
/// Header lines of a request.
pub(crate) const MAX_HEADERS: usize = 64;
/// Questions that may wait for the driver: those of one asker.
const QUESTIONS: usize = 1;

/// What the driver is asked. It answers by sending, and need not care whether anybody still waits.
#[derive(Debug)]
pub(crate) struct Question {
    /// Whether the metrics are wanted too.
    pub metrics: bool,
    /// driver --vitals--> connection
    pub vitals_tx: oneshot::Sender<Vitals>,
}

/// The driver's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Vitals {
    /// What keeps a client from being admitted now.
    pub obstacles: Vec<String>,
    /// The metrics in OpenMetrics' text, if they were wanted.
    pub metrics: Option<String>,
}

/// Asks the driver, for all connections.
#[derive(Debug)]
struct Asker {
    /// connections --questions--> driver
    questions_tx: mpsc::Sender<Question>,
    alive_within: Duration,
    last: Mutex<Option<(Instant, Option<Arc<Vitals>>)>>,
}

impl Asker {
    /// The driver's answer, a fresh one; `None` when it does not answer in time.
    async fn ask(&self, metrics: bool) -> Option<Arc<Vitals>> {
        let mut last = self.last.lock().await;
        if let Some((at, vitals)) = &*last
            && at.elapsed() < FRESH
            && vitals.as_ref().is_none_or(|vitals| vitals.metrics.is_some() || !metrics)
        {
            return vitals.clone();
        }
        let asked = async {
            let (vitals_tx, vitals_rx) = oneshot::channel();
            self.questions_tx.send(Question { metrics, vitals_tx }).await.ok()?;
            vitals_rx.await.ok()
        };
        let vitals = timeout(self.alive_within, asked).await.ok().flatten().map(Arc::new);
        *last = Some((Instant::now(), vitals.clone()));
        vitals
    }
}

/// Serves an endpoint until the task is dropped; gives the questions that the driver must answer.
///
/// Needs a runtime. The endpoint's file is removed when the returned task ends.
#[must_use = "the questions must be answered"]
pub(crate) fn serve(endpoint: Endpoint) -> (AbortHandle, mpsc::Receiver<Question>) {
    serve_within(endpoint, ALIVE_WITHIN, PEER_DEADLINE)
}

fn serve_within(
    endpoint: Endpoint,
    alive_within: Duration,
    peer_deadline: Duration,
) -> (AbortHandle, mpsc::Receiver<Question>) {
    // connections --questions--> driver
    let (questions_tx, questions_rx) = mpsc::channel(QUESTIONS);
    let asker = Arc::new(Asker { questions_tx, alive_within, last: Mutex::new(None) });
    let task = tokio::spawn(async move {
        let mut connections: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let stream = endpoint.accept().await;
            connections.retain(|connection| !connection.is_finished());
            if connections.len() >= MAX_CONNECTIONS
                && let Some(oldest) = connections.pop_front()
            {
                oldest.abort();
            }
            let asker = asker.clone();
            connections.push_back(tokio::spawn(connection(stream, asker, peer_deadline)).abort_handle());
        }
    });
    (task.abort_handle(), questions_rx)
}

async fn connection(mut stream: Stream, asker: Arc<Asker>, deadline: Duration) {
    let conversation = async {
        let mut head = Vec::new();
        let request = read_request(&mut stream, &mut head).await?;
        let response = respond(&request, async |metrics| asker.ask(metrics).await).await;
        stream.write_all(&response).await?;
        stream.shutdown().await
    };
    // Whoever asked sees for himself that there is no answer.
    let _ = timeout(deadline, conversation).await;
}

/// Reads until a request's head is whole or can't become one.
async fn read_request(stream: &mut Stream, head: &mut Vec<u8>) -> std::io::Result<Result<Request, BadRequest>> {
    loop {
        match Request::parse(head) {
            Ok(Some(request)) => return Ok(Ok(request)),
            Ok(None) if head.len() >= MAX_HEAD => return Ok(Err(BadRequest::TooLong)),
            Ok(None) => {}
            Err(bad) => return Ok(Err(bad)),
        }
        let mut piece = [0; 1024];
        let room = piece.len().min(MAX_HEAD - head.len());
        match stream.read(&mut piece[..room]).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&piece[..count]),
        }
    }
}
