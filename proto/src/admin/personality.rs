//! Which release of the vendor's control program is being played, and what that release knows.
//!
//! Measured on the releases named; a driver between two of them is played as the older one.

use super::command::CommandName;

/// A release of `nvidia-cuda-mps-control` whose behaviour is known. Ordered: a later one knows more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Personality {
    /// Driver 535, and everything older.
    V535,
    /// Driver 550: `get_server_status`, the pid file.
    V550,
    /// Driver 555: `-multiuser-server`; an unknown option is an error.
    V555,
    /// Driver 580 (CUDA 13.0): long options, `-v`, `device_query`.
    V580,
    /// Driver 595 (CUDA 13.1 and later): static SM partitions, commands as arguments.
    V595,
}

/// What the control program makes of an option it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnknownOption {
    /// It is ignored and the program reads commands from its standard input.
    StartsUi,
    /// The usage text on standard output, exit status 1.
    Usage,
    /// `Unrecognized option` and the help text on standard output, exit status 0.
    Help,
}

/// First binary version of CUDA 13.1, the first one with static SM partitions.
const BINARY_CUDA_13_1: u32 = 13010;
/// First binary version that is printed at all.
const BINARY_CUDA_13_0: u32 = 13000;

impl Personality {
    /// Every personality, oldest first.
    pub const ALL: [Self; 5] = [Self::V535, Self::V550, Self::V555, Self::V580, Self::V595];

    /// The personality of a driver version as the kernel module prints it, for example `535.309.01`.
    ///
    /// `None` when the text does not start with a number.
    #[must_use]
    pub fn from_driver_version(version: &str) -> Option<Self> {
        let major: u32 = version.trim().split('.').next()?.parse().ok()?;
        Some(match major {
            0..=549 => Self::V535,
            550..=554 => Self::V550,
            555..=579 => Self::V555,
            580..=589 => Self::V580,
            _ => Self::V595,
        })
    }

    /// The personality of a `Binary version`, for example 13000. `None` below 13000: no such release prints one.
    #[must_use]
    pub const fn from_binary_version(version: u32) -> Option<Self> {
        match version {
            0..BINARY_CUDA_13_0 => None,
            BINARY_CUDA_13_0..BINARY_CUDA_13_1 => Some(Self::V580),
            _ => Some(Self::V595),
        }
    }

    /// The `Binary version` that the release's `-v` prints; `None` where there is no `-v`.
    #[must_use]
    pub const fn binary_version(self) -> Option<u32> {
        match self {
            Self::V535 | Self::V550 | Self::V555 => None,
            Self::V580 => Some(13000),
            Self::V595 => Some(13020),
        }
    }

    /// The driver branch, for texts.
    #[must_use]
    pub const fn branch(self) -> u32 {
        match self {
            Self::V535 => 535,
            Self::V550 => 550,
            Self::V555 => 555,
            Self::V580 => 580,
            Self::V595 => 595,
        }
    }

    /// Whether the release has this command.
    #[must_use]
    pub fn knows(self, command: CommandName) -> bool {
        self >= command.since()
    }

    /// Whether the daemon writes `nvidia-cuda-mps-control.pid`.
    #[must_use]
    pub fn writes_pid_file(self) -> bool {
        self >= Self::V550
    }

    /// Whether the daemon logs its binary version when it starts.
    #[must_use]
    pub const fn logs_binary_version(self) -> bool {
        self.binary_version().is_some()
    }

    /// Whether the vendor's own daemon refuses `set_*` and `terminate_client` from other users.
    #[must_use]
    pub fn guards_defaults(self) -> bool {
        self >= Self::V550
    }

    /// Whether `start_server` takes `-mlopart`.
    #[must_use]
    pub fn has_mlopart(self) -> bool {
        self >= Self::V595
    }

    /// What an unknown option does.
    #[must_use]
    pub const fn unknown_option(self) -> UnknownOption {
        match self {
            Self::V535 | Self::V550 => UnknownOption::StartsUi,
            Self::V555 => UnknownOption::Usage,
            Self::V580 | Self::V595 => UnknownOption::Help,
        }
    }
}

impl std::fmt::Display for Personality {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.branch())
    }
}

/// A text that names no release.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a driver version: {0:?}")]
pub struct UnknownRelease(String);

impl std::str::FromStr for Personality {
    type Err = UnknownRelease;

    /// A driver version (`535.309.01`, `580`) or a binary version (`13000`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let binary = text.trim().parse().ok().and_then(Self::from_binary_version);
        binary.or_else(|| Self::from_driver_version(text)).ok_or_else(|| UnknownRelease(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_recognised_by_either_version() {
        for (text, want) in [
            ("470.82.01", Personality::V535),
            ("535.309.01", Personality::V535),
            ("550.163.01", Personality::V550),
            ("560.35.03", Personality::V555),
            ("580.159.04\n", Personality::V580),
            ("13000", Personality::V580),
            ("13010", Personality::V595),
            ("595", Personality::V595),
            ("615.71.09", Personality::V595),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text:?}");
        }
        assert!("".parse::<Personality>().is_err());
        assert!("r580".parse::<Personality>().is_err());
    }

    #[test]
    fn a_later_release_knows_every_command_of_an_earlier_one() {
        for pair in Personality::ALL.windows(2) {
            for name in CommandName::ALL {
                assert!(!pair[0].knows(*name) || pair[1].knows(*name), "{name} vanishes in {}", pair[1]);
            }
        }
        assert!(!Personality::V535.knows(CommandName::GetServerStatus));
        assert!(Personality::V550.knows(CommandName::GetServerStatus));
        assert!(!Personality::V555.knows(CommandName::DeviceQuery));
        assert!(!Personality::V580.knows(CommandName::Lspart));
    }
}
