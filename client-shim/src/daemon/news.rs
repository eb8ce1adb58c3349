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
    /// it serves.
    is_its_own: bool,
    is_first_copy: bool,
    /// The server of the copy before. Right after a recovery the daemon may still speak of that one; 0 when it was said
    /// to be sound, or nobody knows of one.
    before: u64,
    /// A server was given for a spare copy since this copy lives. So the daemon has known this copy's own by then.
    has_spare: bool,
}

impl Word {
    const NONE: Self = Self {
        server: 0,
        state: ServerState::NONE,
        is_its_own: false,
        is_first_copy: true,
        before: 0,
        has_spare: false,
    };

    /// The copy's server is reaped.
    fn is_over(self) -> bool {
        self.is_its_own && self.state == ServerState::GONE
    }

    /// Takes in what is said; whether it is said of this copy's server.
    fn hear(&mut self, (server, state): (u64, ServerState)) -> bool {
        let is_of_before = server == self.before && state != ServerState::HEALTHY;
        // The program has not gone on with the spare copy whose server is spoken of then.
        let is_of_the_spare = self.is_over() && self.has_spare && server != self.server;
        if is_of_before || is_of_the_spare {
            return false;
        }
        let serves = state != ServerState::GONE || (self.is_its_own && server == self.server);
        *self = Self { server, state, is_its_own: self.is_first_copy || serves, before: 0, ..*self };
        true
    }

    /// Of the next copy nothing is known yet.
    fn forget(&mut self) {
        *self = Self { is_first_copy: false, before: self.server, ..Self::NONE };
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
    server().forget();
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
    if word.0 != 0 {
        let is_of_this_copy = server().hear(word);
        SAID.notify_all();
        if !is_of_this_copy {
            return;
        }
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

/// Whether it is known to be reaped by now. Nobody is waited for.
pub(crate) fn is_server_known_to_be_reaped() -> bool {
    server().is_over()
}

#[cfg(test)]
mod tests {
    use super::{ServerState, Word};

    const SOUND: ServerState = ServerState::HEALTHY;
    const SPOILT: ServerState = ServerState::TAINTED;
    const GONE: ServerState = ServerState::GONE;

    fn heard(mut word: Word, all: &[(u64, ServerState)]) -> (u64, bool) {
        for one in all {
            let _is_of_this_copy = word.hear(*one);
        }
        (word.server, word.is_over())
    }

    /// The next copy, the one before having been on this server.
    fn later(before: u64) -> Word {
        let mut word = Word { server: before, state: SPOILT, ..Word::NONE };
        word.forget();
        word
    }

    #[test]
    fn the_end_of_the_copys_server_stands_whatever_is_said_of_the_next() {
        let first = Word { has_spare: true, ..Word::NONE };
        assert_eq!(heard(first, &[(3, SOUND), (3, SPOILT)]), (3, false));
        assert_eq!(heard(first, &[(3, SOUND), (3, GONE), (4, SOUND)]), (3, true), "4 is the spare copy's");
        assert_eq!(heard(first, &[(3, GONE), (4, SOUND), (4, GONE)]), (3, true), "its end came before the link");
        assert_eq!(heard(first, &[(3, SOUND), (4, SPOILT)]), (4, false));
        let second = Word { has_spare: true, ..later(3) };
        assert_eq!(heard(second, &[(4, SOUND), (4, GONE), (5, SOUND)]), (4, true));
    }

    #[test]
    fn nobody_is_told_how_the_server_of_another_copy_is() {
        let mut word = Word { has_spare: true, ..Word::NONE };
        assert!(word.hear((3, SOUND)) && word.hear((3, GONE)));
        assert!(!word.hear((4, SOUND)), "the program has not gone on with the copy that is there yet");
        word.forget();
        assert!(!word.hear((3, GONE)) && word.hear((4, SOUND)));
    }

    #[test]
    fn the_end_of_the_server_before_says_nothing_of_the_copys() {
        assert_eq!(heard(later(3), &[(3, SPOILT), (3, GONE)]), (0, false));
        assert_eq!(heard(later(3), &[(3, SPOILT), (3, GONE), (4, SOUND)]), (4, false));
        assert_eq!(heard(later(3), &[(3, GONE), (4, SOUND), (4, GONE)]), (4, true));
        // It was not known yet that the fault has hit it.
        assert_eq!(heard(later(3), &[(3, SOUND), (3, GONE), (4, SOUND)]), (4, false));
        // Nobody knows which one it was.
        assert_eq!(heard(later(0), &[(3, GONE)]), (3, false));
        assert_eq!(heard(later(0), &[(3, GONE), (4, GONE)]), (4, false));
        assert_eq!(heard(later(0), &[(3, GONE), (4, SOUND)]), (4, false));
    }

    #[test]
    fn a_copy_may_be_on_the_same_server_as_the_one_before() {
        assert_eq!(heard(later(3), &[(3, SOUND), (3, SPOILT)]), (3, false));
        assert_eq!(heard(later(3), &[(3, SOUND), (3, SPOILT), (3, GONE)]), (3, true));
    }
}
