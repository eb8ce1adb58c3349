//! What the daemon says of the server that this process is on: whether it is spoilt or gone, and whose fault it was.
//!
//! It is noted for the living copy of the driver: another copy may be on another server, of which the daemon is asked
//! anew ([`forget`]).

mod word;

use std::{
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Capabilities, Part, ServerState};

use super::{
    connection::{Connection, Lost, PATIENCE},
    link::{Asked, Link, linked, started},
};
pub(crate) use word::SpareServer;
use word::Word;

/// How long a recovery waits for the daemon's word that a server is reaped. The daemon is its parent, so it knows within
/// moments of the end; this bounds only how long a program waits in vain.
const REAPING: Duration = Duration::from_secs(3);

/// What the daemon has said of the server that the living copy of the driver is on.
static SERVER: Mutex<Word> = Mutex::new(Word::NONE);
static SAID: Condvar = Condvar::new();

/// Who is told how the server of a copy is, on the thread that hears it: it must not wait there. Another copy may live by
/// then.
type Listener = fn(ServerState, u64);

pub(super) static LISTENER: OnceLock<Listener> = OnceLock::new();

fn server() -> MutexGuard<'static, Word> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on this one is told. The first one stays.
pub(crate) fn listen(listener: Listener) {
    let _the_same = LISTENER.set(listener);
    if let Some(link) = linked() {
        link.wake();
    }
}

pub(super) fn is_awaited() -> bool {
    LISTENER.get().is_some()
}

/// The copy of the driver that is spoken of, by its number among those that have lived.
pub(super) fn living() -> u64 {
    server().of
}

/// What the daemon has said of the server last; the number is 0 for nothing.
pub(crate) fn said() -> (u64, ServerState) {
    let word = *server();
    (word.server, word.state)
}

/// Copy `of` lives now, one that stood by where a server is given for it. The one before was on server `before`, 0 where
/// nobody knows. The daemon is told, and asked anew.
pub(crate) fn forget(of: u64, before: u64, spare: Option<SpareServer>) {
    server().forget(of, before, spare);
    if let Some(link) = started() {
        link.wake();
    }
}

/// The daemon has given a server for a spare copy.
pub(super) fn has_spare() {
    server().has_spare = true;
}

/// Notes what the daemon says. That there is no server says nothing of the last one. Nobody is told that another copy's
/// server is sound: this one's is gone all the same.
pub(super) fn hear(word: (u64, ServerState)) {
    let (of, is_news) = {
        let mut server = server();
        (server.of, word.0 == 0 || server.hear(word))
    };
    tell(word.1, of, is_news);
}

/// The same of an answer that was asked for when copy `of` lived.
fn learn(word: (u64, ServerState), of: u64) {
    let is_news = {
        let mut server = server();
        server.of == of && (server.learn(word) || word.0 == 0)
    };
    tell(word.1, of, is_news);
}

fn tell(state: ServerState, of: u64, is_news: bool) {
    SAID.notify_all();
    if let Some(listener) = LISTENER.get().filter(|_| is_news) {
        listener(state, of);
    }
}

/// Asks how the server is: once and for all where the daemon can do that. If the last one has ended since, that is what
/// it says first. What is said unasked has no number, so where it matters since when it is true an answer is asked for.
pub(super) fn inquire(connection: &mut Connection) -> Result<(), Lost> {
    let word = *server();
    let may_subscribe = connection.can(Capabilities::SUBSCRIPTIONS);
    if word.is_to_be_asked() || !may_subscribe {
        let watch = Ask::Watch { server: word.server, state: ServerState::HEALTHY, wait_ms: 0 };
        if let Some((Answer::Epoch { server, state, .. }, _)) = connection.ask(watch, None)?.pop() {
            learn((server, state), word.of);
        }
    }
    if may_subscribe {
        let (server, _) = said();
        connection.ask(Ask::Subscribe { server }, None)?;
    }
    Ok(())
}

/// The daemon is asked what this process has to do with the fault of its server.
#[derive(Debug)]
pub(crate) struct PartAsked {
    server: u64,
    asked: Option<Asked>,
    known: Option<Part>,
}

/// Begins to ask that.
pub(crate) fn ask_part() -> PartAsked {
    let (server, _) = said();
    PartAsked::over(started().filter(|_| server != 0), server)
}

impl PartAsked {
    /// Asked of the server of that number, if there is a link.
    pub(crate) fn over(link: Option<&Link>, server: u64) -> Self {
        // Asked as one that has not heard of any end, it tells of that server.
        let ask = Ask::Watch { server, state: ServerState::HEALTHY, wait_ms: 0 };
        let asked = link.map(|link| link.begin(ask, Capabilities::NEWS, PATIENCE));
        Self { server, known: asked.is_none().then_some(Part::UNKNOWN), asked }
    }

    /// What it says, waited for so long at most; `None` if it may still say something.
    pub(crate) fn within(&mut self, limit: Duration) -> Option<Part> {
        if let Some(asked) = &self.asked
            && let Some(answers) = asked.within(limit)
        {
            self.known = Some(match answers.and_then(|mut told| told.pop()) {
                Some((Answer::Epoch { server: of, part, .. }, _)) if of == self.server => part,
                _ => Part::UNKNOWN,
            });
            self.asked = None;
        }
        self.known
    }

    /// What it says, waited for as long as an answer may take.
    pub(crate) fn answer(&mut self) -> Part {
        self.within(PATIENCE).unwrap_or(Part::UNKNOWN)
    }
}

/// Waits for the daemon's word that the server of the copy that has died is reaped; `false` if it does not come.
pub(crate) fn is_server_reaped() -> bool {
    let deadline = Instant::now() + REAPING;
    let mut word = server();
    while (word.server != 0 || word.is_to_be_asked()) && !word.is_over() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || started().is_none_or(|link| !link.progress().is_connected) {
            break;
        }
        word = SAID.wait_timeout(word, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    word.is_over()
}

/// Whether this one is known by now to have been the dead copy's and to be reaped. Nobody is waited for.
pub(crate) fn is_known_to_be_reaped(of: u64) -> bool {
    let word = *server();
    word.is_over() && word.server == of
}
