//! What the third interface has words for, and only the servers of a later driver can do.

use super::super::command::CommandName;
use super::super::report::readable;
use super::words::Misused;

/// A feature that can be enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Accounts of memory by cgroup.
    Memacct,
    /// Contexts that processes share.
    ContextShare,
}

impl Feature {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Memacct, Self::ContextShare];

    /// As it is typed; its module has the same name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memacct => "memacct",
            Self::ContextShare => "context-share",
        }
    }

    pub(super) fn parse(word: &[u8]) -> Result<Self, Misused> {
        let found = Self::ALL.into_iter().find(|feature| feature.word().as_bytes() == word);
        found.ok_or_else(|| Some(readable(word)))
    }
}

/// What needs a later driver than this daemon can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Need {
    /// The module.
    pub module: CommandName,
    /// What was asked for, as it is typed.
    pub what: &'static str,
    /// The first release that has it.
    pub since: u32,
}

impl Need {
    /// Why it can't be, where this release is installed.
    #[must_use]
    pub fn refusal(self, installed: Option<u32>) -> String {
        let Self { what, since, .. } = self;
        match installed {
            Some(release) if release >= since => {
                format!("{what}: how a driver >= {since} does this is not known to this daemon")
            }
            Some(release) => format!("{what} needs driver >= {since}, this one is {release}"),
            None => format!("{what} needs driver >= {since}"),
        }
    }
}

/// Locality domains of a server, which its option asks for.
pub const LOCALITY_DOMAINS: Need =
    Need { module: CommandName::Server, what: "--locality-domains=true", since: PARTITIONS_SINCE };
/// The first release with static partitions and locality domains.
pub const PARTITIONS_SINCE: u32 = 595;
/// The first release with features that can be enabled.
pub const FEATURES_SINCE: u32 = 615;
