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

use core::cell::OnceCell;
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

/// Who a program is to the daemon, as far as it knows that itself. It is asked only where something hangs on it, and once.
pub trait Program {
    /// The number of its user in this user namespace, the daemon's.
    fn uid(&self, namespace: Option<u64>) -> Option<u32>;
    /// Its label; `None` where it can't be known whether it has one.
    fn label(&self) -> Option<Option<String>>;
    /// The path of its cgroup in this cgroup namespace, the daemon's.
    fn cgroup(&self, namespace: Option<u64>) -> Option<String>;
}

/// What a file has for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// What it gets.
    pub defaults: ProgramDefaults,
    /// Whether that is what all have because it can't be known which table is the program's.
    pub is_unsure: bool,
}

impl ProgramDefaults {
    /// Reads from the file what a program gets; `None` for what is no such file, or has a value for the program that is
    /// not known.
    #[must_use]
    pub fn read(bytes: &[u8], program: &dyn Program) -> Option<Found> {
        let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_DEFAULTS_BYTES)?;
        // One that was cut is not whole.
        let mut lines = text.strip_suffix('\n')?.lines();
        lines.next().filter(|line| *line == HEADER)?;
        let mut all = Self::default();
        let (mut users, mut cgroups, mut tables) = (None, None, Vec::new());
        for line in lines {
            if let Some(word) = line.strip_prefix(KEEP) {
                all.keep = Keep::of(word)?;
            } else if let Some(word) = line.strip_prefix(RECOVER) {
                all.recover = Recover::of(word)?;
            } else if let Some(number) = line.strip_prefix(USERS) {
                users = number.parse().ok();
            } else if let Some(number) = line.strip_prefix(CGROUPS) {
                cgroups = number.parse().ok();
            } else if let Some(said) = line.strip_prefix(DOMAIN) {
                tables.push(said);
            }
        }
        let all = all.sound()?;
        let (uid, label, cgroup) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        let fits = |matching: &Match| {
            matching.fits_as_known(
                || *uid.get_or_init(|| program.uid(users)),
                || label.get_or_init(|| program.label()).as_ref().map(Option::as_deref),
                || cgroup.get_or_init(|| program.cgroup(cgroups)).as_deref(),
            )
        };
        let mut possible = Vec::new();
        for said in tables {
            let (values, matchers) = said.split_once(APART)?;
            let (matching, is_known) = matching(matchers);
            match fits(&matching) {
                Some(false) => continue,
                Some(true) if is_known => {
                    possible.push(Self::of_table(values, all)?);
                    return Some(Found::among(&possible, all));
                }
                Some(true) | None => possible.push(Self::of_table(values, all)?),
            }
        }
        possible.push(all);
        Some(Found::among(&possible, all))
    }

    /// The values of a table.
    fn of_table(values: &str, all: Self) -> Option<Self> {
        if values == AS_ALL {
            return Some(all);
        }
        Self::parse(values)
    }

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

impl Found {
    /// What a program gets that may be in any of these tables.
    fn among(possible: &[ProgramDefaults], all: ProgramDefaults) -> Self {
        let is_unsure = possible.windows(2).any(|pair| pair[0] != pair[1]);
        let defaults = possible.first().copied().filter(|_| !is_unsure).unwrap_or(all);
        Self { defaults, is_unsure }
    }
}

