//! The grammar of release 615's third interface, as far as it asks what there is or ends a client: `MODULE VERB`,
//! positional words, `--key=value` or `key=value`, and flags. `--key value` is understood, too, as all other options here are written.
//!
//! No release before has these words, so a daemon understands both interfaces at once. Like ReMPS's own commands, and
//! unlike the vendor's former ones, they are read strictly: a word that is not understood is an error and never passed
//! over.

use super::command::CommandName;
use super::report::{number, readable};

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

/// Declares what `get` can be asked for, in the order of the manual.
macro_rules! fields {
    ($(#[$doc:meta])* $name:ident: $($variant:ident $word:literal $what:literal,)+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $what] $variant,)+
        }

        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// As it is typed.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            fn parse(word: &[u8]) -> Option<Self> {
                Self::ALL.iter().copied().find(|field| field.word().as_bytes() == word)
            }
        }
    };
}

fields! {
    /// What is known of a server.
    ServerField:
    Name "name" "Its name.",
    Uid "uid" "The user that it runs as.",
    Pid "pid" "Its pid.",
    Status "status" "What it does.",
    PipeDirectory "pipe-directory" "Where its clients connect.",
    AllowedDevices "allowed-devices" "The GPUs that it may use.",
}

fields! {
    /// What is known of a client. The manual has `pci-id` and `linux-ns`, too.
    ClientField:
    Pid "pid" "Its pid.",
    Server "server" "The name of its server.",
    Device "device" "The numbers of its GPUs.",
    Namespace "maws-ns" "Its namespace of the server's.",
    Command "cmd" "Its command line.",
}

/// A question of the third interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Query {
    /// `server list [NAME] [--format FORMAT]`
    Servers {
        /// Only this one.
        name: Option<String>,
        /// How they are printed.
        format: Format,
    },
    /// `server get NAME FIELD`
    Server {
        /// Which.
        name: String,
        /// What of it.
        field: ServerField,
    },
    /// `client list [--server NAME] [--all] [--format FORMAT]`
    Clients {
        /// Only this one's; `None` is every server's, with `--all` and without it.
        server: Option<String>,
        /// How they are printed.
        format: Format,
    },
    /// `client get PID FIELD`
    Client {
        /// The client's process.
        pid: u32,
        /// What of it.
        field: ClientField,
    },
    /// `MODULE help`, `MODULE VERB help`
    Help(CommandName),
}

/// What is said in the third interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Module {
    /// A question.
    Question(Query),
    /// `client terminate PID`
    Terminate {
        /// The client's process.
        client: u32,
    },
}

/// The words after a verb.
#[derive(Default)]
struct Words<'a> {
    positional: Vec<&'a [u8]>,
    server: Option<&'a [u8]>,
    format: Option<&'a [u8]>,
    all: bool,
}

/// Why words are no question: the first that is not understood, or none where one is missing.
type Misused = Option<String>;

fn set<'a>(place: &mut Option<&'a [u8]>, value: &'a [u8], word: &[u8]) -> Result<(), Misused> {
    if place.replace(value).is_some() { Err(Some(readable(word))) } else { Ok(()) }
}

