//! The grammar of release 615's third interface: `MODULE VERB`, at most three positional words, `--key=value` or
//! `key=value`, and flags. `--key value` is understood, too, as all other options here are written.
//!
//! No release before has these words, so a daemon understands both interfaces at once. Like ReMPS's own commands, and
//! unlike the vendor's former ones, they are read strictly: a word that is not understood is an error and never passed
//! over. [`change`] has what changes servers and namespaces, [`needs`]
//! what takes a later driver, [`words`] what all verbs are read with.

pub mod change;
pub mod needs;
mod words;

use super::command::CommandName;
use super::report::{number, readable};
pub use change::{Change, Limits};
use needs::{FEATURES_SINCE, LOCALITY_DOMAINS, PARTITIONS_SINCE};
pub use needs::{Feature, Need};
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
    /// What is known of a client.
    ClientField:
    Pid "pid" "Its pid.",
    Server "server" "The name of its server.",
    Device "device" "The numbers of its GPUs.",
    PciId "pci-id" "The addresses of its GPUs on the bus.",
    LinuxNamespace "linux-ns" "The inode number of its PID namespace.",
    Namespace "maws-ns" "Its namespace of the server's.",
    Command "cmd" "Its command line.",
}

fields! {
    /// What is known of a namespace.
    NamespaceField:
    Name "name" "Its name.",
    Server "server" "The name of its server.",
    ServerStatus "server-status" "What its server does.",
    PinnedMemoryLimit "pinned-memory-limit" "Device memory that a client of it may have.",
    ActiveThreadPercentage "active-thread-percentage" "The share of threads that its clients have.",
    ClientPriority "client-priority" "The priority of its clients.",
    PipeDirectory "pipe-directory" "Where its clients connect.",
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
    /// `namespace list [NAME] [--server NAME] [--format FORMAT]`
    Namespaces {
        /// Only those of this name.
        name: Option<String>,
        /// Only this server's.
        server: Option<String>,
        /// How they are printed.
        format: Format,
    },
    /// `namespace get NAME SERVER FIELD`
    Namespace {
        /// Which.
        name: String,
        /// Whose.
        server: String,
        /// What of it.
        field: NamespaceField,
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
    /// `sm-partition list [--server NAME] [--device DEVICE] [--all] [--format FORMAT]`: there are none.
    Partitions {
        /// Only this server's.
        server: Option<String>,
        /// How they are printed.
        format: Format,
    },
    /// `feature describe [FEATURE] [--format FORMAT]`
    Features {
        /// Only this one.
        feature: Option<Feature>,
        /// How they are printed.
        format: Format,
    },
    /// What only a later driver's server can do.
    Needs(Need),
    /// `MODULE help`, `MODULE VERB help`
    Help(CommandName),
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

impl Query {
    fn read(module: CommandName, verb: &[u8], words: Words<'_>) -> Result<Self, Misused> {
        match (module, verb) {
            (CommandName::Server, b"list") => {
                let words = words.only(&["format"], &[], 1)?;
                let name = words.positional.first().map(|word| name(word)).transpose()?;
                Ok(Self::Servers { name, format: words.format()? })
            }
            (CommandName::Namespace, b"list") => {
                let words = words.only(&["server", "format"], &[], 1)?;
                let namespace = words.positional.first().map(|word| name(word)).transpose()?;
                let server = words.option("server").map(name).transpose()?;
                Ok(Self::Namespaces { name: namespace, server, format: words.format()? })
            }
            (CommandName::Namespace, _) => {
                let words = words.only(&[], &[], 3)?;
                let [of, server, field] = words.positional.as_slice() else { return Err(None) };
                let field = NamespaceField::parse(field).ok_or_else(|| Some(readable(field)))?;
                Ok(Self::Namespace { name: name(of)?, server: name(server)?, field })
            }
            (CommandName::Client, b"list") => {
                let words = words.only(&["server", "format"], &["all"], 0)?;
                let server = words.option("server").map(name).transpose()?;
                if words.has("all") && server.is_some() {
                    return Err(Some("--all".to_owned()));
                }
                Ok(Self::Clients { server, format: words.format()? })
            }
            (CommandName::SmPartitionModule, b"list") => {
                let words = words.only(&["server", "device", "format"], &["all"], 0)?;
                let server = words.option("server").map(name).transpose()?;
                Ok(Self::Partitions { server, format: words.format()? })
            }
            (CommandName::SmPartitionModule, b"create") => {
                let words = words.only(&["server", "device", "chunks", "include-remainder"], &[], 1)?;
                words.value("chunks", number)?.ok_or(None)?;
                words.value("include-remainder", change::boolean)?;
                Self::partition("sm-partition create", &words)
            }
            (CommandName::SmPartitionModule, _) => {
                let words = words.only(&["server", "device"], &[], 1)?;
                Self::partition("sm-partition delete", &words)
            }
            (CommandName::Feature, b"describe") => {
                let words = words.only(&["format"], &[], 1)?;
                let feature = words.positional.first().map(|word| Feature::parse(word)).transpose()?;
                Ok(Self::Features { feature, format: words.format()? })
            }
            (CommandName::Feature, _) => {
                let feature = Feature::parse(words.only(&[], &[], 1)?.word(0)?)?;
                let what = if feature == Feature::Memacct { "feature memacct" } else { "feature context-share" };
                Ok(Self::Needs(Need { module, what, since: FEATURES_SINCE }))
            }
            (CommandName::Memacct, b"set") => {
                let words = words.only(&["audit_log"], &[], 0)?;
                words.value("audit_log", change::boolean)?.ok_or(None)?;
                Ok(Self::Needs(Need { module, what: "memacct set", since: FEATURES_SINCE }))
            }
            (CommandName::Memacct, _) => {
                words.only(&[], &[], 0)?;
                Ok(Self::Needs(Need { module, what: "memacct describe", since: FEATURES_SINCE }))
            }
            _ => {
                let words = words.only(&[], &[], 2)?;
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

    /// What is asked of a partition, which names one, its server and its device.
    fn partition(what: &'static str, words: &Words<'_>) -> Result<Self, Misused> {
        name(words.word(0)?)?;
        name(words.option("server").ok_or(None)?)?;
        words.option("device").ok_or(None)?;
        Ok(Self::Needs(Need { module: CommandName::SmPartitionModule, what, since: PARTITIONS_SINCE }))
    }

    /// The module that is asked.
    #[must_use]
    pub const fn module(&self) -> CommandName {
        match self {
            Self::Servers { .. } | Self::Server { .. } => CommandName::Server,
            Self::Namespaces { .. } | Self::Namespace { .. } => CommandName::Namespace,
            Self::Clients { .. } | Self::Client { .. } => CommandName::Client,
            Self::Partitions { .. } => CommandName::SmPartitionModule,
            Self::Features { .. } => CommandName::Feature,
            Self::Needs(need) => need.module,
            Self::Help(module) => *module,
        }
    }
}

#[cfg(test)]
mod tests;
