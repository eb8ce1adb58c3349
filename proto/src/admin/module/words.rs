//! The words after a verb: positional ones, options with a value, and flags.

use super::super::report::readable;
use super::Format;

/// Why words are no command: the first that is not understood, or none where one is missing.
pub(super) type Misused = Option<String>;

/// Every option that takes a value, in any verb.
const OPTIONS: [&str; 12] = [
    "server",
    "format",
    "uid",
    "allowed-devices",
    "locality-domains",
    "pinned-memory-limit",
    "active-thread-percentage",
    "client-priority",
    "device",
    "chunks",
    "include-remainder",
    "audit_log",
];
/// Every flag, in any verb.
const FLAGS: [&str; 2] = ["all", "force"];
/// Positional words of the verb that takes the most.
const MOST_POSITIONAL: usize = 3;

/// The words after a verb, each option and flag at most once.
#[derive(Default)]
pub(super) struct Words<'a> {
    pub(super) positional: Vec<&'a [u8]>,
    options: Vec<(&'static str, &'a [u8])>,
    flags: Vec<&'static str>,
}

fn known(names: &[&'static str], word: &[u8]) -> Option<&'static str> {
    names.iter().copied().find(|name| name.as_bytes() == word)
}

impl<'a> Words<'a> {
    /// Reads `--key=value`, `key=value`, `--key value`, flags, and what is left.
    ///
    /// # Errors
    /// The first word that no verb has, or that comes twice; `None` where a value is missing.
    pub(super) fn read(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Misused> {
        let mut read = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let bare = word.strip_prefix(b"--").unwrap_or(word);
            let unknown = || Some(readable(word));
            if let Some(at) = bare.iter().position(|byte| *byte == b'=') {
                let name = known(&OPTIONS, &bare[..at]).ok_or_else(unknown)?;
                read.set(name, &bare[at + 1..], word)?;
            } else if word.starts_with(b"-") {
                if let Some(flag) = known(&FLAGS, bare).filter(|_| word.starts_with(b"--")) {
                    read.flags.push(flag);
                } else {
                    let name = known(&OPTIONS, bare).filter(|_| word.starts_with(b"--")).ok_or_else(unknown)?;
                    read.set(name, words.next().ok_or(None)?, word)?;
                }
            } else if read.positional.len() < MOST_POSITIONAL {
                read.positional.push(word);
            } else {
                return Err(unknown());
            }
        }
        Ok(read)
    }

    fn set(&mut self, name: &'static str, value: &'a [u8], word: &[u8]) -> Result<(), Misused> {
        if self.options.iter().any(|(known, _)| *known == name) {
            return Err(Some(readable(word)));
        }
        self.options.push((name, value));
        Ok(())
    }

    /// Nothing but what this verb takes.
    ///
    /// # Errors
    /// The first option, flag or word that it does not take.
    pub(super) fn only(self, options: &[&str], flags: &[&str], positional: usize) -> Result<Self, Misused> {
        let option = self.options.iter().map(|(name, _)| *name).find(|name| !options.contains(name));
        let flag = self.flags.iter().copied().find(|name| !flags.contains(name));
        if let Some(name) = option.or(flag) {
            return Err(Some(format!("--{name}")));
        }
        match self.positional.get(positional) {
            Some(extra) => Err(Some(readable(extra))),
            None => Ok(self),
        }
    }

    /// Whether a flag is there.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// The value of an option, if it is there.
    pub(super) fn option(&self, name: &str) -> Option<&'a [u8]> {
        self.options.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The value of an option as what it is, if it is there.
    ///
    /// # Errors
    /// The value, where `read` makes nothing of it.
    pub(super) fn value<T>(&self, name: &str, read: impl Fn(&[u8]) -> Option<T>) -> Result<Option<T>, Misused> {
        self.option(name).map(|value| read(value).ok_or_else(|| Some(readable(value)))).transpose()
    }

    /// A positional word.
    ///
    /// # Errors
    /// `None` where it is missing.
    pub(super) fn word(&self, index: usize) -> Result<&'a [u8], Misused> {
        self.positional.get(index).copied().ok_or(None)
    }

    /// The form of the answer.
    ///
    /// # Errors
    /// One that there is not.
    pub(super) fn format(&self) -> Result<Format, Misused> {
        Ok(self.value("format", Format::parse)?.unwrap_or(Format::TABLE))
    }
}
