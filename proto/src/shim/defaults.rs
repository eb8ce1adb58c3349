//! What the daemon says to programs that have the preload library and whose environment says nothing: what is kept of
//! them, and how they are recovered.
//!
//! The library has to decide at the first lookup of a function of the driver, when nothing may be waited for. So it is a
//! file in the pipe directory ([`DEFAULTS_NAME`]), which is there or not. One that is not written like this says nothing;
//! a line that is not known, as a later release may have one, is passed over.

use core::fmt;

/// Name of the file in the pipe directory.
pub const DEFAULTS_NAME: &str = "shim_defaults";
/// Largest such file, in bytes.
pub const MAX_DEFAULTS_BYTES: usize = 512;
/// The first line.
const HEADER: &str = "remps-shim-defaults 1";
const KEEP: &str = "keep=";
const RECOVER: &str = "recover=";

/// What is kept of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// Nothing.
    #[default]
    Nothing,
    /// Its device memory.
    Memory,
    /// That, and how everything else that it has can be made again.
    State,
}

/// Who is recovered, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recover {
    /// Nobody.
    #[default]
    Nobody,
    /// Whoever has lost its context.
    InPlace,
    /// The same, but not who has caused the fault itself.
    Bystander,
    /// Whoever has lost its context, by a spare copy of the driver where one is ready.
    Spare,
}

impl Keep {
    const ALL: [Self; 3] = [Self::Nothing, Self::Memory, Self::State];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Memory => "memory",
            Self::State => "state",
        }
    }
}

impl Recover {
    const ALL: [Self; 4] = [Self::Nobody, Self::InPlace, Self::Bystander, Self::Spare];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::InPlace => "in-place",
            Self::Bystander => "bystander",
            Self::Spare => "spare",
        }
    }
}

/// What a program gets that says nothing itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramDefaults {
    /// What is kept of it.
    pub keep: Keep,
    /// Whether it is recovered, which needs its state.
    pub recover: Recover,
}

impl ProgramDefaults {
    /// Reads the file; `None` for what is none, or has a value that is not known.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_DEFAULTS_BYTES)?;
        // One that was cut is not whole.
        let mut lines = text.strip_suffix('\n')?.lines();
        lines.next().filter(|line| *line == HEADER)?;
        let mut read = Self::default();
        for line in lines {
            if let Some(word) = line.strip_prefix(KEEP) {
                read.keep = Keep::ALL.into_iter().find(|keep| keep.word() == word)?;
            } else if let Some(word) = line.strip_prefix(RECOVER) {
                read.recover = Recover::ALL.into_iter().find(|recover| recover.word() == word)?;
            }
        }
        if read.recover != Recover::Nobody && read.keep != Keep::State { None } else { Some(read) }
    }
}

impl fmt::Display for ProgramDefaults {
    /// The file's content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keep, recover } = self;
        write!(f, "{HEADER}\n{KEEP}{}\n{RECOVER}{}\n", keep.word(), recover.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_and_recoveries_need_the_state() {
        for keep in Keep::ALL {
            for recover in Recover::ALL {
                let defaults = ProgramDefaults { keep, recover };
                let is_sound = keep == Keep::State || recover == Recover::Nobody;
                let read = ProgramDefaults::read(defaults.to_string().as_bytes());
                assert_eq!(read, is_sound.then_some(defaults));
            }
        }
    }

    #[test]
    fn what_is_written_otherwise_says_nothing() {
        let sound = "remps-shim-defaults 1\nkeep=state\nlater=1\nrecover=spare\n";
        let spare = ProgramDefaults { keep: Keep::State, recover: Recover::Spare };
        assert_eq!(ProgramDefaults::read(sound.as_bytes()), Some(spare));
        for odd in [
            "",
            "keep=state\n",
            "remps-shim-defaults 2\nkeep=state\n",
            "remps-shim-defaults 1\nkeep=everything\n",
            "remps-shim-defaults 1\nkeep=state\nrecover=sp",
            "remps-shim-defaults 1\nrecover=spare\n",
        ] {
            assert_eq!(ProgramDefaults::read(odd.as_bytes()), None, "{odd:?}");
        }
        let long = format!("{sound}{}\n", "#".repeat(MAX_DEFAULTS_BYTES));
        assert_eq!(ProgramDefaults::read(long.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_defaults_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = ProgramDefaults::read(&bytes);
        }
    }
}