impl<'a> Words<'a> {
    fn read(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Misused> {
        let mut read = Self::default();
        let mut words = words;
        while let Some(word) = words.next() {
            let bare = word.strip_prefix(b"--").unwrap_or(word);
            if let Some(value) = bare.strip_prefix(b"server=") {
                set(&mut read.server, value, word)?;
            } else if let Some(value) = bare.strip_prefix(b"format=") {
                set(&mut read.format, value, word)?;
            } else if word == b"--server" {
                set(&mut read.server, words.next().ok_or(None)?, word)?;
            } else if word == b"--format" {
                set(&mut read.format, words.next().ok_or(None)?, word)?;
            } else if word == b"--all" {
                read.all = true;
            } else if word.starts_with(b"-") || word.contains(&b'=') {
                return Err(Some(readable(word)));
            } else {
                read.positional.push(word);
            }
        }
        Ok(read)
    }

    /// Nothing but what this verb takes: `options` of `--server`, `--all` and `--format`, and so many positional words.
    fn only(self, server: bool, all: bool, format: bool, positional: usize) -> Result<Self, Misused> {
        for (is_there, may_be, word) in [
            (self.server.is_some(), server, "--server"),
            (self.all, all, "--all"),
            (self.format.is_some(), format, "--format"),
        ] {
            if is_there && !may_be {
                return Err(Some(word.to_owned()));
            }
        }
        match self.positional.get(positional) {
            Some(extra) => Err(Some(readable(extra))),
            None => Ok(self),
        }
    }

    fn format(&self) -> Result<Format, Misused> {
        self.format.map_or(Ok(Format::TABLE), |value| Format::parse(value).ok_or_else(|| Some(readable(value))))
    }
}

/// A name of a server: lower-case letters, digits and underscores.
fn name(word: &[u8]) -> Result<String, Misused> {
    let is_one = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let text =
        std::str::from_utf8(word).ok().filter(|_| (1..=MAX_NAME).contains(&word.len()) && word.iter().all(is_one));
    text.map(str::to_owned).ok_or_else(|| Some(readable(word)))
}

impl Module {
    /// Reads the words after a module's name.
    ///
    /// # Errors
    /// The first word that is not understood; `None` where one is missing.
    pub(super) fn parse<'a>(module: CommandName, words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Misused> {
        let mut words = words.peekable();
        let verb = words.next().ok_or(None)?;
        let is_end = module == CommandName::Client && verb == b"terminate";
        let knows = is_end || [b"list".as_slice(), b"get"].contains(&verb);
        if verb == b"help" || knows && words.peek().is_some_and(|word| *word == b"help") {
            return Ok(Self::Question(Query::Help(module)));
        }
        if !knows {
            return Err(Some(readable(verb)));
        }
        let words = Words::read(words)?;
        if is_end {
            let words = words.only(false, false, false, 1)?;
            let pid = words.positional.first().ok_or(None)?;
            return Ok(Self::Terminate { client: number(pid).ok_or_else(|| Some(readable(pid)))? });
        }
        Query::read(module, verb, words).map(Self::Question)
    }
}

impl Query {
    fn read(module: CommandName, verb: &[u8], words: Words<'_>) -> Result<Self, Misused> {
        match (module, verb) {
            (CommandName::Server, b"list") => {
                let words = words.only(false, false, true, 1)?;
                let name = words.positional.first().map(|word| name(word)).transpose()?;
                Ok(Self::Servers { name, format: words.format()? })
            }
            (CommandName::Client, b"list") => {
                let words = words.only(true, true, true, 0)?;
                if words.all && words.server.is_some() {
                    return Err(Some("--all".to_owned()));
                }
                let server = words.server.map(name).transpose()?;
                Ok(Self::Clients { server, format: words.format()? })
            }
            _ => {
                let words = words.only(false, false, false, 2)?;
                let [of, field] = words.positional.as_slice() else { return Err(None) };
                let unknown = || Some(readable(field));
                if module == CommandName::Server {
                    let field = ServerField::parse(field).ok_or_else(unknown)?;
                    return Ok(Self::Server { name: name(of)?, field });
                }
                let field = ClientField::parse(field).ok_or_else(unknown)?;
                Ok(Self::Client { pid: number(of).ok_or_else(|| Some(readable(of)))?, field })
            }
        }
    }

