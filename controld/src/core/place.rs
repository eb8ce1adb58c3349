//! Where a process stands: in which namespaces and in which container. A user's number alone says not who somebody is:
//! user 0 of a container is not the machine's root, and user 1000 of one pod is not user 1000 of the next.
//!
//! Namespaces are the kernel's word. A container and a pod are the part of the cgroup's path that ends with their name, as
//! the daemon sees it: whoever may make cgroups of his own makes them below his own and can't take another's path.

use super::ids::EntranceId;

/// A namespace, as far as the daemon can tell it from others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Namespace {
    /// Nothing could be read of it.
    #[default]
    Unknown,
    /// The daemon's own.
    Own,
    /// The one with this inode number, which no other has while it exists.
    Other(u64),
    /// One that may not be opened. All of which the kernel tells the same are taken for the same.
    Alike(String),
}

/// Where a process stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// Its user namespace.
    pub user: Namespace,
    /// Its PID namespace.
    pub pid: Namespace,
    /// The path of its container's cgroup; empty when no cgroup of it names one.
    pub container: String,
    /// The path of its pod's cgroup; empty when no cgroup of it names one.
    pub pod: String,
    /// Whether it is in a container that the daemon is not in.
    pub is_apart: bool,
}

impl Place {
    /// Whether it is where the daemon is: a process there sees the daemon's, is the user that it seems to be, and so can
    /// end the daemon with a signal if it is the owner's. A container that shares the daemon's PID namespace, as clients of
    /// MPS may have to, is another place all the same.
    #[must_use]
    pub fn is_the_daemons(&self) -> bool {
        self.user == Namespace::Own && self.pid == Namespace::Own && !self.is_apart
    }

    /// Whether a process here has the say over one there if they are of one user: it can send it a signal, and neither is
    /// in a container that the other is not in.
    #[must_use]
    pub fn reaches(&self, other: &Self) -> bool {
        let is_known = self.user != Namespace::Unknown && self.pid != Namespace::Unknown;
        let is_same = self.user == other.user && self.pid == other.pid && self.container == other.container;
        self.is_the_daemons() || is_known && is_same
    }
}

/// What a user of the command line may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rights {
    /// Whether he came by the privileged socket, and from where the daemon is itself. Root and the daemon's user are its
    /// owner then, and nowhere else.
    pub privileged: bool,
    /// Where he is.
    pub place: Place,
    /// The entrance of a joined server, if he has come there: he has to do with that server alone.
    pub within: Option<EntranceId>,
}

impl Rights {
    /// Those of somebody who is where the daemon is and came by the privileged socket.
    #[cfg(test)]
    pub(crate) fn beside_the_daemon() -> Self {
        let place = Place { user: Namespace::Own, pid: Namespace::Own, ..Place::default() };
        Self { privileged: true, place, within: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(user: Namespace, pid: Namespace) -> Place {
        Place { user, pid, ..Place::default() }
    }

    #[test]
    fn only_who_is_where_the_daemon_is_reaches_everybody_and_the_unknown_nobody() {
        use Namespace::{Other, Own, Unknown};
        let home = place(Own, Own);
        let (pod, neighbour) = (place(Own, Other(4)), place(Own, Other(5)));
        let sandbox = place(Other(4), Own);
        assert!(home.is_the_daemons() && home.reaches(&pod) && home.reaches(&Place::default()));
        for elsewhere in [&pod, &sandbox, &Place::default()] {
            assert!(!elsewhere.is_the_daemons() && !elsewhere.reaches(&home) && !elsewhere.reaches(&neighbour));
        }
        assert!(pod.reaches(&pod) && sandbox.reaches(&sandbox));
        assert!(!place(Unknown, Unknown).reaches(&place(Unknown, Unknown)));
        // Containers that share the daemon's namespaces.
        let apart = |name: &str| Place { is_apart: true, container: name.to_owned(), ..place(Own, Own) };
        assert!(!apart("/a").is_the_daemons() && !apart("/a").reaches(&home) && !apart("/a").reaches(&apart("/b")));
        assert!(apart("/a").reaches(&apart("/a")) && home.reaches(&apart("/a")));
    }
}
