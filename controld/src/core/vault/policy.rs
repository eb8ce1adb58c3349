//! How much is kept, and for how long.

use super::Reach;
use crate::core::forms;
use core::time::Duration;

/// How much is kept: the table `[vault]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VaultPolicy {
    /// Whether anything is.
    pub enabled: bool,
    /// Most bytes of one user; `None` is without limit.
    #[serde(rename = "gib_per_user", with = "forms::gib_0_unlimited")]
    pub user_bytes: Option<u64>,
    /// Most regions of one user: a quarter of what all may have. No setting.
    #[serde(skip)]
    pub user_regions: usize,
    /// Most bytes of all.
    #[serde(rename = "gib", with = "forms::gib_0_unlimited")]
    pub bytes: Option<u64>,
    /// Most regions of all. No setting: the holder has room for twice as many beside connections and servers, and each
    /// is two open files of the daemon and two of the holder.
    #[serde(skip)]
    pub regions: usize,
    /// How long a named region is kept after its owner's end.
    #[serde(with = "forms::seconds")]
    pub ttl: Duration,
    /// How far a name reaches.
    pub scope: Reach,
}

impl Default for VaultPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            user_bytes: Some(256 << 30),
            user_regions: 4096,
            bytes: None,
            regions: 16_384,
            ttl: Duration::from_secs(300),
            scope: Reach::Container,
        }
    }
}

/// Open files that a region takes.
const FILES_OF_REGION: u64 = 2;

impl VaultPolicy {
    /// The same for a daemon that may have so many files open: regions take half of them at most, and those of one user
    /// half of that. So nobody's regions keep clients and commands out.
    #[must_use]
    pub fn within(self, open_files: u64) -> Self {
        let most = usize::try_from(open_files / 2 / FILES_OF_REGION).unwrap_or(usize::MAX).max(1);
        if self.regions <= most {
            return self;
        }
        Self { regions: most, user_regions: self.user_regions.min((most / 2).max(1)), ..self }
    }
}
