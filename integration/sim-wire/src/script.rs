//! How tests tell the simulation what to do: variables `MPS_SIM_…`.
//!
//! A variable is looked up in the file named by `MPS_SIM_SCRIPT` first (lines `NAME=value`, read once at start, so a
//! test can change the behaviour of the next server without restarting the daemon that passes its environment on), and
//! in the environment else.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

/// The variables as they were at start.
#[derive(Debug, Default, Clone)]
pub struct Script {
    file: HashMap<String, String>,
}

impl Script {
    /// Reads the file that `MPS_SIM_SCRIPT` names. A file that can't be read is an empty one.
    #[must_use]
    pub fn load() -> Self {
        let text =
            std::env::var_os("MPS_SIM_SCRIPT").and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        Self::parse(&text)
    }

    /// Takes the lines of a script file.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let file = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .collect();
        Self { file }
    }

    /// The variable's text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.file.get(name).cloned().or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
    }

    /// The variable as a decimal number or, with `0x`, a hexadecimal one.
    #[must_use]
    pub fn number<T: FromStr + TryFrom<u64>>(&self, name: &str) -> Option<T> {
        let text = self.text(name)?;
        match text.strip_prefix("0x") {
            Some(digits) => T::try_from(u64::from_str_radix(digits, 16).ok()?).ok(),
            None => text.parse().ok(),
        }
    }

    /// The variable as milliseconds, or `default`.
    #[must_use]
    pub fn milliseconds(&self, name: &str, default: Duration) -> Duration {
        self.number(name).map_or(default, Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_file_gives_text_numbers_and_times() {
        let script = Script::parse("MPS_SIM_A = hello\nMPS_SIM_B=0x0e\nMPS_SIM_C=25\nno assignment\nMPS_SIM_D=\n");
        assert_eq!(script.text("MPS_SIM_A").as_deref(), Some("hello"));
        assert_eq!(script.number::<u32>("MPS_SIM_B"), Some(14));
        assert_eq!(script.milliseconds("MPS_SIM_C", Duration::ZERO), Duration::from_millis(25));
        assert_eq!(script.text("MPS_SIM_D"), None);
        assert_eq!(script.milliseconds("MPS_SIM_E", Duration::from_millis(3)), Duration::from_millis(3));
    }
}
