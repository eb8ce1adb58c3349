//! What the daemon has said of one copy's server, and what of it is believed.
//!
//! | the copy that lives | believed |
//! |---|---|
//! | the process's first | whatever is said, but for the server of a spare copy once its own is gone |
//! | one that stood by | what is said of the server that was given for it |
//! | one that was made anew | what the daemon answers when it is asked about it, and says from then on, but for the end of the server before |
//!
//! The daemon answers of the server that a process has, or has had last. What it says unasked has no number that would tell what was
//! said before from what is said now.

use remps_proto::shim::ServerState;

/// What was said of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Of which copy of the driver, by its number among those that have lived.
    pub(super) of: u64,
    /// 0 for nothing.
    pub(super) server: u64,
    pub(super) state: ServerState,
    /// It is the server of the copy that lives: the first copy has had no other, a spare copy has the one that was given
    /// for it, and of a later one's it was said that it serves.
    is_its_own: bool,
    copy: Living,
    /// A server was given for a spare copy since this copy lives. So the daemon has known this copy's own by then.
    pub(super) has_spare: bool,
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
    pub(super) const NONE: Self =
        Self { of: 0, server: 0, state: ServerState::NONE, is_its_own: false, copy: Living::First, has_spare: false };

    /// The copy's server is reaped.
    pub(super) fn is_over(self) -> bool {
        self.is_its_own && self.state == ServerState::GONE
    }

    /// Takes in what is said; whether it is said of this copy's server.
    pub(super) fn hear(&mut self, (server, state): (u64, ServerState)) -> bool {
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
    pub(super) fn is_to_be_asked(self) -> bool {
        matches!(self.copy, Living::Fresh { is_asked: false, .. })
    }

    /// Takes in an answer; whether it is of this copy's server. The daemon tells of the server that the process has had last,
    /// which is the copy's, since it had its contexts before it was asked: also where that server is reaped by then.
    pub(super) fn learn(&mut self, word: (u64, ServerState)) -> bool {
        let Living::Fresh { is_asked: false, before } = self.copy else { return self.hear(word) };
        self.copy = Living::Fresh { before, is_asked: true };
        let is_of_this_copy = word.0 != 0 && self.hear(word);
        self.is_its_own |= is_of_this_copy && before != 0 && word.0 != before;
        is_of_this_copy
    }

    /// Copy `of` lives, one that stood by where a server is given for it. Nothing was said of it yet.
    pub(super) fn forget(&mut self, of: u64, before: u64, spare: Option<SpareServer>) {
        let copy = spare.map_or(Living::Fresh { before, is_asked: false }, Living::Spare);
        *self = match spare {
            Some(SpareServer::Number(server)) => Self { of, server, is_its_own: true, copy, ..Self::NONE },
            Some(SpareServer::AnotherDaemons) | None => Self { of, copy, ..Self::NONE },
        };
    }
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
