//! What the daemon says to programs that have the preload library and whose environment says nothing: what is kept of
//! them, and how they are recovered.
//!
//! The library has to decide at the first lookup of a function of the driver, when nothing may be waited for. So it is a
//! file in the pipe directory ([`DEFAULTS_NAME`]), which is there or not. One that is not written like this says nothing;
//! a line that is not known, as a later release may have one, is passed over.
//!
//! ```text
//! remps-shim-defaults 1
//! keep=state
//! recover=in-place
//! users=4026531837
//! cgroups=4026531835
//! domain=nothing nobody⇥uid=1001
//! domain=-⇥label=batch⇥cgroup=/kubepods.slice
//! ```
//! Each `domain` is a table `[[domain]]` of the daemon's configuration, in its order: the first that fits a program counts,
//! and one with `-` says nothing of this, so that the program has what all have. Its parts are apart by a tab, which neither
//! a label nor a path in it has. Users' numbers and cgroups' paths are those of the daemon, whose namespaces the file names:
//! a program in another one has to know who it is there, and may not know. Where it hangs on that which table it is in, and
//! these do not all say the same, it has what all have. What a line for somebody else says spoils nobody's own.

mod read;

pub use read::{Found, Program};

use core::fmt;

use crate::who::Match;

/// Name of the file in the pipe directory.
pub const DEFAULTS_NAME: &str = "shim_defaults";
/// Largest such file, in bytes.
pub const MAX_DEFAULTS_BYTES: usize = 48 << 10;
/// The first line.
const HEADER: &str = "remps-shim-defaults 1";
const KEEP: &str = "keep=";
const RECOVER: &str = "recover=";
const USERS: &str = "users=";
const CGROUPS: &str = "cgroups=";
const DOMAIN: &str = "domain=";
/// What stands for the values of a table that says nothing of this.
const AS_ALL: &str = "-";
const APART: char = '\t';
const UID: &str = "uid=";
const LABEL: &str = "label=";
const CGROUP: &str = "cgroup=";

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

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|keep| keep.word() == word)
    }

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

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|recover| recover.word() == word)
    }

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
    /// Reads what [`Display`](fmt::Display) has written; `None` where that is no such thing, or makes no sense.
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        let (keep, recover) = words.split_once(' ')?;
        Self { keep: Keep::of(keep)?, recover: Recover::of(recover)? }.sound()
    }

    /// The same, if it makes sense.
    fn sound(self) -> Option<Self> {
        (self.recover == Recover::Nobody || self.keep == Keep::State).then_some(self)
    }
}

impl fmt::Display for ProgramDefaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.keep.word(), self.recover.word())
    }
}

/// The file's content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DefaultsFile {
    /// What programs get that no table says anything of.
    pub all: ProgramDefaults,
    /// The tables, in their order: whom each is for, and what these get, if it says so. What is in them has no control
    /// characters.
    pub domains: Vec<(Match, Option<ProgramDefaults>)>,
    /// The number of the user namespace that the users' numbers are of.
    pub users: Option<u64>,
    /// The number of the cgroup namespace that the cgroups' paths are of.
    pub cgroups: Option<u64>,
}

impl fmt::Display for DefaultsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProgramDefaults { keep, recover } = self.all;
        write!(f, "{HEADER}\n{KEEP}{}\n{RECOVER}{}\n", keep.word(), recover.word())?;
        // Behind the last that says something nothing hangs on which one it is.
        let said = self.domains.iter().rposition(|(_, own)| own.is_some()).map_or(0, |last| last + 1);
        let tables = &self.domains[..said];
        for (name, number) in [(USERS, self.users), (CGROUPS, self.cgroups)] {
            if let Some(number) = number.filter(|_| !tables.is_empty()) {
                writeln!(f, "{name}{number}")?;
            }
        }
        for (Match { uid, label, cgroup }, own) in tables {
            match own {
                Some(own) => write!(f, "{DOMAIN}{own}")?,
                None => write!(f, "{DOMAIN}{AS_ALL}")?,
            }
            if let Some(uid) = uid {
                write!(f, "{APART}{UID}{uid}")?;
            }
            for (name, value) in [(LABEL, label), (CGROUP, cgroup)] {
                if let Some(value) = value {
                    write!(f, "{APART}{name}{value}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
