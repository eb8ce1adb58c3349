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
    /// Of which copy of the driver, by its number among those that have lived.
    of: u64,
    /// 0 for nothing.
    server: u64,
    state: ServerState,
    /// It is the server of the copy that lives: the first copy has had no other, a spare copy has the one that was given
    /// for it, and of a later one's it was said that it serves.
    is_its_own: bool,
    copy: Living,
    /// A server was given for a spare copy since this copy lives. So the daemon has known this copy's own by then.
    has_spare: bool,
}

/// What is known of the copy that lives without the daemon's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Living {
    /// The process's first.
    First,
    /// One that was made anew.
    Fresh {
        /// The server of the copy before. Right after a recovery the daemon may still speak of that one; 0 when it was
        /// said to be sound, or nobody knows of one.
        before: u64,
        /// The daemon has answered a question that was put since it lives. What it had said before that may be read only now,
        /// and is of another copy.
        is_asked: bool,
    },
    /// One that stood by. Until the daemon knows that the program has gone on with it, it speaks of another server.
    Spare(SpareServer),
}

/// Where a spare copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpareServer {
    /// On the server of this number, which no other server has had.
    Number(u64),
    /// On one of another daemon, of which this one cannot speak. Only tests do that.
    AnotherDaemons,
}

impl Word {
    const NONE: Self =
        Self { of: 0, server: 0, state: ServerState::NONE, is_its_own: false, copy: Living::First, has_spare: false };

    /// The copy's server is reaped.
    fn is_over(self) -> bool {
        self.is_its_own && self.state == ServerState::GONE
    }

    /// Takes in what is said; whether it is said of this copy's server.
    fn hear(&mut self, (server, state): (u64, ServerState)) -> bool {
        let is_of_another = match self.copy {
            Living::First => false,
            Living::Fresh { is_asked: false, .. } => true,
            Living::Fresh { before, .. } => server == before && state != ServerState::HEALTHY,
            Living::Spare(its) => its != SpareServer::Number(server),
        };
        // The program has not gone on with the spare copy whose server is spoken of then.
        let is_of_the_spare = self.is_over() && self.has_spare && server != self.server;
        if is_of_another || is_of_the_spare {
            return false;
        }
        let serves = state != ServerState::GONE || (self.is_its_own && server == self.server);
        let (copy, is_its_own) = match self.copy {
            Living::Fresh { is_asked, .. } => (Living::Fresh { before: 0, is_asked }, serves),
            known @ (Living::First | Living::Spare(_)) => (known, true),
        };
        *self = Self { server, state, is_its_own, copy, ..*self };
        true
    }

    /// Whether the daemon was not asked about this copy yet.
    fn is_to_be_asked(self) -> bool {
        matches!(self.copy, Living::Fresh { is_asked: false, .. })
    }

    /// Takes in an answer; whether it is of this copy's server. The daemon tells of the server that the process has had last,
    /// which is the copy's, since it had its contexts before it was asked: also where that server is reaped by then.
    fn learn(&mut self, word: (u64, ServerState)) -> bool {
        let Living::Fresh { is_asked: false, before } = self.copy else { return self.hear(word) };
        self.copy = Living::Fresh { before, is_asked: true };
        let is_of_this_copy = word.0 != 0 && self.hear(word);
        self.is_its_own |= is_of_this_copy && before != 0 && word.0 != before;
        is_of_this_copy
    }

    /// Copy `of` lives, one that stood by where a server is given for it. Nothing was said of it yet.
    fn forget(&mut self, of: u64, before: u64, spare: Option<SpareServer>) {
        let copy = spare.map_or(Living::Fresh { before, is_asked: false }, Living::Spare);
        *self = match spare {
            Some(SpareServer::Number(server)) => Self { of, server, is_its_own: true, copy, ..Self::NONE },
            Some(SpareServer::AnotherDaemons) | None => Self { of, copy, ..Self::NONE },
        };
    }
}

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