    /// The module that is asked.
    #[must_use]
    pub const fn module(&self) -> CommandName {
        match self {
            Self::Servers { .. } | Self::Server { .. } => CommandName::Server,
            Self::Clients { .. } | Self::Client { .. } => CommandName::Client,
            Self::Help(module) => *module,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Report;
    use super::super::{Command, Personality};
    use super::*;

    fn parse(line: &str) -> Report {
        let Command::Report(report) = Command::parse(line.as_bytes(), Personality::V535) else {
            panic!("{line} is none of ours");
        };
        report
    }

    /// The questions of the manual's section "CLI Command Structure" (docs.nvidia.com, MPS 615, mpsv3-interface), and
    /// `key=value` in the place of `--key=value`, as it says.
    #[test]
    fn the_manuals_questions_are_understood() {
        let csv = Format { csv: true, header: false };
        for (line, query) in [
            ("server list", Query::Servers { name: None, format: Format::TABLE }),
            ("server list --format=csv,noheader", Query::Servers { name: None, format: csv }),
            ("server list format=csv,noheader uid_0", Query::Servers { name: Some("uid_0".into()), format: csv }),
            (
                "server get training pipe-directory",
                Query::Server { name: "training".into(), field: ServerField::PipeDirectory },
            ),
            ("server list --format csv,noheader", Query::Servers { name: None, format: csv }),
            ("client list --all", Query::Clients { server: None, format: Format::TABLE }),
            (
                "client list --server=training --format=csv,noheader",
                Query::Clients { server: Some("training".into()), format: csv },
            ),
            ("client get 51023 cmd", Query::Client { pid: 51023, field: ClientField::Command }),
            ("server help", Query::Help(CommandName::Server)),
            ("client get help", Query::Help(CommandName::Client)),
        ] {
            assert_eq!(parse(line), Report::Module(query), "{line}");
        }
        for format in ["table", "table,noheader", "csv"] {
            assert!(matches!(parse(&format!("client list --format={format}")), Report::Module(_)), "{format}");
        }
    }

    #[test]
    fn a_client_is_ended_by_its_pid_alone() {
        let command = Command::parse(b"client terminate 51023\n\0", Personality::V535);
        assert_eq!(command, Command::EndClient { client: 51023 });
        assert_eq!(command.name(), Some(CommandName::Client));
        assert_eq!(parse("client terminate help"), Report::Module(Query::Help(CommandName::Client)));
        for (line, named) in [
            ("client terminate", None),
            ("client terminate 0", Some("0")),
            ("client terminate -1", Some("-1")),
            ("client terminate 7x", Some("7x")),
            ("client terminate 7 8", Some("8")),
            ("client terminate 7 --server=a", Some("--server")),
            ("server terminate 7", Some("terminate")),
        ] {
            let Report::Misused { word, .. } = parse(line) else { panic!("{line} was understood") };
            assert_eq!(word.as_deref(), named, "{line}");
        }
    }

    #[test]
    fn a_word_that_is_not_understood_is_named_and_nothing_is_passed_over() {
        let long = format!("server list {}", "a".repeat(65));
        for (line, named) in [
            ("server", None),
            ("server get training", None),
            ("client get 7", None),
            ("server list --format", None),
            ("server start", Some("start")),
            ("server create training", Some("create")),
            ("server list a b", Some("b")),
            ("server list Training", Some("Training")),
            ("server list --server=a", Some("--server")),
            ("server list --all", Some("--all")),
            ("server list --format=xml", Some("xml")),
            ("server list --format=csv,header", Some("csv,header")),
            ("server list --format=csv --format=csv", Some("--format=csv")),
            ("server list --formt=csv", Some("--formt=csv")),
            ("server list colour=red", Some("colour=red")),
            ("server get training context-ids", Some("context-ids")),
            ("client list 7", Some("7")),
            ("client list --all --server=a", Some("--all")),
            ("client list --server=", Some("")),
            ("client list --server=../a", Some("../a")),
            ("client get 0 cmd", Some("0")),
            ("client get seven cmd", Some("seven")),
            ("client get 7 pci-id", Some("pci-id")),
            (long.as_str(), Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…")),
        ] {
            let Report::Misused { word, .. } = parse(line) else { panic!("{line} was understood") };
            assert_eq!(word.as_deref(), named, "{line}");
        }
    }
}
