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
//! namespace=4026531837
//! user=1001 nothing nobody
//! ```
//! A user's line goes before what all have. His number is the daemon's, whose user namespace the file names: who is in
//! another one has to know who he is there. What a line for somebody else says spoils nobody's own.

use core::fmt;
use std::collections::BTreeMap;

/// Name of the file in the pipe directory.
pub const DEFAULTS_NAME: &str = "shim_defaults";
/// Largest such file, in bytes.
pub const MAX_DEFAULTS_BYTES: usize = 48 << 10;
/// Most users that it speaks of.
pub const MOST_USERS: usize = 1024;
/// The first line.
const HEADER: &str = "remps-shim-defaults 1";
const KEEP: &str = "keep=";
const RECOVER: &str = "recover=";
const NAMESPACE: &str = "namespace=";
const USER: &str = "user=";

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
    /// Reads from the file what a program of one user gets; `None` for what is no such file, or has a value for it that is
    /// not known. Who the user is, as a number of this user namespace, is asked only where the file tells users apart, and
    /// where that is not known he has what all have.
    #[must_use]
    pub fn read(bytes: &[u8], user: impl FnOnce(Option<u64>) -> Option<u32>) -> Option<Self> {
        let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_DEFAULTS_BYTES)?;
        // One that was cut is not whole.
        let mut lines = text.strip_suffix('\n')?.lines();
        lines.next().filter(|line| *line == HEADER)?;
        let mut read = Self::default();
        let (mut namespace, mut users) = (None, Vec::new());
        for line in lines {
            if let Some(word) = line.strip_prefix(KEEP) {
                read.keep = Keep::of(word)?;
            } else if let Some(word) = line.strip_prefix(RECOVER) {
                read.recover = Recover::of(word)?;
            } else if let Some(number) = line.strip_prefix(NAMESPACE) {
                namespace = number.parse().ok();
            } else if let Some(said) = line.strip_prefix(USER) {
                users.push(said);
            }
        }
        if !users.is_empty()
            && let Some(user) = user(namespace).map(|user| user.to_string())
            && let Some(own) = users.into_iter().find(|said| said.split(' ').next() == Some(&user))
        {
            let mut words = own.split(' ').skip(1);
            read = Self { keep: Keep::of(words.next()?)?, recover: Recover::of(words.next()?)? };
        }
        if read.recover != Recover::Nobody && read.keep != Keep::State { None } else { Some(read) }
    }
}

/// The file's content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DefaultsFile {
    /// What programs of everybody get.
    pub all: ProgramDefaults,
    /// What those of these users get in its place.
    pub users: BTreeMap<u32, ProgramDefaults>,
    /// The number of the user namespace that the users' numbers are of.
    pub namespace: Option<u64>,
}

