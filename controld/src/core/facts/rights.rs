//! What the daemon may do about processes of other users, by its user and its capabilities, and what it can't do without.
//!
//! `doctor` judges the machine, for whoever sets it up; this is for whoever asks a daemon that runs why it knows nothing of
//! some clients.

use crate::core::ids::Uid;
use serde::Serialize;

/// Numbers of capabilities, from `linux/capability.h`.
pub(crate) const CAP_KILL: u32 = 5;
pub(crate) const CAP_SYS_PTRACE: u32 = 19;
pub(crate) const CAP_SYSLOG: u32 = 34;

/// Each capability that matters, and what the daemon doesn't do without it.
const COSTS: [(u32, &str, &str); 3] = [
    (
        CAP_SYS_PTRACE,
        "CAP_SYS_PTRACE",
        "clients of other users are not looked at: neither proof of their memory faults, nor are others saved from their \
         sudden deaths",
    ),
    (CAP_KILL, "CAP_KILL", "servers and clients of other users are not ended"),
    (CAP_SYSLOG, "CAP_SYSLOG", "the kernel's log is not read where kernel.dmesg_restrict is on"),
];
const NOT_ROOT: (&str, &str) = ("root", "programs of other users get no server, and wait");

/// Something that the daemon lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Lacking {
    /// `root`, or a capability's name.
    pub right: &'static str,
    /// What it doesn't do for want of that.
    pub costs: &'static str,
}

/// The daemon's rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RightsFacts {
    /// Whether it runs as root.
    pub root: bool,
    /// The capabilities that matter here and that it has.
    pub has: Vec<&'static str>,
    /// What it lacks; nothing where it may do everything that it does.
    pub lacks: Vec<Lacking>,
}

impl RightsFacts {
    /// Those of a process of this user with these effective capabilities, a bit each; `None` is not known, of which nothing
    /// is said.
    pub(crate) fn of(owner: Uid, capabilities: Option<u64>) -> Self {
        let known = COSTS.iter().filter_map(|cost| Some((capabilities? >> cost.0 & 1 == 1, cost)));
        let (has, lacks): (Vec<_>, Vec<_>) = known.partition(|(is_there, _)| *is_there);
        let root = (owner != 0).then_some(NOT_ROOT).map(|(right, costs)| Lacking { right, costs });
        let lacks = lacks.into_iter().map(|(_, (_, right, costs))| Lacking { right, costs });
        Self {
            root: owner == 0,
            has: has.into_iter().map(|(_, (_, name, _))| *name).collect(),
            lacks: root.into_iter().chain(lacks).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(owner: Uid, capabilities: Option<u64>) -> Vec<&'static str> {
        RightsFacts::of(owner, capabilities).lacks.iter().map(|lacking| lacking.right).collect()
    }

    #[test]
    fn what_is_lacking_is_named_and_what_is_not_known_is_not() {
        assert_eq!(lacking(0, Some(u64::MAX)), [""; 0]);
        assert_eq!(lacking(1000, Some(0)), ["root", "CAP_SYS_PTRACE", "CAP_KILL", "CAP_SYSLOG"]);
        assert_eq!(lacking(0, Some(1 << CAP_KILL)), ["CAP_SYS_PTRACE", "CAP_SYSLOG"]);
        assert_eq!(lacking(1000, None), ["root"]);
        assert_eq!(RightsFacts::of(0, Some(1 << CAP_KILL)).has, ["CAP_KILL"]);
    }
}
