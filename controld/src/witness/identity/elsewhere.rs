//! Who processes are that have no pid here: the kernel's descriptor of one, looked up in a `/proc` of another namespace.

use super::{Found, Identities, Missing};
use crate::core::{Elsewhere, HiddenId, Identity, Namespace, Pid, Place, Uid};
use crate::sys::other_proc::Seen;
use crate::sys::pidfd;
use crate::witness::place;
use std::os::fd::OwnedFd;

impl Identities {
    /// Finds out who a process is that has no pid here: the one that a descriptor names. Takes as long.
    pub(crate) async fn of_hidden(&self, pidfd: OwnedFd, uid: Uid) -> Found {
        let hidden = hidden_id(&pidfd);
        let unknown = |missing| {
            let elsewhere = hidden.map(|id| Box::new(Elsewhere { id, seen_as: None }));
            let identity = Identity { elsewhere, ..Identity::default() };
            Found { identity, missing: Some(missing), ..Found::default() }
        };
        let Some(other) = &self.other else {
            return unknown(Missing::NotVisible);
        };
        let seen = other.find(&pidfd).ok();
        let Some((Seen { pid, dir }, start_time)) = seen.and_then(|seen| seen.dir.start_time().map(|at| (seen, at)))
        else {
            return unknown(Missing::Ended);
        };
        let mut found = self.read(dir, start_time, uid).await;
        let id = hidden.unwrap_or(HiddenId([u64::from(pid), start_time]));
        found.identity.elsewhere = Some(Box::new(Elsewhere { id, seen_as: Some(pid) }));
        found.identity.place = elsewhere(found.identity.place);
        Found { seen_as: Some(pid), ..found }
    }

    /// Has the directory of a process that has no pid here found by this number, until [`hide`](crate::sys::other_proc::hide).
    pub(crate) fn shows(&self, number: Pid, seen_as: Pid) {
        if let Some(other) = &self.other {
            other.show(number, seen_as);
        }
    }

    /// Where a process stands that has no pid here, in as far as that is known at once.
    pub(crate) fn place_of_hidden(&self, pidfd: &OwnedFd) -> Option<Place> {
        let seen = self.other.as_ref()?.find(pidfd).ok()?;
        let (_, place, _) = place::of(&seen.dir);
        Some(elsewhere(place))
    }
}

/// The place of one without a pid here. Whose number in the other namespace is its only one seems to be in ours.
fn elsewhere(place: Place) -> Place {
    let pid = if place.pid == Namespace::Own { Namespace::Unknown } else { place.pid };
    Place { pid, ..place }
}

/// Which process a descriptor names that has no pid here, where the kernel tells such apart.
pub(crate) fn hidden_id(pidfd: &OwnedFd) -> Option<HiddenId> {
    pidfd::unique(pidfd).map(|number| HiddenId([0, number]))
}
