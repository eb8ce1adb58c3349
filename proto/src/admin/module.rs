//! The grammar of release 615's third interface: `MODULE VERB`, at most three positional words, `--key=value` or
//! `key=value`, and flags. `--key value` is understood, too, as all other options here are written.
//!
//! No release before has these words, so a daemon understands both interfaces at once. Like ReMPS's own commands, and
//! unlike the vendor's former ones, they are read strictly: a word that is not understood is an error and never passed
//! over. [`change`] has what changes servers and namespaces, `query` what asks for them, [`needs`] what takes a later
//! driver, [`words`] what all verbs are read with.

pub mod change;
mod fields;
pub mod needs;
mod query;
mod words;

use super::command::CommandName;
use super::report::{number, readable};
pub use change::{Change, Limits};
pub use fields::{ClientField, NamespaceField, ServerField};
use needs::LOCALITY_DOMAINS;
pub use needs::{Feature, Need};
pub use query::Query;
use words::{Misused, Words};

/// Bytes of the longest name of a server.
const MAX_NAME: usize = 64;
/// The namespace that every server has.
pub const DEFAULT_NAMESPACE: &str = "default";

/// `--format=<table|csv>[,noheader]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Format {
    /// Values with commas between them, and no table.
    pub csv: bool,
    /// Whether the names of the columns come first.
    pub header: bool,
}

impl Format {
    /// What is printed without the option.
    pub const TABLE: Self = Self { csv: false, header: true };

    fn parse(value: &[u8]) -> Option<Self> {
        Some(match value {
            b"table" => Self::TABLE,
            b"table,noheader" => Self { csv: false, header: false },
            b"csv" => Self { csv: true, header: true },
            b"csv,noheader" => Self { csv: true, header: false },
            _ => return None,
        })
    }
}

/// What is said in the third interface.
#[derive(Debug, Clone, PartialEq)]
pub enum Module {
    /// A question.
    Question(Query),
    /// `client terminate PID`
    Terminate {
        /// The client's process.
        client: u32,
    },
    /// `device list [--server NAME] [--format FORMAT]`
    Devices {
        /// As this one sees them.
        server: Option<String>,
        /// How they are printed.
        format: Format,
    },
    /// Something that changes servers or namespaces.
    Change(Change),
}

/// A name: lower-case letters, digits and underscores.
fn name(word: &[u8]) -> Result<String, Misused> {
    let text = std::str::from_utf8(word).ok().filter(|text| is_name(text));
    text.map(str::to_owned).ok_or_else(|| Some(readable(word)))
}

/// Whether a server or a namespace may be called so: 1 to 64 lower-case letters, digits and underscores.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_one)
}

/// The verbs of a module.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other command is a module with verbs")]
const fn verbs(module: CommandName) -> &'static [&'static [u8]] {
    match module {
        CommandName::Server | CommandName::Namespace => &[b"create", b"delete", b"list", b"set", b"get"],
        CommandName::Client => &[b"list", b"get", b"terminate"],
        CommandName::Device => &[b"list"],
        CommandName::SmPartitionModule => &[b"create", b"delete", b"list"],
        CommandName::Feature => &[b"enable", b"disable", b"describe"],
        CommandName::Memacct => &[b"set", b"describe"],
        // Its verbs are not documented, and no other command is a module.
        _ => &[],
    }
}

impl Module {
    /// Reads the words after a module's name.
    ///
    /// # Errors
    /// The first word that is not understood; `None` where one is missing.
    pub(super) fn parse<'a>(module: CommandName, words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Misused> {
        let mut words = words.peekable();
        let verb = words.next().ok_or(None)?;
        let knows = verbs(module).contains(&verb);
        if verb == b"help" || knows && words.peek().is_some_and(|word| *word == b"help") {
            return Ok(Self::Question(Query::Help(module)));
        }
        if !knows {
            return Err(Some(readable(verb)));
        }
        let words = Words::read(words)?;
        let wants_domains = words.option("locality-domains") == Some(b"true");
        match (module, verb) {
            (CommandName::Client, b"terminate") => {
                let words = words.only(&[], &[], 1)?;
                let pid = words.word(0)?;
                Ok(Self::Terminate { client: number(pid).ok_or_else(|| Some(readable(pid)))? })
            }
            (CommandName::Device, _) => {
                let words = words.only(&["server", "format"], &[], 0)?;
                Ok(Self::Devices { server: words.option("server").map(name).transpose()?, format: words.format()? })
            }
            (CommandName::Server, b"create" | b"delete" | b"set") => {
                let change = Change::of_server(verb, words).ok_or(None)??;
                let needs = wants_domains.then_some(Self::Question(Query::Needs(LOCALITY_DOMAINS)));
                Ok(needs.unwrap_or(Self::Change(change)))
            }
            (CommandName::Namespace, b"create" | b"delete" | b"set") => {
                Change::of_namespace(verb, words).ok_or(None)?.map(Self::Change)
            }
            _ => Query::read(module, verb, words).map(Self::Question),
        }
    }
}

#[cfg(test)]
mod tests;
