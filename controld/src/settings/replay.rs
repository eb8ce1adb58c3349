//! The table `[replay]`: what programs get that have the preload library and say nothing themselves, and what becomes of
//! the servers that they leave.

use super::faults::Faults;
use super::file::ConfigFile;
use super::parse::OVERRIDES;
use crate::core::{DEFAULT_BURIAL_HOLD, EndTainted, forms};
use remps_proto::shim::{self, DefaultsFile, MAX_DEFAULTS_BYTES, ProgramDefaults};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The keys of an override that are of this table.
pub(super) const OF_TABLES: [&str; 2] = ["keep", "recover"];

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

/// What programs get of whom a table `[[domain]]` speaks, in the order of the tables; `None` where one says nothing of it.
pub(crate) type DomainReplays = Vec<Option<Replay>>;

/// What a table says of programs, with these keys of it.
pub(super) fn of_table(says: &[&str], own: Replay) -> Option<Replay> {
    let mut own = own;
    // Who keeps less by its own word is not recovered by another's.
    if own.keep != Keep::State && !says.contains(&OF_TABLES[1]) {
        own.recover = Recover::Nobody;
    }
    (!says.is_empty()).then_some(own)
}

/// What is wrong with that together.
pub(super) fn check(file: &ConfigFile, faults: &mut Faults) {
    let what = "who is to be recovered has its state kept: keep = \"state\"";
    let is_unsound = |replay: &Replay| replay.recover != Recover::Nobody && replay.keep != Keep::State;
    if is_unsound(&file.replay) {
        faults.add("replay.recover", what);
    }
    for (index, own) in file.domain_replays.iter().enumerate() {
        if own.as_ref().is_some_and(is_unsound) {
            faults.add(&format!("{OVERRIDES}[{}].recover", index + 1), what);
        }
    }
    let length = told(file, None, Some(u64::MAX), Some(u64::MAX)).map_or(0, |told| told.to_string().len());
    if length > MAX_DEFAULTS_BYTES {
        let what = format!(
            "programs are told of these tables up to the last with keep or recover, in {length} bytes, and have room for {MAX_DEFAULTS_BYTES}"
        );
        faults.add(OVERRIDES, what);
    }
}

/// What is told to programs of everybody, or of a claim that has something else where no table says anything; `None`
/// where they get what they would have had without this.
pub(super) fn told(
    file: &ConfigFile,
    claim: Option<ProgramDefaults>,
    users: Option<u64>,
    cgroups: Option<u64>,
) -> Option<DefaultsFile> {
    let all = claim.unwrap_or(file.replay.words());
    if all == ProgramDefaults::default() && file.domain_replays.iter().all(Option::is_none) {
        return None;
    }
    let tables = file.policy.domains.overrides.iter().map(|(matching, _)| matching.clone());
    let own = file.domain_replays.iter().map(|own| own.map(Replay::words));
    Some(DefaultsFile { all, domains: tables.zip(own).collect(), users, cgroups })
}

impl Replay {
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
                let defaults = replay.words();
                let words = serde_json::json!({"keep": defaults.keep.word(), "recover": defaults.recover.word()});
                let mut said = serde_json::to_value(replay).unwrap();
                for own in ["end_tainted", "burial_hold"] {
                    said.as_object_mut().and_then(|said| said.remove(own)).expect("a key of the daemon's own");
                }
                assert_eq!(said, words);
            }
        }
        let own = Replay { end_tainted: EndTainted::Never, burial_hold: Duration::ZERO, ..Replay::default() };
        let file = |replay| ConfigFile { replay, ..ConfigFile::default() };
        assert_eq!(told(&file(own), None, None, None), None, "what is not theirs is not told");
        assert_eq!(told(&file(Replay::default()), None, None, None), None);
    }
}
