//! What the program itself prints: help, version, and the vendor's messages about starting and reaching a daemon.
//!
//! The first line of help and version and all messages are the vendor's, because programs compare them; the rest of
//! the help text is not.

use super::local::LOCAL_COMMANDS;
use super::options::OPTIONS;
use remps_proto::admin::{CommandName, Personality};
use std::fmt::Write as _;
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
fn title(personality: Personality) -> &'static str {
    if personality >= Personality::V580 {
        "CUDA MPS Control for Linux/Unix/QNX."
    } else {
        "CUDA MPS Control for Linux/Unix."
    }
}

const WHO: &str = concat!("ReMPS ", env!("CARGO_PKG_VERSION"), ", a replacement of nvidia-cuda-mps-control.");

/// The version: `Binary version: N` where the release played has one, for programs that look for it.
#[must_use]
pub fn version(personality: Personality) -> String {
    let number = personality.binary_version().map(|number| format!(" Binary version: {number}")).unwrap_or_default();
    format!("{}{number}\n{WHO}\n\n", title(personality))
}

/// The help text; also what 555 answers to an option it does not know.
#[must_use]
pub fn help(personality: Personality) -> String {
    let mut text = format!(
        "{}\n{WHO}\n\n  Lets CUDA programs share a GPU through the Multi-Process Service. Without options, commands \
         are read from\n  standard input and sent to the daemon. See nvidia-cuda-mps-control(1).\n\n  \
         nvidia-cuda-mps-control [options] [command]\n\nOPTIONS:\n",
        title(personality)
    );
    for spec in OPTIONS.iter().filter(|spec| spec.since <= personality) {
        let letter = spec.letters.first().map(|letter| format!("-{letter}"));
        let word = spec.words.first().map(|word| (*word).to_owned());
        let spelling = letter.into_iter().chain(word).collect::<Vec<_>>().join(",");
        writeln!(text, "  {spelling:<26}{}", spec.help).expect("a String takes every text");
    }
    text.push_str("\nCOMMAND:\n");
    for name in CommandName::ALL.iter().filter(|name| personality.knows(**name)) {
        let synopsis = format!("{name} {}", name.arguments());
        writeln!(text, "  {}\n      {}", synopsis.trim_end(), name.help()).expect("a String takes every text");
    }
    text.push_str("\nWITHOUT THE DAEMON:\n");
    for spec in LOCAL_COMMANDS {
        writeln!(text, "  {} {}\n      {}", spec.name, spec.arguments, spec.help).expect("a String takes every text");
    }
    text.push('\n');
    text
}
