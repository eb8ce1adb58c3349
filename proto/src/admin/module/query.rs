//! The questions of the third interface: what each is about, and how its words are read.

use super::change;
use super::fields::{ClientField, NamespaceField, ServerField};
use super::needs::{FEATURES_SINCE, Feature, Need, PARTITIONS_SINCE};
use super::words::{Misused, Words};
use super::{Format, name};
use crate::admin::command::CommandName;
use crate::admin::report::{number, readable};

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

impl Query {
    pub(super) fn read(module: CommandName, verb: &[u8], words: Words<'_>) -> Result<Self, Misused> {
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
