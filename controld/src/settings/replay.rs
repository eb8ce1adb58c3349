//! The table `[replay]`: what programs get that have the preload library and say nothing themselves, and what becomes of
//! the servers that they leave.

use super::faults::Faults;
use super::file::ConfigFile;
use super::parse::OVERRIDES;
use crate::core::{DEFAULT_BURIAL_HOLD, DomainMatch, EndTainted, forms};
use remps_proto::shim::{self, DefaultsFile, MOST_USERS, ProgramDefaults};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The keys of an override that are of this table.
pub(super) const OF_USERS: [&str; 2] = ["keep", "recover"];

/// The table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Replay {
    /// What is kept of them.
    pub keep: Keep,
    /// How they are recovered.
    pub recover: Recover,
    /// Whether a server that an exception has spoilt is ended before its clients have left it.
    pub end_tainted: EndTainted,
    /// How long nothing of such a server is buried on account of clients that recover.
    #[serde(with = "forms::seconds")]
    pub burial_hold: Duration,
}

impl Default for Replay {
    fn default() -> Self {
        let (keep, recover) = (Keep::default(), Recover::default());
        Self { keep, recover, end_tainted: EndTainted::default(), burial_hold: DEFAULT_BURIAL_HOLD }
    }
}

/// The words for [`shim::Keep`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keep {
    #[default]
    Nothing,
    Memory,
    State,
}

/// The words for [`shim::Recover`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Recover {
    #[default]
    Nobody,
    InPlace,
    Bystander,
    Spare,
}

/// What programs of some users get, by their numbers: the tables `[[domain]]` that say so.
pub(crate) type UserReplays = BTreeMap<u32, Replay>;

/// Whose programs an override speaks of, if it may.
pub(super) fn user_of(matching: &DomainMatch) -> Option<u32> {
    matching.uid.filter(|_| matching.label.is_none() && matching.cgroup.is_none())
}

/// Notes what an override says of programs. A program knows its user before it asks anybody, and nothing else that the
/// daemon goes by.
pub(super) fn note_user(
    name: &str,
    matching: &DomainMatch,
    says: &[&str],
    own: Replay,
    users: &mut UserReplays,
    faults: &mut Faults,
) {
    let Some(first) = says.first() else { return };
    let Some(uid) = user_of(matching) else {
        let what =
            "programs have it before they can ask who they are, so only a table that names a uid alone can say it";
        return faults.add(&format!("{name}.{first}"), what);
    };
    let mut own = own;
    // Who keeps less by its own word is not recovered by another's.
    if own.keep != Keep::State && !says.contains(&OF_USERS[1]) {
        own.recover = Recover::Nobody;
    }
    // Of two tables for the same clients the second is a fault of its own.
    users.entry(uid).or_insert(own);
}

/// What is wrong with that together.
pub(super) fn check(file: &ConfigFile, faults: &mut Faults) {
    let what = "who is to be recovered has its state kept: keep = \"state\"";
    let is_unsound = |replay: &Replay| replay.recover != Recover::Nobody && replay.keep != Keep::State;
    if is_unsound(&file.replay) {
        faults.add("replay.recover", what);
    }
    for (index, (matching, _)) in file.policy.domains.overrides.iter().enumerate() {
        if user_of(matching).and_then(|uid| file.user_replays.get(&uid)).is_some_and(is_unsound) {
            faults.add(&format!("{OVERRIDES}[{}].recover", index + 1), what);
        }
    }
    if file.user_replays.len() > MOST_USERS {
        let what =
            format!("programs of {} users have values of their own, and {MOST_USERS} may", file.user_replays.len());
        faults.add(OVERRIDES, what);
    }
}

/// What is told to programs of all users; `None` where they get what they would have had without this.
pub(super) fn told(all: Replay, users: &UserReplays, namespace: Option<u64>) -> Option<DefaultsFile> {
    if all.defaults().is_none() && users.is_empty() {
        return None;
    }
    let users = users.iter().map(|(uid, replay)| (*uid, replay.words())).collect();
    Some(DefaultsFile { all: all.words(), users, namespace })
}

impl Replay {
    /// What programs get; `None` where that is what they would have had without this.
    pub(crate) fn defaults(self) -> Option<ProgramDefaults> {
        let is_said = (self.keep, self.recover) != (Keep::default(), Recover::default());
        is_said.then(|| self.words())
    }

    /// What programs get, in the words of the library.
    pub(crate) fn words(self) -> ProgramDefaults {
        let keep = match self.keep {
            Keep::Nothing => shim::Keep::Nothing,
            Keep::Memory => shim::Keep::Memory,
            Keep::State => shim::Keep::State,
        };
        let recover = match self.recover {
            Recover::Nobody => shim::Recover::Nobody,
            Recover::InPlace => shim::Recover::InPlace,
            Recover::Bystander => shim::Recover::Bystander,
            Recover::Spare => shim::Recover::Spare,
        };
        ProgramDefaults { keep, recover }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_file_are_those_of_the_library() {
        for keep in [Keep::Memory, Keep::State] {
            for recover in [Recover::Nobody, Recover::InPlace, Recover::Bystander, Recover::Spare] {
                let replay = Replay { keep, recover, ..Replay::default() };
                let defaults = replay.defaults().expect("it is not the default");
                let words = serde_json::json!({"keep": defaults.keep.word(), "recover": defaults.recover.word()});
                let mut said = serde_json::to_value(replay).unwrap();
                for own in ["end_tainted", "burial_hold"] {
                    said.as_object_mut().and_then(|said| said.remove(own)).expect("a key of the daemon's own");
                }
                assert_eq!(said, words);
            }
        }
        let own = Replay { end_tainted: EndTainted::Never, burial_hold: Duration::ZERO, ..Replay::default() };
        assert_eq!((Replay::default().defaults(), own.defaults()), (None, None), "what is not theirs is not told");
    }
}
