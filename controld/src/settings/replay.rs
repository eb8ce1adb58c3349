//! The table `[replay]`: what programs get that have the preload library and say nothing themselves, and what becomes of
//! the servers that they leave.

use crate::core::EndTainted;
use remps_proto::shim::{self, ProgramDefaults};
use serde::{Deserialize, Serialize};

/// The table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Replay {
    /// What is kept of them.
    pub keep: Keep,
    /// How they are recovered.
    pub recover: Recover,
    /// Whether a server that an exception has spoilt is ended before its clients have left it.
    pub end_tainted: EndTainted,
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

impl Replay {
    /// What is told to programs; `None` where they get what they would have had without this.
    pub(crate) fn defaults(self) -> Option<ProgramDefaults> {
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
        let is_said = (self.keep, self.recover) != (Keep::default(), Recover::default());
        is_said.then_some(ProgramDefaults { keep, recover })
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
                said.as_object_mut().and_then(|said| said.remove("end_tainted")).expect("a key of the daemon's own");
                assert_eq!(said, words);
            }
        }
        let own = Replay { end_tainted: EndTainted::Never, ..Replay::default() };
        assert_eq!((Replay::default().defaults(), own.defaults()), (None, None), "what is not theirs is not told");
    }
}
