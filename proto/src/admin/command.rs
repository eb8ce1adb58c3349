//! A line of the user interface as a command, read as leniently as the vendor reads it.
//!
//! Measured on 535 and 550: words are separated by C white space, the line ends at a NUL, case matters, words too
//! many are ignored, and numbers are read by `atoi` and `strtod`, so `12abc` is 12 and `abc` is 0 or absent.

mod arguments;
mod names;

use super::limits::{
    DeviceKey, InvalidDevice, InvalidMemLimit, InvalidPercentage, InvalidPriority, MemLimit, Percentage, Priority,
};
use super::module::{Change, Format, Module};
use super::number::{atoi, int_prefix, is_space};
use super::personality::Personality;
use super::report::Report;
pub use arguments::SmPartition;
use arguments::{asked_device, device_query, seconds, sm_partition, user};
pub use names::CommandName;

/// A command with its arguments. A pid is what the user typed, cut to 32 bits; 0 stands for none.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// `get_server_list`
    GetServerList,
    /// `get_server_status PID`
    GetServerStatus {
        /// `None` without a number: the answer asks for one.
        server: Option<i32>,
    },
    /// `start_server -uid UID [-mlopart]`
    StartServer {
        /// `None` when no user can be read.
        uid: Option<u32>,
        /// Whether clients get one device for each locality domain.
        mlopart: bool,
    },
    /// `shutdown_server PID [-f]`
    ShutdownServer {
        /// The server.
        server: i32,
        /// Without waiting for its clients.
        force: bool,
    },
    /// `get_client_list PID`
    GetClientList {
        /// The server.
        server: i32,
    },
    /// `get_device_client_list [PID]`
    GetDeviceClientList {
        /// `None` for every server; the vendor takes 0 and a word without a number as none too.
        server: Option<i32>,
    },
    /// `set_default_active_thread_percentage PERCENTAGE`
    SetDefaultActiveThreadPercentage {
        /// The new value; an invalid one leaves the old one in place.
        percentage: Result<Percentage, InvalidPercentage>,
    },
    /// `get_default_active_thread_percentage`
    GetDefaultActiveThreadPercentage,
    /// `set_active_thread_percentage PID PERCENTAGE`
    SetActiveThreadPercentage {
        /// The server.
        server: i32,
        /// The new value; an invalid one leaves the old one in place.
        percentage: Result<Percentage, InvalidPercentage>,
    },
    /// `get_active_thread_percentage PID`
    GetActiveThreadPercentage {
        /// The server.
        server: i32,
    },
    /// `set_default_device_pinned_mem_limit DEVICE LIMIT`
    SetDefaultDevicePinnedMemLimit {
        /// The device.
        device: Result<DeviceKey, InvalidDevice>,
        /// The limit.
        limit: Result<MemLimit, InvalidMemLimit>,
    },
    /// `get_default_device_pinned_mem_limit DEVICE`
    GetDefaultDevicePinnedMemLimit {
        /// The device; the vendor reads a word that is neither number nor UUID as 0, and up to 555 so no word at all.
        device: Result<DeviceKey, InvalidDevice>,
    },
    /// `set_device_pinned_mem_limit PID DEVICE LIMIT`
    SetDevicePinnedMemLimit {
        /// The server.
        server: i32,
        /// The device.
        device: Result<DeviceKey, InvalidDevice>,
        /// The limit.
        limit: Result<MemLimit, InvalidMemLimit>,
    },
    /// `get_device_pinned_mem_limit PID DEVICE`
    GetDevicePinnedMemLimit {
        /// The server.
        server: i32,
        /// The device.
        device: Result<DeviceKey, InvalidDevice>,
    },
    /// `set_default_client_priority PRIORITY`
    SetDefaultClientPriority {
        /// The new value.
        priority: Result<Priority, InvalidPriority>,
    },
    /// `get_default_client_priority`
    GetDefaultClientPriority,
    /// `terminate_client SERVER_PID CLIENT_PID`
    TerminateClient {
        /// The server.
        server: i32,
        /// The client.
        client: i32,
    },
    /// `ps [-p PID]`
    Ps {
        /// `None` for every server.
        server: Option<i32>,
    },
    /// `device_query [PID] [--csv]`
    DeviceQuery {
        /// `None` for the daemon's own view.
        server: Option<i32>,
        /// Comma-separated values instead of a table.
        csv: bool,
    },
    /// `sm_partition …`
    SmPartition(SmPartition),
    /// `lspart`
    Lspart,
    /// `quit [-t SECONDS]`
    Quit {
        /// Seconds after which servers are forced; `None` waits for their clients.
        timeout_s: Option<u32>,
    },
    /// `client terminate PID`
    EndClient {
        /// The client.
        client: u32,
    },
    /// `device list`
    ListDevices {
        /// As this server sees them; `None` is as the daemon and every named server do.
        server: Option<String>,
        /// How they are printed.
        format: Format,
    },
    /// What changes named servers and namespaces.
    Change(Change),
    /// One of ReMPS's own commands.
    Report(Report),
    /// Anything else: the first word, bytes that are no UTF-8 replaced.
    Unknown(String),
}

