//! A line of the user interface as a command, read as leniently as the vendor reads it.
//!
//! Measured on 535 and 550: words are separated by C white space, the line ends at a NUL, case matters, words too
//! many are ignored, and numbers are read by `atoi` and `strtod`, so `12abc` is 12 and `abc` is 0 or absent.

mod arguments;

use super::limits::{
    DeviceKey, InvalidDevice, InvalidMemLimit, InvalidPercentage, InvalidPriority, MemLimit, Percentage, Priority,
};
use super::module::{Change, Format, Module};
use super::number::{atoi, int_prefix, is_space};
use super::personality::Personality;
use super::report::Report;
pub use arguments::SmPartition;
use arguments::{asked_device, device_query, seconds, sm_partition, user};

/// Declares the commands with their spelling, their first release, their synopsis and one line of help.
macro_rules! command_names {
    ($( $variant:ident $spelling:literal $since:ident $arguments:literal $help:literal; )+) => {
        /// The name of a command.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum CommandName {
            $( #[doc = concat!("`", $spelling, " ", $arguments, "`")] $variant, )+
        }

        impl CommandName {
            /// Every command, in the order of the help text.
            pub const ALL: &[Self] = &[$( Self::$variant, )+];

            /// The word that the user types.
            #[must_use]
            pub const fn spelling(self) -> &'static str {
                match self { $( Self::$variant => $spelling, )+ }
            }

            /// The arguments, as a synopsis.
            #[must_use]
            pub const fn arguments(self) -> &'static str {
                match self { $( Self::$variant => $arguments, )+ }
            }

            /// What the command does, in one line.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $( Self::$variant => $help, )+ }
            }

            /// The first release measured that has the command.
            #[must_use]
            pub const fn since(self) -> Personality {
                match self { $( Self::$variant => Personality::$since, )+ }
            }
        }
    };
}

command_names! {
    GetServerList "get_server_list" V535 "" "List the pids of all servers.";
    GetServerStatus "get_server_status" V550 "PID" "Show the status of a server.";
    StartServer "start_server" V535 "-uid UID [-mlopart]" "Start a server for a user.";
    ShutdownServer "shutdown_server" V535 "PID [-f]" "End a server once its clients have left, with -f at once.";
    GetClientList "get_client_list" V535 "PID" "List the pids of the clients of a server.";
    GetDeviceClientList "get_device_client_list" V535 "[PID]" "List the devices and the clients on each.";
    SetDefaultActiveThreadPercentage "set_default_active_thread_percentage" V535 "PERCENTAGE"
        "Set the share of threads of servers to come.";
    GetDefaultActiveThreadPercentage "get_default_active_thread_percentage" V535 ""
        "Show the share of threads of servers to come.";
    SetActiveThreadPercentage "set_active_thread_percentage" V535 "PID PERCENTAGE"
        "Set the share of threads of a server's clients to come.";
    GetActiveThreadPercentage "get_active_thread_percentage" V535 "PID" "Show the share of threads of a server.";
    SetDefaultDevicePinnedMemLimit "set_default_device_pinned_mem_limit" V535 "DEVICE LIMIT"
        "Limit the device memory of clients of servers to come.";
    GetDefaultDevicePinnedMemLimit "get_default_device_pinned_mem_limit" V535 "DEVICE"
        "Show the memory limit of servers to come.";
    SetDevicePinnedMemLimit "set_device_pinned_mem_limit" V535 "PID DEVICE LIMIT"
        "Limit the device memory of a server's clients to come.";
    GetDevicePinnedMemLimit "get_device_pinned_mem_limit" V535 "PID DEVICE" "Show the memory limit of a server.";
    SetDefaultClientPriority "set_default_client_priority" V535 "PRIORITY" "Set the priority of clients to come.";
    GetDefaultClientPriority "get_default_client_priority" V535 "" "Show the priority of clients to come.";
    TerminateClient "terminate_client" V535 "SERVER_PID CLIENT_PID" "End a client's work on the GPU.";
    Ps "ps" V535 "[-p PID]" "Show a snapshot of the clients.";
    DeviceQuery "device_query" V580 "[PID] [--csv]" "Show the devices.";
    SmPartition "sm_partition" V595 "add DEVICE CHUNKS | rm DEVICE PARTITION" "Make or remove a static SM partition.";
    Lspart "lspart" V595 "" "List the static SM partitions.";
    Quit "quit" V535 "[-t SECONDS]" "End all servers and the daemon.";
    // These are ReMPS's own, whichever release is played.
    Status "status" V535 "[-o table|wide|json] [--utc] [--wide] [--json] [--exit-code] [--memory]"
        "Show the daemon, its servers and its clients.";
    GetFaultList "get_fault_list" V535 "[-n COUNT] [-o table|wide|json] [--utc] [--wide] [--json]"
        "Show who caused the latest faults.";
    GetFaultEvents "get_fault_events" V535 "FAULT [-o table|wide|json] [--utc] [--json]"
        "Show the events of a fault, from its first sign to who was served again.";
    GetClientState "get_client_state" V535 "PID [-o table|wide|json] [--utc] [--json]"
        "Show what is known of a client.";
    GetChannelList "get_channel_list" V535 "[PID] [-o table|wide|json] [--utc] [--wide] [--json]"
        "Show the contexts and channels of clients.";
    Events "events" V535 "[--follow] [-n COUNT] [-o table|wide|json] [--utc] [--json]"
        "Show the latest events, with --follow as they come.";
    Vault "vault" V535 "list [-o table|wide|json] [--utc] [--wide] [--json]"
        "Show whose GPU memory is kept.";
    AtRest "at-rest" V535 "PID|--user UID|--server PID [--wait SECONDS] [-o table|wide|json] [--utc] [--json]"
        "Say whether work can still write to GPU memory, and by what proof not.";
    Metrics "metrics" V535 "[-o table|wide|json] [--utc]" "Print the metrics for Prometheus.";
    // Of release 615's third interface.
    Server "server" V535 "create|delete|list|set|get [NAME] [OPTION=VALUE ...]"
        "Make, show, change and remove servers by their names.";
    Namespace "namespace" V535 "create|delete|list|set|get [NAME] [OPTION=VALUE ...]"
        "Make, show, change and remove namespaces of servers.";
    Client "client" V535 "list [--server NAME] [--all] [--format FORMAT] | get PID FIELD | terminate PID"
        "Show the clients of servers, or end the work of one on the GPU.";
    Device "device" V535 "list [--server NAME] [--format FORMAT]" "Show the devices as servers see them.";
    SmPartitionModule "sm-partition" V535 "create|delete|list [NAME] [OPTION=VALUE ...]"
        "Show the static SM partitions of servers.";
    Feature "feature" V535 "enable|disable|describe [FEATURE]" "Show what a later driver can do besides.";
    Memacct "memacct" V535 "set audit_log=true|false | describe" "Accounts of memory by cgroup, of a later driver.";
    ContextShare "context-share" V535 "help" "Contexts that processes share, of a later driver.";
}

impl std::fmt::Display for CommandName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.spelling())
    }
}

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
