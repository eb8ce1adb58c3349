//! The vendor's answers, word for word.
//!
//! Measured on 535, 550 and 555 without a GPU and on 580.159.04 with one; what nobody has measured says so. An answer
//! is a list of lines. Each is sent as one packet, and the program at the other end adds the line end; a line may hold
//! line ends of its own.

mod table;

use super::command::Command;
use super::personality::Personality;
pub use table::{
    ClientRow, DeviceRow, PartitionRow, PciAddress, SmDevice, client_on_device, device_clients_heading, device_query,
    lspart, ps_table,
};

/// The most bytes of text that the vendor's program takes from one packet; the rest of a longer one is lost.
pub const MAX_TEXT: usize = 4096;

/// `ps` when there is no server at all.
pub const NO_SERVER: &str = "Server not found";
/// `get_server_status` without a pid.
pub const PID_REQUIRED: &str = "A server PID is required";
/// `start_server` without a user.
pub const UID_REQUIRED: &str = "A user id (UID) is required to start a new server";
/// `quit` by somebody who may not.
pub const QUIT_REFUSED: &str = "Not enough privilege to execute quit command";
/// `terminate_client` that succeeded.
pub const TERMINATED: &str = "0";
/// `terminate_client` that failed, after the line that says why.
pub const NOT_TERMINATED: &str = "1";
/// `terminate_client` that was refused since 550: `CUDA_ERROR_NOT_PERMITTED`.
pub const NOT_PERMITTED: &str = "800";
/// `sm_partition` that is neither `add` nor `rm`; the vendor's text is not known, parsers look for `Failed`.
pub const SM_PARTITION_USAGE: &str =
    "Failed: expected sm_partition add DEVICE CHUNKS or sm_partition rm DEVICE PARTITION";
/// In the log only: a question for a limit that is not set.
pub const LOG_NO_DEFAULT_LIMIT: &str = "No default pinned memory limit set for the device!";

/// What a server does, as `get_server_status` says it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerStatus {
    /// It has not said that it is ready.
    Initializing,
    /// It serves.
    Active,
    /// A fatal fault, and clients hit by it still live.
    Fault,
}

impl ServerStatus {
    /// The vendor's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Initializing => "INITIALIZING",
            Self::Active => "ACTIVE",
            Self::Fault => "FAULT",
        }
    }
}

/// The answer to what is no command.
#[must_use]
pub fn unknown_command(word: &str) -> String {
    format!("Unknown command \"{word}\"")
}

/// No server has this pid.
#[must_use]
pub fn server_not_found(pid: i32) -> String {
    format!("Server {pid} not found")
}

/// `ps -p PID` for a pid that is no server: the vendor says it twice, the second time with a line end too many.
#[must_use]
pub fn ps_server_not_found(pid: i32) -> Vec<String> {
    vec![server_not_found(pid), format!("{}\n", server_not_found(pid))]
}

/// `terminate_client` for a pid that is no server.
#[must_use]
pub fn terminate_server_not_found(pid: i32) -> Vec<String> {
    vec![server_not_found(pid), format!("{}!", server_not_found(pid)), NOT_TERMINATED.to_owned()]
}

/// `terminate_client` for a process that is no client of the server.
#[must_use]
pub fn terminate_invalid_process(pid: i32) -> Vec<String> {
    vec![format!("Invalid process {pid}!"), NOT_TERMINATED.to_owned()]
}

/// A percentage, `%.1f`.
#[must_use]
pub fn percentage(value: f64) -> String {
    format!("{value:.1}")
}

/// The first words of every refusal but that of `quit`.
pub const INSUFFICIENT_PRIVILEGES: &str = "Insufficient privileges for UID";

/// The start of every refusal but that of `quit`, and all of it in 535.
#[must_use]
pub fn insufficient_privileges(uid: u32) -> String {
    format!("{INSUFFICIENT_PRIVILEGES} {uid}")
}

/// `set_default_*` by somebody who is neither root nor the daemon's user. 535 refuses nobody; the misspelling is the
/// vendor's.
#[must_use]
pub fn defaults_refused(uid: u32, personality: Personality) -> String {
    with_reason(
        uid,
        match personality {
            Personality::V535 => "",
            Personality::V550 | Personality::V555 => {
                ". Control deamon settings can only be modified by the user started it or by the root user."
            }
            Personality::V580 | Personality::V595 => {
                ". Control deamon settings can only be modified by the user who started it or by the root user."
            }
        },
    )
}

fn with_reason(uid: u32, reason: &str) -> String {
    format!("{}{reason}", insufficient_privileges(uid))
}

