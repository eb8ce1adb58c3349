//! The commands' names, with what the help text says of each and the first release that has it.

use crate::admin::personality::Personality;

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