#[cfg(test)]
mod tests {
    use super::{Living, ServerState, SpareServer, Word};

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
        word.forget(1, before, None);
        word
    }

    /// The first of these is an answer to a question about that copy.
    fn learnt(mut word: Word, all: &[(u64, ServerState)]) -> (u64, bool) {
        let (first, others) = all.split_first().unwrap();
        let _is_of_this_copy = word.learn(*first);
        heard(word, others)
    }

    #[test]
    fn the_end_of_the_copys_server_stands_whatever_is_said_of_the_next() {
        let first = Word { has_spare: true, ..Word::NONE };
        assert_eq!(heard(first, &[(3, SOUND), (3, SPOILT)]), (3, false));
        assert_eq!(heard(first, &[(3, SOUND), (3, GONE), (4, SOUND)]), (3, true), "4 is the spare copy's");
        assert_eq!(heard(first, &[(3, GONE), (4, SOUND), (4, GONE)]), (3, true), "its end came before the link");
        assert_eq!(heard(first, &[(3, SOUND), (4, SPOILT)]), (4, false));
        let second = Word { has_spare: true, ..later(3) };
        assert_eq!(learnt(second, &[(4, SOUND), (4, GONE), (5, SOUND)]), (4, true));
    }

    #[test]
    fn nobody_is_told_how_the_server_of_another_copy_is() {
        let mut word = Word { has_spare: true, ..Word::NONE };
        assert!(word.hear((3, SOUND)) && word.hear((3, GONE)));
        assert!(!word.hear((4, SOUND)), "the program has not gone on with the copy that is there yet");
        word.forget(1, 3, Some(SpareServer::Number(4)));
        assert!(!word.hear((3, GONE)) && word.hear((4, SOUND)));
    }

    /// A call may find a fault out before the daemon hears of it, which then speaks of the dead copy's server as before.
    #[test]
    fn a_spare_copy_that_lives_hears_of_its_own_server_alone() {
        for mut word in [Word::NONE, Word { server: 3, state: SOUND, has_spare: true, ..Word::NONE }, later(2)] {
            word.forget(1, 3, Some(SpareServer::Number(4)));
            assert_eq!((word.server, word.is_over()), (4, false), "it is known before anything is said");
            for state in [SOUND, SPOILT, GONE] {
                assert!(!word.hear((3, state)), "{state:?}");
            }
            assert_eq!((word.server, word.is_over()), (4, false));
            assert!(word.hear((4, SPOILT)) && word.hear((4, GONE)));
            assert!(word.is_over(), "{word:?}");
        }
    }

    #[test]
    fn no_daemon_speaks_of_a_copy_that_stands_with_another_one() {
        let mut word = Word { server: 3, state: SOUND, ..Word::NONE };
        word.forget(1, 3, Some(SpareServer::AnotherDaemons));
        assert!(!word.hear((3, SOUND)) && !word.hear((3, SPOILT)) && !word.hear((4, GONE)));
        assert_eq!((word.server, word.copy), (0, Living::Spare(SpareServer::AnotherDaemons)));
        word.forget(2, 0, None);
        assert!(word.learn((5, SOUND)), "a fresh copy is on a server of this one again");
    }

    #[test]
    fn the_end_of_the_server_before_says_nothing_of_the_copys() {
        assert_eq!(learnt(later(3), &[(3, SPOILT), (3, GONE)]), (0, false));
        assert_eq!(learnt(later(3), &[(3, SPOILT), (3, GONE), (4, SOUND)]), (4, false));
        assert_eq!(learnt(later(3), &[(3, GONE), (4, SOUND), (4, GONE)]), (4, true));
        // It was not known yet that the fault has hit it.
        assert_eq!(learnt(later(3), &[(3, SOUND), (3, GONE), (4, SOUND)]), (4, false));
        // Nobody knows which one it was.
        assert_eq!(learnt(later(0), &[(3, GONE)]), (3, false));
        assert_eq!(learnt(later(0), &[(3, GONE), (4, GONE)]), (4, false));
        assert_eq!(learnt(later(0), &[(3, GONE), (4, SOUND)]), (4, false));
    }

    /// What is read late may have been said long ago.
    #[test]
    fn nothing_is_heard_of_a_fresh_copy_before_an_answer_about_it() {
        assert_eq!(heard(later(3), &[(3, SOUND), (3, GONE), (4, SOUND), (4, GONE)]), (0, false));
        let mut word = later(3);
        assert!(word.is_to_be_asked());
        assert!(!word.hear((3, SOUND)) && !word.learn((0, ServerState::NONE)));
        assert!(!word.is_to_be_asked() && word.hear((4, SOUND)), "nobody knew of it yet");
    }

    #[test]
    fn the_end_of_a_fresh_copys_server_is_known_where_it_came_before_the_first_question() {
        assert_eq!(learnt(later(3), &[(4, GONE)]), (4, true));
        assert_eq!(learnt(later(3), &[(4, SPOILT), (4, GONE)]), (4, true));
    }

    #[test]
    fn a_copy_may_be_on_the_same_server_as_the_one_before() {
        assert_eq!(learnt(later(3), &[(3, SOUND), (3, SPOILT)]), (3, false));
        assert_eq!(learnt(later(3), &[(3, SOUND), (3, SPOILT), (3, GONE)]), (3, true));
    }
}
