//! What the program itself prints: its version, and the vendor's messages about starting and reaching a daemon.
//!
//! The first line of the version and all messages are the vendor's, because programs compare them.

use remps_proto::admin::Personality;

/// Exit status of success, and of an unknown option since 580.
pub(crate) const SUCCESS: u8 = 0;
/// Exit status of every failure that has none of its own.
pub(crate) const FAILURE: u8 = 1;
/// Exit status of one of our own commands whose arguments make no sense.
pub(crate) const USAGE: u8 = 2;

/// On standard error when no daemon answers.
pub(crate) const CANNOT_FIND: &str = "Cannot find MPS control daemon process";
/// On standard error when the daemon goes away in the middle.
pub(crate) const CANNOT_SEND: &str = "Cannot send command to MPS control daemon process";
/// For multi-user mode by somebody else; measured on 555.
pub(crate) const ONLY_ROOT_MULTIUSER: &str = "Only root user may enable -multiuser-server!";
/// Before the help text since 580; the two blanks at its end are the vendor's.
pub(crate) const UNRECOGNIZED_OPTION: &str = "Unrecognized option  ";

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
pub(crate) fn version(personality: Personality) -> String {
    let number = personality.binary_version().map(|number| format!(" Binary version: {number}")).unwrap_or_default();
    format!("{}{number}\n{WHO}\n\n", title(personality))
}
