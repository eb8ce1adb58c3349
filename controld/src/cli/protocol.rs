//! The option `-p` and `CUDA_MPS_PROTOCOL_VERSION`: which interface a daemon is started for.
//!
//! By the vendor's manual (docs.nvidia.com, MPS 615, mpsv3-interface, "Enabling MPS v3") the variable goes before the
//! option, and a command line follows the daemon that runs, whatever it is told itself. This daemon understands the commands of
//! both interfaces at once, so a protocol changes only what the start prints.

use super::options::{self, Flag};

/// The variable that says the same as the option.
pub(crate) const VARIABLE: &str = "CUDA_MPS_PROTOCOL_VERSION";

/// Which interface whoever starts the daemon expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Protocol {
    /// The one before release 615.
    #[default]
    Two,
    /// Modules with verbs.
    Three,
}

/// There is no such protocol.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {value:?} is no protocol, those are 2 and 3")]
pub(crate) struct UnknownProtocol {
    place: &'static str,
    value: String,
}

impl Protocol {
    fn parse(place: &'static str, value: &str) -> Result<Self, UnknownProtocol> {
        match value {
            "2" => Ok(Self::Two),
            "3" => Ok(Self::Three),
            _ => Err(UnknownProtocol { place, value: value.to_owned() }),
        }
    }

    /// The value of the option.
    ///
    /// # Errors
    /// It is neither 2 nor 3.
    pub(super) fn of_option(value: &str) -> Result<Self, UnknownProtocol> {
        Self::parse("--protocol", value)
    }

    /// The protocol of a daemon with this option and this value of the variable; an empty one says nothing.
    ///
    /// # Errors
    /// The variable is neither 2 nor 3.
    pub(crate) fn chosen(option: Option<Self>, variable: Option<&str>) -> Result<Self, UnknownProtocol> {
        match variable.filter(|value| !value.is_empty()) {
            Some(value) => Self::parse(VARIABLE, value),
            None => Ok(option.unwrap_or_default()),
        }
    }

    /// What the vendor's start says on standard output, by its manual, where it says anything.
    pub(crate) fn greeting(self, pipe_directory: &str) -> Option<String> {
        let connect = "To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY=";
        (self == Self::Three).then(|| format!("{connect}{pipe_directory}\n"))
    }
}

/// The flags of one argument, the last of which has a value, and that if it is in the same argument: `--protocol=3`,
/// `-p3`, `-dp3` and `-aFILE`. `None` for every other argument.
pub(super) fn with_value(argument: &str) -> Option<(Vec<Flag>, &str)> {
    let words = [
        ("--protocol=", Flag::Protocol),
        ("--apply=", Flag::Apply),
        ("--join=", Flag::Join),
        ("--join-name=", Flag::JoinName),
    ];
    for (word, flag) in words {
        if let Some(value) = argument.strip_prefix(word) {
            return Some((vec![flag], value));
        }
    }
    let letters = argument.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    let end = letters.find(['p', 'a'])? + 2;
    let flags = options::flags_of(argument.get(..end)?)?;
    let value = argument.get(end..).filter(|value| !value.is_empty())?;
    Some((flags, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_goes_before_the_option_and_two_is_the_default() {
        use Protocol::{Three, Two};
        for (option, variable, want) in [
            (None, None, Two),
            (None, Some(""), Two),
            (Some(Three), None, Three),
            (Some(Three), Some(""), Three),
            (Some(Three), Some("2"), Two),
            (Some(Two), Some("3"), Three),
        ] {
            assert_eq!(Protocol::chosen(option, variable), Ok(want), "{option:?} {variable:?}");
        }
        for variable in ["4", "1", "03", " 3", "three"] {
            let refused = Protocol::chosen(Some(Two), Some(variable)).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("CUDA_MPS_PROTOCOL_VERSION: {variable:?} is no protocol, those are 2 and 3")
            );
        }
    }

    /// The line is the manual's (docs.nvidia.com, MPS 615, mpsv3-interface).
    #[test]
    fn only_the_third_protocols_start_says_where_to_connect() {
        let line = "To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps\n";
        assert_eq!(Protocol::Three.greeting("/run/nvidia-mps").as_deref(), Some(line));
        assert_eq!(Protocol::Two.greeting("/run/nvidia-mps"), None);
    }
}
