//! What the program itself prints: its version, and the vendor's messages about starting and reaching a daemon.
//!
//! The first line of the version and all messages are the vendor's, because programs compare them.

use remps_proto::admin::Personality;
use std::path::Path;

/// Exit status of success, and of an unknown option since 580.
pub const SUCCESS: u8 = 0;
/// Exit status of every failure that has none of its own.
pub const FAILURE: u8 = 1;
/// Exit status of one of our own commands whose arguments make no sense.
pub const USAGE: u8 = 2;

/// On standard error when no daemon answers.
pub const CANNOT_FIND: &str = "Cannot find MPS control daemon process";
/// On standard error when the daemon goes away in the middle.
pub const CANNOT_SEND: &str = "Cannot send command to MPS control daemon process";
/// On standard output when the pipe directory has its daemon.
pub const ALREADY_RUNNING: &str = "An instance of this daemon is already running";
/// For multi-user mode by somebody else; measured on 555.
pub const ONLY_ROOT_MULTIUSER: &str = "Only root user may enable -multiuser-server!";
/// Before the help text since 580; the two blanks at its end are the vendor's.
pub const UNRECOGNIZED_OPTION: &str = "Unrecognized option  ";

/// On standard output when the pipe directory cannot be made or entered.
#[must_use]
pub fn cannot_access_pipe_directory(path: &Path) -> String {
    format!("Cannot access CUDA_MPS_PIPE_DIRECTORY={}", path.display())
}

/// On standard output when there will be no log files; the daemon runs without.
#[must_use]
pub fn no_logs(path: &Path) -> String {
    format!("Warning: Failed writing log files to directory [{}]. No logs will be available.", path.display())
}

/// The name of the program in its first line.
pub(super) fn title(personality: Personality) -> &'static str {
    if personality >= Personality::V580 {
        "CUDA MPS Control for Linux/Unix/QNX."
    } else {
        "CUDA MPS Control for Linux/Unix."
    }
}

/// The second line.
pub(super) const WHO: &str =
    concat!("ReMPS ", env!("CARGO_PKG_VERSION"), ", a replacement of nvidia-cuda-mps-control.");

/// The version: `Binary version: N` where the release played has one, for programs that look for it.
#[must_use]
pub fn version(personality: Personality) -> String {
    let number = personality.binary_version().map(|number| format!(" Binary version: {number}")).unwrap_or_default();
    format!("{}{number}\n{WHO}\n\n", title(personality))
}
