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
/// `sm_partition` that is neither `add` nor `rm`; the vendor's text is not known, parsers look for `Failed`.
pub const SM_PARTITION_USAGE: &str =
    "Failed: expected sm_partition add DEVICE CHUNKS or sm_partition rm DEVICE PARTITION";
/// In the log only: a question for a limit that is not set.
pub const LOG_NO_DEFAULT_LIMIT: &str = "No default pinned memory limit set for the device!";
/// In the log only: `Removed Shm file at `, with nothing behind it when the server made none.
pub const LOG_REMOVED_SHM: &str = "Removed Shm file at ";

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

/// `start_server` for another user by somebody who is not root.
#[must_use]
pub fn start_refused(uid: u32, personality: Personality) -> String {
    let mut text = insufficient_privileges(uid);
    if personality >= Personality::V550 {
        text.push_str(". Only the root user may start server for another user.");
    }
    text
}

/// The start of every refusal, and in ReMPS all of it for what only root, the daemon's user or the owner may do.
#[must_use]
pub fn insufficient_privileges(uid: u32) -> String {
    format!("Insufficient privileges for UID {uid}")
}

/// `set_default_*` by somebody who is neither root nor the daemon's user. The misspelling is 580's; the releases
/// before it refuse nobody, so that ReMPS answers there in the words they use elsewhere.
#[must_use]
pub fn defaults_refused(uid: u32, personality: Personality) -> String {
    let mut text = insufficient_privileges(uid);
    if personality.guards_defaults() {
        text.push_str(". Control deamon settings can only be modified by the user who started it or by the root user.");
    }
    text
}

/// The refusal that fits a command.
#[must_use]
pub fn refused(command: &Command, uid: u32, personality: Personality) -> String {
    match command {
        Command::Quit { .. } => QUIT_REFUSED.to_owned(),
        Command::SetDefaultActiveThreadPercentage { .. }
        | Command::SetDefaultDevicePinnedMemLimit { .. }
        | Command::SetDefaultClientPriority { .. } => defaults_refused(uid, personality),
        Command::StartServer { .. } => start_refused(uid, personality),
        Command::GetServerList
        | Command::GetServerStatus { .. }
        | Command::ShutdownServer { .. }
        | Command::GetClientList { .. }
        | Command::GetDeviceClientList { .. }
        | Command::GetDefaultActiveThreadPercentage
        | Command::SetActiveThreadPercentage { .. }
        | Command::GetActiveThreadPercentage { .. }
        | Command::GetDefaultDevicePinnedMemLimit { .. }
        | Command::SetDevicePinnedMemLimit { .. }
        | Command::GetDevicePinnedMemLimit { .. }
        | Command::GetDefaultClientPriority
        | Command::TerminateClient { .. }
        | Command::Ps { .. }
        | Command::DeviceQuery { .. }
        | Command::SmPartition(_)
        | Command::Lspart
        | Command::Unknown(_) => insufficient_privileges(uid),
    }
}

/// `sm_partition add` that made a partition: users read the second word and cut it at the slash.
#[must_use]
pub fn partition_created(device: &str, partition: &str) -> String {
    format!("Partition {device}/{partition} created")
}

/// `sm_partition add` that the driver refused; parsers look for `Failed`.
#[must_use]
pub fn partition_refused(chunks: u32) -> String {
    format!(
        "Failed to fulfill the requested SM partition of {chunks} chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
    )
}

/// `sm_partition rm` that removed a partition; the vendor's text is not known, the words are those of its version 3.
#[must_use]
pub fn partition_removed(device: &str, partition: &str) -> String {
    format!("Partition {device}/{partition} deleted")
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
        let set = Command::parse(b"set_default_active_thread_percentage 70", Personality::V580);
        assert_eq!(
            refused(&set, 1000, Personality::V580),
            "Insufficient privileges for UID 1000. Control deamon settings can only be modified by the user who \
             started it or by the root user."
        );
        assert_eq!(refused(&set, 1000, Personality::V550), "Insufficient privileges for UID 1000");
        let start = Command::parse(b"start_server -uid 65534", Personality::V550);
        assert_eq!(refused(&start, 65534, Personality::V535), "Insufficient privileges for UID 65534");
        assert_eq!(
            refused(&start, 65534, Personality::V550),
            "Insufficient privileges for UID 65534. Only the root user may start server for another user."
        );
        let quit = Command::parse(b"quit", Personality::V550);
        assert_eq!(refused(&quit, 1000, Personality::V550), "Not enough privilege to execute quit command");
    }
}