/// Whom a table is for, and whether all that it goes by is known.
fn matching(matchers: &str) -> (Match, bool) {
    let (mut read, mut is_known) = (Match::default(), true);
    for matcher in matchers.split(APART) {
        if let Some(label) = matcher.strip_prefix(LABEL) {
            read.label = Some(label.to_owned());
        } else if let Some(cgroup) = matcher.strip_prefix(CGROUP) {
            read.cgroup = Some(cgroup.to_owned());
        } else if let Some(Ok(uid)) = matcher.strip_prefix(UID).map(str::parse) {
            read.uid = Some(uid);
        } else {
            is_known = false;
        }
    }
    (read, is_known)
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
mod tests {
    use super::*;
    use core::cell::Cell;
    use proptest::prelude::*;

    const NOTHING: ProgramDefaults = ProgramDefaults { keep: Keep::Nothing, recover: Recover::Nobody };
    const MEMORY: ProgramDefaults = ProgramDefaults { keep: Keep::Memory, recover: Recover::Nobody };
    const SPARE: ProgramDefaults = ProgramDefaults { keep: Keep::State, recover: Recover::Spare };

    /// What is known of a program, and the namespaces that it was asked for.
    #[derive(Debug, Clone, Default)]
    struct Known {
        uid: Option<u32>,
        label: Option<Option<&'static str>>,
        cgroup: Option<&'static str>,
        asked: Cell<[Option<u64>; 2]>,
    }

    impl Program for Known {
        fn uid(&self, namespace: Option<u64>) -> Option<u32> {
            self.asked.set([namespace, self.asked.get()[1]]);
            self.uid
        }
        fn label(&self) -> Option<Option<String>> {
            self.label.map(|label| label.map(str::to_owned))
        }
        fn cgroup(&self, namespace: Option<u64>) -> Option<String> {
            self.asked.set([self.asked.get()[0], namespace]);
            self.cgroup.map(str::to_owned)
        }
    }

    /// One that is not to be asked who it is.
    struct Nobody;

    impl Program for Nobody {
        fn uid(&self, _: Option<u64>) -> Option<u32> {
            panic!("no user's name is in it")
        }
        fn label(&self) -> Option<Option<String>> {
            panic!("no label is in it")
        }
        fn cgroup(&self, _: Option<u64>) -> Option<String> {
            panic!("no cgroup is in it")
        }
    }

    fn user(uid: u32) -> Known {
        Known { uid: Some(uid), ..Known::default() }
    }

    fn of_user(uid: u32) -> Match {
        Match { uid: Some(uid), ..Match::default() }
    }

    fn of_label(label: &str) -> Match {
        Match { label: Some(label.to_owned()), ..Match::default() }
    }

    fn of_cgroup(cgroup: &str) -> Match {
        Match { cgroup: Some(cgroup.to_owned()), ..Match::default() }
    }

    fn read(text: &str, program: &dyn Program) -> Option<ProgramDefaults> {
        ProgramDefaults::read(text.as_bytes(), program).map(|found| found.defaults)
    }

    #[test]
    fn what_is_written_is_read_and_recoveries_need_the_state() {
        for keep in Keep::ALL {
            for recover in Recover::ALL {
                let defaults = ProgramDefaults { keep, recover };
                let is_sound = keep == Keep::State || recover == Recover::Nobody;
                let file = DefaultsFile { all: defaults, ..DefaultsFile::default() };
                assert_eq!(read(&file.to_string(), &Nobody), is_sound.then_some(defaults));
                let file = DefaultsFile { domains: vec![(of_user(7), Some(defaults))], ..DefaultsFile::default() };
                assert_eq!(read(&file.to_string(), &user(7)), is_sound.then_some(defaults));
            }
        }
    }

    #[test]
    fn the_first_table_that_fits_counts_also_where_it_says_nothing() {
        let both = Match { label: Some("a b=c".to_owned()), ..of_user(7) };
        let domains = vec![
            (both, Some(SPARE)),
            (of_label("quiet"), None),
            (of_user(7), Some(NOTHING)),
            (of_cgroup("/pods"), Some(SPARE)),
        ];
        let (users, cgroups) = (Some(17), Some(18));
        let file = DefaultsFile { all: MEMORY, domains, users, cgroups };
        let text = file.to_string();
        let who = |uid, label, cgroup| Known { cgroup: Some(cgroup), label: Some(label), ..user(uid) };
        for (program, wanted) in [
            (who(7, Some("a b=c"), "/"), SPARE),
            (who(8, Some("a b=c"), "/"), MEMORY),
            (who(8, Some("a b"), "/pods/one"), SPARE),
            (who(7, None, "/pods/one"), NOTHING),
            (who(7, Some("quiet"), "/pods"), MEMORY),
            (who(70, None, "/podsfull"), MEMORY),
        ] {
            let found = ProgramDefaults::read(text.as_bytes(), &program);
            assert_eq!(found, Some(Found { defaults: wanted, is_unsure: false }), "{program:?}");
        }
        let asked = who(70, None, "/");
        let _ = read(&text, &asked);
        assert_eq!(asked.asked.get(), [users, cgroups]);
        // What comes behind the last that says something is not told.
        let quiet = DefaultsFile { domains: vec![(of_user(7), None)], ..DefaultsFile { domains: vec![], ..file } };
        assert_eq!(read(&quiet.to_string(), &Nobody), Some(MEMORY));
    }

    #[test]
    fn who_does_not_know_which_table_is_his_has_what_all_have_unless_it_makes_no_difference() {
        let gets = |domains: &[(Match, Option<ProgramDefaults>)], program: &Known| {
            let file = DefaultsFile { all: MEMORY, domains: domains.to_vec(), ..DefaultsFile::default() };
            ProgramDefaults::read(file.to_string().as_bytes(), program).map(|it| (it.defaults, it.is_unsure))
        };
        let pods = |own| (of_cgroup("/pods"), own);
        let his = (of_user(7), Some(SPARE));
        // Nobody knows his cgroup.
        assert_eq!(gets(&[pods(Some(SPARE))], &user(7)), Some((MEMORY, true)));
        assert_eq!(gets(&[pods(Some(NOTHING)), his.clone()], &user(7)), Some((MEMORY, true)));
        assert_eq!(gets(&[pods(Some(SPARE)), his.clone()], &user(7)), Some((SPARE, false)));
        assert_eq!(gets(&[his.clone(), pods(Some(NOTHING))], &user(7)), Some((SPARE, false)));
        assert_eq!(gets(&[pods(None), (of_user(8), Some(SPARE))], &user(7)), Some((MEMORY, false)));
        // Nor who he is, nor his label.
        assert_eq!(gets(core::slice::from_ref(&his), &Known::default()), Some((MEMORY, true)));
        assert_eq!(gets(&[(of_label("a"), Some(SPARE)), his], &user(8)), Some((MEMORY, true)));
    }

    #[test]
    fn words_of_a_later_release_for_somebody_else_are_his() {
        let file = "remps-shim-defaults 1\nkeep=memory\nrecover=nobody\ndomain=more words here\tuid=7\n\
                    domain=state spare\tuid=8\ndomain=state spare\tuid=9\tpod=x\n";
        assert_eq!(read(file, &user(8)), Some(SPARE));
        assert_eq!(read(file, &user(10)), Some(MEMORY));
        assert_eq!(read(file, &user(7)), None);
        assert_eq!(read(file, &user(9)), Some(MEMORY), "whether the table is his is not known");
    }

    #[test]
    fn what_is_written_otherwise_says_nothing() {
        let sound = "remps-shim-defaults 1\nkeep=state\nlater=1\nrecover=spare\n";
        assert_eq!(read(sound, &Nobody), Some(SPARE));
        for odd in [
            "",
            "keep=state\n",
            "remps-shim-defaults 2\nkeep=state\n",
            "remps-shim-defaults 1\nkeep=everything\n",
            "remps-shim-defaults 1\nkeep=state\nrecover=sp",
            "remps-shim-defaults 1\nrecover=spare\n",
            "remps-shim-defaults 1\ndomain=state spare\n",
            "remps-shim-defaults 1\ndomain=state\tuid=5\n",
            "remps-shim-defaults 1\ndomain=memory spare\tuid=5\n",
        ] {
            assert_eq!(read(odd, &user(5)), None, "{odd:?}");
        }
        let long = format!("{sound}{}\n", "#".repeat(MAX_DEFAULTS_BYTES));
        assert_eq!(read(&long, &Nobody), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_defaults_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600), uid in any::<u32>()) {
            let _ = ProgramDefaults::read(&bytes, &user(uid));
            let lines = [b"remps-shim-defaults 1\ndomain=".as_slice(), bytes.as_slice(), b"\n"].concat();
            let _ = ProgramDefaults::read(&lines, &user(uid));
        }
    }
}