impl fmt::Display for DefaultsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProgramDefaults { keep, recover } = self.all;
        write!(f, "{HEADER}\n{KEEP}{}\n{RECOVER}{}\n", keep.word(), recover.word())?;
        if let Some(number) = self.namespace.filter(|_| !self.users.is_empty()) {
            writeln!(f, "{NAMESPACE}{number}")?;
        }
        for (user, ProgramDefaults { keep, recover }) in &self.users {
            writeln!(f, "{USER}{user} {} {}", keep.word(), recover.word())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPARE: ProgramDefaults = ProgramDefaults { keep: Keep::State, recover: Recover::Spare };

    fn nobody(_: Option<u64>) -> Option<u32> {
        None
    }

    #[test]
    fn what_is_written_is_read_and_recoveries_need_the_state() {
        for keep in Keep::ALL {
            for recover in Recover::ALL {
                let defaults = ProgramDefaults { keep, recover };
                let is_sound = keep == Keep::State || recover == Recover::Nobody;
                let file = DefaultsFile { all: defaults, ..DefaultsFile::default() };
                let read = ProgramDefaults::read(file.to_string().as_bytes(), |_| panic!("nobody's name is in it"));
                assert_eq!(read, is_sound.then_some(defaults));
                let file = DefaultsFile { users: BTreeMap::from([(7, defaults)]), ..DefaultsFile::default() };
                let read = ProgramDefaults::read(file.to_string().as_bytes(), |_| Some(7));
                assert_eq!(read, is_sound.then_some(defaults));
            }
        }
    }

    #[test]
    fn a_users_line_goes_before_what_all_have_and_is_for_nobody_else() {
        let users = BTreeMap::from([(1001, ProgramDefaults::default()), (100, SPARE), (u32::MAX - 1, SPARE)]);
        let all = ProgramDefaults { keep: Keep::Memory, recover: Recover::Nobody };
        let text = DefaultsFile { all, users: users.clone(), namespace: Some(17) }.to_string();
        for (user, wanted) in users {
            assert_eq!(ProgramDefaults::read(text.as_bytes(), |_| Some(user)), Some(wanted), "{user}");
        }
        // Numbers that are parts of one another, and a user of whom nobody knows who he is.
        for other in [Some(10), Some(1), Some(0), Some(10010), None] {
            assert_eq!(ProgramDefaults::read(text.as_bytes(), |_| other), Some(all), "{other:?}");
        }
        let mut asked = None;
        let _ = ProgramDefaults::read(text.as_bytes(), |namespace| {
            asked = namespace;
            None
        });
        assert_eq!(asked, Some(17));
        // Words of a later release for somebody else are his.
        let later = "remps-shim-defaults 1\nkeep=memory\nrecover=nobody\nuser=7 more words\nuser=8 state spare\n";
        assert_eq!(ProgramDefaults::read(later.as_bytes(), |_| Some(8)), Some(SPARE));
        assert_eq!(ProgramDefaults::read(later.as_bytes(), |_| Some(9)), Some(all));
        assert_eq!(ProgramDefaults::read(later.as_bytes(), |_| Some(7)), None);
    }

    #[test]
    fn a_file_with_as_many_users_as_there_may_be_is_read() {
        let longest = ProgramDefaults { keep: Keep::Nothing, recover: Recover::Bystander };
        let many = u32::try_from(MOST_USERS).expect("a small number");
        let users = (u32::MAX - many..u32::MAX).map(|user| (user, longest)).collect();
        let text = DefaultsFile { all: SPARE, users, namespace: Some(u64::MAX) }.to_string();
        assert_eq!(ProgramDefaults::read(text.as_bytes(), nobody), Some(SPARE), "{} bytes", text.len());
    }

    #[test]
    fn what_is_written_otherwise_says_nothing() {
        let sound = "remps-shim-defaults 1\nkeep=state\nlater=1\nrecover=spare\n";
        assert_eq!(ProgramDefaults::read(sound.as_bytes(), nobody), Some(SPARE));
        for odd in [
            "",
            "keep=state\n",
            "remps-shim-defaults 2\nkeep=state\n",
            "remps-shim-defaults 1\nkeep=everything\n",
            "remps-shim-defaults 1\nkeep=state\nrecover=sp",
            "remps-shim-defaults 1\nrecover=spare\n",
            "remps-shim-defaults 1\nuser=5\n",
            "remps-shim-defaults 1\nuser=5 state\n",
            "remps-shim-defaults 1\nuser=5 memory spare\n",
        ] {
            assert_eq!(ProgramDefaults::read(odd.as_bytes(), |_| Some(5)), None, "{odd:?}");
        }
        let long = format!("{sound}{}\n", "#".repeat(MAX_DEFAULTS_BYTES));
        assert_eq!(ProgramDefaults::read(long.as_bytes(), nobody), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_defaults_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600), user in any::<u32>()) {
            let _ = ProgramDefaults::read(&bytes, |_| Some(user));
            let lines = [b"remps-shim-defaults 1\nuser=", bytes.as_slice(), b"\n"].concat();
            let _ = ProgramDefaults::read(&lines, |_| Some(user));
        }
    }
}
