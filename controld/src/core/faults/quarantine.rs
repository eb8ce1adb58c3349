//! The short names of quarantines: `q1`, `q2`, …
//!
//! A quarantine belongs to an offender, whose program and cgroup would make a name of hundreds of columns. So its
//! domains are named by a number that it keeps, with a successor of the daemon too, and that no other one gets. Whose
//! it is stands in `status`, in `control.log`, and in the journal with the sanction.

use super::sanctions::Offender;
use crate::core::Core;
use crate::core::ids::DomainId;
use crate::core::servers::domain::{Domain, Group};

/// What the label begins with that a quarantine's domain has with a successor, which does not know the offender. A NUL
/// can't be in an environment, so nobody can have such a label.
const MARK: char = '\0';

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

impl Core {
    /// The number of an offender's quarantine: the one that it has, else a new one.
    pub(in crate::core) fn quarantine_number(&mut self, offender: &Offender) -> u64 {
        let text = offender.to_string();
        let is_its = |domain: &&Domain| domain.offender().as_deref() == Some(text.as_str());
        let of_domain =
            self.servers.domains().map(|(_, domain)| domain).find(is_its).and_then(|domain| domain.quarantine);
        if let Some(number) = of_domain.or(self.faults.offenders.quarantine(offender)) {
            self.faults.offenders.set_quarantine(offender, number);
            return number;
        }
        let number = self.faults.next_quarantine;
        self.faults.next_quarantine = number.saturating_add(1);
        self.faults.offenders.set_quarantine(offender, number);
        self.turn.log(format!("{} is the quarantine of {text}", name(number)));
        number
    }

    /// What the domains of an offender's quarantine are found by: one that was taken over from an earlier daemon is
    /// found by its label.
    pub(in crate::core) fn quarantine_group(&self, offender: Offender) -> Group {
        let taken_over = Group::Label(label(&offender));
        let is_there = self.servers.domains().map(|(_, domain)| domain).any(|domain| domain.key.group == taken_over);
        if is_there { taken_over } else { Group::Quarantine(offender) }
    }

    /// Gives a domain that was taken over the number that was noted of it, if it is a quarantine; 0 is one of a daemon
    /// that gave no numbers.
    pub(in crate::core) fn restore_quarantine(&mut self, id: DomainId, noted: u64) {
        let Some(domain) = self.servers.domain(id) else {
            return;
        };
        if domain.quarantine.is_some() || domain.offender().is_none() {
            return;
        }
        self.servers.set_quarantine(id, Some(if noted == 0 { self.faults.next_quarantine } else { noted }));
        if noted == 0 {
            self.faults.next_quarantine = self.faults.next_quarantine.saturating_add(1);
        }
    }
}