impl Command {
    /// Reads one line, with or without its line end and its NUL. Never fails: what is no command is [`Self::Unknown`].
    #[must_use]
    pub fn parse(line: &[u8], personality: Personality) -> Self {
        let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut words = line.split(|byte| is_space(*byte)).filter(|word| !word.is_empty());
        let verb = words.next().unwrap_or_default();
        let name = CommandName::ALL.iter().find(|name| name.spelling().as_bytes() == verb);
        match name {
            Some(name) if personality.knows(*name) => Self::with_arguments(*name, words, personality),
            _ => Self::Unknown(String::from_utf8_lossy(verb).into_owned()),
        }
    }

    fn with_arguments<'a>(
        name: CommandName,
        mut words: impl Iterator<Item = &'a [u8]>,
        personality: Personality,
    ) -> Self {
        // Words are taken in order; a missing one reads as an empty one.
        let mut word = || words.next().unwrap_or_default();
        match name {
            CommandName::GetServerList => Self::GetServerList,
            CommandName::GetServerStatus => Self::GetServerStatus { server: int_prefix(word()) },
            CommandName::StartServer => {
                let uid = if word() == b"-uid" { user(word()) } else { None };
                Self::StartServer { uid, mlopart: personality.has_mlopart() && word() == b"-mlopart" }
            }
            CommandName::ShutdownServer => Self::ShutdownServer { server: atoi(word()), force: word() == b"-f" },
            CommandName::GetClientList => Self::GetClientList { server: atoi(word()) },
            CommandName::GetDeviceClientList => {
                Self::GetDeviceClientList { server: Some(atoi(word())).filter(|pid| *pid != 0) }
            }
            CommandName::SetDefaultActiveThreadPercentage => {
                Self::SetDefaultActiveThreadPercentage { percentage: Percentage::parse(word()) }
            }
            CommandName::GetDefaultActiveThreadPercentage => Self::GetDefaultActiveThreadPercentage,
            CommandName::SetActiveThreadPercentage => {
                Self::SetActiveThreadPercentage { server: atoi(word()), percentage: Percentage::parse(word()) }
            }
            CommandName::GetActiveThreadPercentage => Self::GetActiveThreadPercentage { server: atoi(word()) },
            CommandName::SetDefaultDevicePinnedMemLimit => Self::SetDefaultDevicePinnedMemLimit {
                device: DeviceKey::parse(word()),
                limit: MemLimit::parse(word()),
            },
            CommandName::GetDefaultDevicePinnedMemLimit => {
                Self::GetDefaultDevicePinnedMemLimit { device: asked_device(word(), personality) }
            }
            CommandName::SetDevicePinnedMemLimit => Self::SetDevicePinnedMemLimit {
                server: atoi(word()),
                device: DeviceKey::parse(word()),
                limit: MemLimit::parse(word()),
            },
            CommandName::GetDevicePinnedMemLimit => {
                Self::GetDevicePinnedMemLimit { server: atoi(word()), device: asked_device(word(), personality) }
            }
            CommandName::SetDefaultClientPriority => {
                Self::SetDefaultClientPriority { priority: Priority::parse(word()) }
            }
            CommandName::GetDefaultClientPriority => Self::GetDefaultClientPriority,
            CommandName::TerminateClient => Self::TerminateClient { server: atoi(word()), client: atoi(word()) },
            CommandName::Ps => Self::Ps {
                server: word().strip_prefix(b"-p").map(|rest| atoi(if rest.is_empty() { word() } else { rest })),
            },
            CommandName::DeviceQuery => device_query(words),
            CommandName::SmPartition => Self::SmPartition(sm_partition([word(), word(), word()])),
            CommandName::Lspart => Self::Lspart,
            CommandName::Quit => Self::Quit { timeout_s: if word() == b"-t" { seconds(word()) } else { None } },
            CommandName::Status
            | CommandName::GetFaultList
            | CommandName::GetFaultEvents
            | CommandName::GetClientState
            | CommandName::GetChannelList
            | CommandName::Events
            | CommandName::Vault
            | CommandName::AtRest
            | CommandName::Metrics => Self::Report(Report::parse(name, words)),
            CommandName::Server
            | CommandName::Namespace
            | CommandName::Client
            | CommandName::Device
            | CommandName::SmPartitionModule
            | CommandName::Feature
            | CommandName::Memacct
            | CommandName::ContextShare => match Module::parse(name, words) {
                Ok(Module::Question(query)) => Self::Report(Report::Module(query)),
                Ok(Module::Terminate { client }) => Self::EndClient { client },
                Ok(Module::Devices { server, format }) => Self::ListDevices { server, format },
                Ok(Module::Change(change)) => Self::Change(change),
                Err(word) => Self::Report(Report::Misused { name, word }),
            },
        }
    }

    /// Whether somebody only looks, with a command that the vendor's daemon does not have: whoever watches the daemon does
    /// so all the time.
    #[must_use]
    pub const fn is_look(&self) -> bool {
        matches!(self, Self::Report(report) if !matches!(report, Report::Module(_) | Report::Misused { .. }))
    }

    /// The command's name; `None` for [`Self::Unknown`].
    #[must_use]
    pub const fn name(&self) -> Option<CommandName> {
        Some(match self {
            Self::GetServerList => CommandName::GetServerList,
            Self::GetServerStatus { .. } => CommandName::GetServerStatus,
            Self::StartServer { .. } => CommandName::StartServer,
            Self::ShutdownServer { .. } => CommandName::ShutdownServer,
            Self::GetClientList { .. } => CommandName::GetClientList,
            Self::GetDeviceClientList { .. } => CommandName::GetDeviceClientList,
            Self::SetDefaultActiveThreadPercentage { .. } => CommandName::SetDefaultActiveThreadPercentage,
            Self::GetDefaultActiveThreadPercentage => CommandName::GetDefaultActiveThreadPercentage,
            Self::SetActiveThreadPercentage { .. } => CommandName::SetActiveThreadPercentage,
            Self::GetActiveThreadPercentage { .. } => CommandName::GetActiveThreadPercentage,
            Self::SetDefaultDevicePinnedMemLimit { .. } => CommandName::SetDefaultDevicePinnedMemLimit,
            Self::GetDefaultDevicePinnedMemLimit { .. } => CommandName::GetDefaultDevicePinnedMemLimit,
            Self::SetDevicePinnedMemLimit { .. } => CommandName::SetDevicePinnedMemLimit,
            Self::GetDevicePinnedMemLimit { .. } => CommandName::GetDevicePinnedMemLimit,
            Self::SetDefaultClientPriority { .. } => CommandName::SetDefaultClientPriority,
            Self::GetDefaultClientPriority => CommandName::GetDefaultClientPriority,
            Self::TerminateClient { .. } => CommandName::TerminateClient,
            Self::Ps { .. } => CommandName::Ps,
            Self::DeviceQuery { .. } => CommandName::DeviceQuery,
            Self::SmPartition(_) => CommandName::SmPartition,
            Self::Lspart => CommandName::Lspart,
            Self::Quit { .. } => CommandName::Quit,
            Self::EndClient { .. } => CommandName::Client,
            Self::ListDevices { .. } => CommandName::Device,
            Self::Change(change) if change.is_of_namespace() => CommandName::Namespace,
            Self::Change(_) => CommandName::Server,
            Self::Report(report) => report.name(),
            Self::Unknown(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests;