/// The first line of the refusal that fits a command; measured on 535 and 550 with a server of another user, and on 580
/// with root's server, where everything but `quit` is refused like changing the defaults.
#[must_use]
pub fn refused(command: &Command, uid: u32, personality: Personality) -> String {
    let since_550 = |reason| with_reason(uid, if personality >= Personality::V550 { reason } else { "" });
    match command {
        Command::Quit { .. } => QUIT_REFUSED.to_owned(),
        Command::SetDefaultActiveThreadPercentage { .. }
        | Command::SetDefaultDevicePinnedMemLimit { .. }
        | Command::SetDefaultClientPriority { .. }
        | Command::Change(_)
        | Command::SmPartition(_) => defaults_refused(uid, personality),
        Command::StartServer { .. }
        | Command::ShutdownServer { .. }
        | Command::SetActiveThreadPercentage { .. }
        | Command::SetDevicePinnedMemLimit { .. }
        | Command::TerminateClient { .. }
            if personality >= Personality::V580 =>
        {
            defaults_refused(uid, personality)
        }
        Command::StartServer { .. } => since_550(". Only the root user may start server for another user."),
        Command::ShutdownServer { .. } => since_550(". Only the root user may shutdown another user's server."),
        Command::SetActiveThreadPercentage { .. } | Command::SetDevicePinnedMemLimit { .. } => {
            since_550(". Only the root user may change settings for another user's server.")
        }
        Command::TerminateClient { .. } => {
            since_550(". Only the root user may terminate clients on another user's server.")
        }
        Command::GetServerList
        | Command::EndClient { .. }
        | Command::ListDevices { .. }
        | Command::GetServerStatus { .. }
        | Command::GetClientList { .. }
        | Command::GetDeviceClientList { .. }
        | Command::GetDefaultActiveThreadPercentage
        | Command::GetActiveThreadPercentage { .. }
        | Command::GetDefaultDevicePinnedMemLimit { .. }
        | Command::GetDevicePinnedMemLimit { .. }
        | Command::GetDefaultClientPriority
        | Command::Ps { .. }
        | Command::DeviceQuery { .. }
        | Command::Lspart
        | Command::Report(_)
        | Command::Unknown(_) => insufficient_privileges(uid),
    }
}

/// The whole refusal: `terminate_client` ends with a status as it always does.
#[must_use]
pub fn refusal(command: &Command, uid: u32, personality: Personality) -> Vec<String> {
    let mut lines = vec![refused(command, uid, personality)];
    if matches!(command, Command::TerminateClient { .. }) {
        let status = if personality >= Personality::V550 { NOT_PERMITTED } else { NOT_TERMINATED };
        lines.push(status.to_owned());
    }
    lines
}

/// `sm_partition add` that the driver refused; parsers look for `Failed`.
#[must_use]
pub fn partition_refused(chunks: u32) -> String {
    format!(
        "Failed to fulfill the requested SM partition of {chunks} chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_printf_rounds_them() {
        for (value, want) in [(100.0, "100.0"), (33.35, "33.4"), (0.04, "0.0"), (0.25, "0.2"), (66.666_666, "66.7")] {
            assert_eq!(percentage(value), want);
        }
    }

    #[test]
    fn refusals_use_the_words_of_the_release() {
        let refused = |line: &str, personality| {
            let command = Command::parse(line.as_bytes(), personality);
            refusal(&command, 65534, personality).join("/")
        };
        let short = "Insufficient privileges for UID 65534";
        for (line, reason) in [
            (
                "set_default_client_priority 1",
                "Control deamon settings can only be modified by the user started it or by the root user.",
            ),
            ("start_server -uid 0", "Only the root user may start server for another user."),
            ("shutdown_server 7", "Only the root user may shutdown another user's server."),
            ("set_active_thread_percentage 7 5", "Only the root user may change settings for another user's server."),
            ("set_device_pinned_mem_limit 7 0 1G", "Only the root user may change settings for another user's server."),
            ("terminate_client 7 2", "Only the root user may terminate clients on another user's server./800"),
        ] {
            assert_eq!(refused(line, Personality::V550), format!("{short}. {reason}"), "{line}");
        }
        assert_eq!(
            refused("set_default_active_thread_percentage 70", Personality::V580),
            format!(
                "{short}. Control deamon settings can only be modified by the user who started it or by the root user."
            )
        );
        assert_eq!(refused("shutdown_server 7", Personality::V535), short);
        assert_eq!(refused("terminate_client 7 2", Personality::V535), format!("{short}/1"));
        assert_eq!(refused("quit", Personality::V535), "Not enough privilege to execute quit command");
    }
}
