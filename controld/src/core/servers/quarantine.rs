//! Who is in quarantine, and the short names of quarantines: `q1`, `q2`, …
//!
//! A quarantine belongs to an offender, whose program and cgroup would make a name of hundreds of columns. So its
//! domains are named by a number that it keeps, with a successor of the daemon too, and that no other one gets. Whose
//! it is stands in `status`, in `control.log`, and in the journal with the sanction.

use super::Servers;
use super::domain::{Domain, Group};
use crate::core::identity::Identity;
use crate::core::ids::Uid;
use crate::core::policy::cgroup_unit;
use core::fmt;

/// What the label begins with that a quarantine's domain has with a successor, which does not know the offender. A NUL
/// can't be in an environment, so nobody can have such a label.
const MARK: char = '\0';

/// Processes that are taken for each other's like.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) struct Offender {
    uid: Uid,
    /// Pod, container, job or unit.
    unit: String,
    /// The first word of the command line.
    program: String,
}

impl Offender {
    pub(in crate::core) fn of(uid: Uid, identity: &Identity) -> Self {
        let program = identity.command.split_whitespace().next().unwrap_or_default().to_owned();
        Self { uid, unit: cgroup_unit(&identity.cgroup).to_owned(), program }
    }
}

impl fmt::Display for Offender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, unit, program } = self;
        write!(f, "{} of user {uid}", if program.is_empty() { "a program" } else { program })?;
        if unit.is_empty() { Ok(()) } else { write!(f, " in {unit}") }
    }
}

/// How a quarantine is called.
pub(in crate::core) fn name(number: u64) -> String {
    format!("q{number}")
}

/// The label under which the domain of an offender's quarantine lives on with a successor.
pub(in crate::core) fn label(offender: &Offender) -> String {
    format!("{MARK}{offender}")
}

impl Domain {
    /// Who is in quarantine there, if it is one.
    pub(in crate::core) fn offender(&self) -> Option<String> {
        match &self.key.group {
            Group::Quarantine(offender) => Some(offender.to_string()),
            Group::Label(label) => label.strip_prefix(MARK).map(str::to_owned),
            Group::All | Group::Cgroup(_) | Group::Process(_) => None,
        }
    }
}

impl Servers {
    /// The number of an offender's quarantine that there is a domain of.
    pub(in crate::core) fn quarantine_of(&self, offender: &Offender) -> Option<u64> {
        let text = offender.to_string();
        let is_its = |domain: &&Domain| domain.offender().as_deref() == Some(text.as_str());
        self.domains().map(|(_, domain)| domain).find(is_its).and_then(|domain| domain.quarantine)
    }

    /// What the domains of an offender's quarantine are found by: one that was taken over from an earlier daemon is
    /// found by its label.
    pub(in crate::core) fn quarantine_group(&self, offender: Offender) -> Group {
        let taken_over = Group::Label(label(&offender));
        let is_there = self.domains().map(|(_, domain)| domain).any(|domain| domain.key.group == taken_over);
        if is_there { taken_over } else { Group::Quarantine(offender) }
    }
}
