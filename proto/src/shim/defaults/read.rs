//! What the file has for one program, which knows of itself what it can.

use super::{
    APART, AS_ALL, CGROUP, CGROUPS, DOMAIN, HEADER, KEEP, Keep, LABEL, MAX_DEFAULTS_BYTES, ProgramDefaults, RECOVER,
    Recover, UID, USERS,
};
use crate::who::Match;
use core::cell::OnceCell;

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
