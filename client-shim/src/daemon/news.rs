//! What the daemon says of the server that this process is on: whether it is spoilt or gone, and whose fault it was.
//!
//! It is noted for the living copy of the driver: another copy may be on another server, of which the daemon is asked
//! anew ([`forget`]).

use std::{
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Capabilities, Part, ServerState};

use super::{
    connection::{Connection, Lost, PATIENCE},
    link::{linked, started},
};

/// How long a recovery waits for the daemon's word that a server is reaped. The daemon is its parent, so it knows within
/// moments of the end; this bounds only how long a program waits in vain.
const REAPING: Duration = Duration::from_secs(3);

/// What the daemon has said of the server that the living copy of the driver is on.
static SERVER: Mutex<Word> = Mutex::new(Word::NONE);
static SAID: Condvar = Condvar::new();

/// What was said of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    /// 0 for nothing.
    server: u64,
    state: ServerState,
    /// It is the server of the copy that lives: the first copy has had no other, and of a later one's it was said that
    /// it serves. Right after a recovery the daemon may still speak of the one before.
    is_its_own: bool,
    is_first_copy: bool,
}

impl Word {
    const NONE: Self = Self { server: 0, state: ServerState::NONE, is_its_own: false, is_first_copy: true };

    /// The copy's server is reaped. Until the copy is another one, nothing else is of interest: what the daemon says next
    /// is of the server that a spare copy is on.
    fn is_over(self) -> bool {
        self.is_its_own && self.state == ServerState::GONE
    }

    fn hear(&mut self, (server, state): (u64, ServerState)) {
        if !self.is_over() || server == self.server {
            let serves = state != ServerState::GONE || (self.is_its_own && server == self.server);
            *self = Self { server, state, is_its_own: self.is_first_copy || serves, ..*self };
        }
    }
}

/// Who is told how the server is, on the thread that hears it: it must not wait there.
pub(super) static LISTENER: OnceLock<fn(ServerState)> = OnceLock::new();

fn server() -> MutexGuard<'static, Word> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on this one is told. The first one stays.
pub(crate) fn listen(listener: fn(ServerState)) {
    let _the_same = LISTENER.set(listener);
    if let Some(link) = linked() {
        link.wake();
    }
}

pub(super) fn is_awaited() -> bool {
    LISTENER.get().is_some()
}

/// What the daemon has said of the server last; the number is 0 for nothing.
pub(crate) fn said() -> (u64, ServerState) {
    let word = *server();
    (word.server, word.state)
}

/// The living copy is another one: the daemon is told, and asked anew.
pub(crate) fn forget() {
    *server() = Word { is_first_copy: false, ..Word::NONE };
    if let Some(link) = started() {
        link.wake();
    }
}

/// Notes what the daemon says. That there is no server says nothing of the last one.
pub(super) fn hear(word: (u64, ServerState)) {
    if word.0 != 0 {
        server().hear(word);
        SAID.notify_all();
    }
    if let Some(listener) = LISTENER.get() {
        listener(word.1);
    }
}

/// Asks how the server is: once and for all where the daemon can do that. If the last one has ended since, that is what
/// it says first.
pub(super) fn inquire(connection: &mut Connection) -> Result<(), Lost> {
    let (server, _) = said();
    if connection.can(Capabilities::SUBSCRIPTIONS) {
        return connection.ask(Ask::Subscribe { server }, None).map(drop);
    }
    let watch = Ask::Watch { server, state: ServerState::HEALTHY, wait_ms: 0 };
    if let Some((Answer::Epoch { server, state, .. }, _)) = connection.ask(watch, None)?.pop() {
        hear((server, state));
    }
    Ok(())
}

/// What the daemon says now that this process has to do with the fault of its server.
pub(crate) fn part() -> Part {
    let (server, _) = said();
    // Asked as one that has not heard of any end, it tells of that server.
    let ask = Ask::Watch { server, state: ServerState::HEALTHY, wait_ms: 0 };
    let asked = started().filter(|_| server != 0).and_then(|link| link.ask_now(ask, Capabilities::NEWS, PATIENCE));
    match asked.and_then(|mut told| told.pop()) {
        Some((Answer::Epoch { server: of, part, .. }, _)) if of == server => part,
        _ => Part::UNKNOWN,
    }
}

/// Waits for the daemon's word that the server of the copy that has died is reaped; `false` if it does not come.
pub(crate) fn is_server_reaped() -> bool {
    let deadline = Instant::now() + REAPING;
    let mut word = server();
    while word.server != 0 && !word.is_over() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || started().is_none_or(|link| !link.progress().is_connected) {
            break;
        }
        word = SAID.wait_timeout(word, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    word.is_over()
}

#[cfg(test)]
mod tests {
    use super::{ServerState, Word};

    fn heard(mut word: Word, all: &[(u64, ServerState)]) -> (u64, bool) {
        all.iter().for_each(|one| word.hear(*one));
        (word.server, word.is_over())
    }

    #[test]
    fn the_end_of_the_copys_server_stands_whatever_is_said_of_the_next() {
        let (sound, spoilt, gone) = (ServerState::HEALTHY, ServerState::TAINTED, ServerState::GONE);
        let first = Word::NONE;
        assert_eq!(heard(first, &[(3, sound), (3, spoilt)]), (3, false));
        assert_eq!(heard(first, &[(3, sound), (3, gone), (4, sound)]), (3, true), "4 is the spare copy's");
        assert_eq!(heard(first, &[(3, gone), (4, sound), (4, gone)]), (3, true), "its end came before the link");
        assert_eq!(heard(first, &[(3, sound), (4, spoilt)]), (4, false));
    }

    #[test]
    fn the_end_of_the_server_before_says_nothing_of_the_copys() {
        let (sound, gone) = (ServerState::HEALTHY, ServerState::GONE);
        let later = Word { is_first_copy: false, ..Word::NONE };
        assert_eq!(heard(later, &[(3, gone)]), (3, false));
        assert_eq!(heard(later, &[(3, gone), (3, gone), (4, gone)]), (4, false), "who of them is not known");
        assert_eq!(heard(later, &[(3, gone), (4, sound)]), (4, false));
        assert_eq!(heard(later, &[(3, gone), (4, sound), (4, gone), (5, sound)]), (4, true));
    }
}
