//! The environment variables that the library reads, and when it does: at the call that needs them, never at start.
//!
//! `getenv` and not std's reader: std takes a lock that says nothing to a program in C, and allocates.
#![expect(unsafe_code, reason = "reads the program's environment and name")]

use std::{
    ffi::{CStr, OsStr, OsString},
    os::unix::ffi::OsStrExt,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

mod defaults;
mod recoveries;
pub(crate) mod succession;

pub(crate) use recoveries::{
    has_spare_full_stacks, is_keeping, is_recording, is_replaying, is_sparing_culprits, is_with_spare,
};

use super::log;

const REQUIRE: &CStr = c"MPS_SHIM_REQUIRE";
const LOG: &CStr = c"MPS_SHIM_LOG";
const REPORT: &CStr = c"MPS_SHIM_REPORT";
const KEEP: &CStr = c"MPS_SHIM_KEEP";
const REPLAY: &CStr = c"MPS_SHIM_REPLAY";
const SPARE_STACK: &CStr = c"MPS_SHIM_SPARE_STACK";
const FAULTS: &CStr = c"MPS_SHIM_FAULTS";
const LAUNCH_BLOCKING: &CStr = c"CUDA_LAUNCH_BLOCKING";
/// Under which name a successor finds what the program has.
pub(crate) const NAME: &CStr = c"MPS_SHIM_NAME";
/// Whether the program waits for its predecessor's end, and at which addresses it allocates meanwhile.
pub(crate) const STANDBY: &CStr = c"MPS_SHIM_STANDBY";
/// Set by `nvidia-cuda-mps-control run` alone: a descriptor.
pub(crate) const EXIT_PAGE: &CStr = c"MPS_SHIM_EXIT_PAGE";
const PIPE_DIRECTORY: &CStr = c"CUDA_MPS_PIPE_DIRECTORY";

/// Where libcuda looks when `CUDA_MPS_PIPE_DIRECTORY` is not set.
const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";

/// The program that is itself started by the daemon.
const SERVER: &CStr = c"nvidia-cuda-mps-server";

/// What `MPS_SHIM_REQUIRE` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Unset, empty or `0`.
    None,
    /// A daemon must answer within this time.
    Within(Duration),
    /// Not a number of seconds.
    Unreadable(OsString),
}

/// Reads `MPS_SHIM_REQUIRE`.
pub(crate) fn requirement() -> Requirement {
    variable(REQUIRE).map_or(Requirement::None, |value| parse_requirement(&value))
}

fn parse_requirement(value: &OsStr) -> Requirement {
    let bytes = value.as_bytes();
    if !bytes.iter().all(u8::is_ascii_digit) {
        return Requirement::Unreadable(value.to_owned());
    }
    // A number too large for the type is longer than any process lives.
    let add = |seconds: u32, digit: &u8| seconds.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
    match bytes.iter().fold(0, add) {
        0 => Requirement::None,
        seconds => Requirement::Within(Duration::from_secs(seconds.into())),
    }
}

/// Whether `MPS_SHIM_LOG` is set to something other than `0`.
pub(crate) fn lines_wanted() -> bool {
    variable(LOG).is_some_and(|value| !value.is_empty() && value != "0")
}

/// The value of `MPS_SHIM_FAULTS`.
const TELL: &str = "tell";

/// Whether `MPS_SHIM_FAULTS` asks for the daemon to be given what it needs to hear of faults. The environment is looked
/// at once; another value is complained of and asks for nothing.
pub(crate) fn is_telling_of_faults() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static TELLING: AtomicU8 = AtomicU8::new(UNKNOWN);
    if TELLING.load(Ordering::Relaxed) == UNKNOWN {
        let value = variable(FAULTS).unwrap_or_default();
        let is_wanted = value == TELL && !is_server();
        if !is_wanted && !value.is_empty() && value != "0" && !is_server() {
            log::complain(format_args!("MPS_SHIM_FAULTS is not \"{TELL}\" but {value:?}: the daemon is told nothing"));
        }
        TELLING.store(if is_wanted { YES } else { NO }, Ordering::Relaxed);
    }
    TELLING.load(Ordering::Relaxed) == YES
}

/// Whether the driver waits for each kernel in the call that launches it, so that the call reports the kernel's own
/// error.
pub(crate) fn are_launches_blocking() -> bool {
    variable(LAUNCH_BLOCKING).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Where `MPS_SHIM_REPORT` wants the report of what was kept: `stderr` or a path. `None` for nowhere.
pub(crate) fn report() -> Option<OsString> {
    variable(REPORT).filter(|value| !value.is_empty())
}

/// The socket that libcuda looks for. As libcuda does (measured with 535.309.01), a variable that is set but empty
/// gives `/control`, and a relative directory is taken from the working directory.
pub(crate) fn control_socket() -> OsString {
    socket_called("control")
}

/// A socket in the daemon's directory.
pub(crate) fn socket_called(name: &str) -> OsString {
    let mut path = variable(PIPE_DIRECTORY).unwrap_or_else(|| DEFAULT_PIPE_DIRECTORY.into());
    path.push("/");
    path.push(name);
    path
}

/// Whether this process is `nvidia-cuda-mps-server`.
pub(crate) fn is_server() -> bool {
    unsafe extern "C" {
        /// glibc's copy of the last part of `argv[0]`, set before any library's code runs.
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: glibc sets it before any code of a library runs, and programs that change it do so at start.
    let name = unsafe { program_invocation_short_name };
    // SAFETY: where it is not null, it is a C string that lives as long as the process.
    !name.is_null() && unsafe { CStr::from_ptr(name) } == SERVER
}

/// A variable of the environment, as it is now.
pub(crate) fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: the name is a C string. As everywhere in C, a program that changes its environment while another of its
    // threads starts CUDA has a race of its own: libcuda reads the same environment in the same call.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returns a C string; it is copied at once.
    let value = unsafe { CStr::from_ptr(value) };
    Some(OsStr::from_bytes(value.to_bytes()).to_owned())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ffi::OsStr, time::Duration};

    use super::{
        DEFAULT_PIPE_DIRECTORY, FAULTS, KEEP, LAUNCH_BLOCKING, LOG, NAME, PIPE_DIRECTORY, REPLAY, REPORT, REQUIRE,
        Requirement, SPARE_STACK, STANDBY, is_server, parse_requirement,
    };
    use crate::cuda::functions;

    const MANUAL: &str = include_str!("../../../man/mps-client-shim.7");

    #[test]
    fn the_manual_names_the_variables_and_the_functions_and_no_others() {
        let after = |macro_: &str| -> BTreeSet<_> {
            MANUAL.lines().filter_map(|line| line.strip_prefix(macro_)?.split_whitespace().next()).collect()
        };
        let ours =
            [REQUIRE, KEEP, FAULTS, REPLAY, SPARE_STACK, REPORT, LOG, NAME, STANDBY, PIPE_DIRECTORY, LAUNCH_BLOCKING]
                .map(|name| name.to_str().unwrap());
        assert_eq!(after(".It Ev "), BTreeSet::from_iter(ours.into_iter().chain(["LD_PRELOAD"])));
        let always = ["cuInit", "cuGetProcAddress", "cuGetProcAddress_v2"];
        assert!(always.iter().all(|name| functions::all().any(|function| function.name.to_bytes() == name.as_bytes())));
        assert_eq!(after(".Fn "), BTreeSet::from_iter(always.into_iter().chain(["dlsym"])));
        assert!(MANUAL.contains(&format!("\n.Pa {DEFAULT_PIPE_DIRECTORY} .\n")));
    }

    #[test]
    fn a_requirement_is_a_number_of_seconds_and_zero_is_none() {
        let parse = |text: &str| parse_requirement(OsStr::new(text));
        assert_eq!(parse(""), Requirement::None);
        assert_eq!(parse("0"), Requirement::None);
        assert_eq!(parse("000"), Requirement::None);
        assert_eq!(parse("1"), Requirement::Within(Duration::from_secs(1)));
        assert_eq!(parse("30"), Requirement::Within(Duration::from_secs(30)));
        assert_eq!(parse("99999999999999999999"), Requirement::Within(Duration::from_secs(u32::MAX.into())));
    }

    #[test]
    fn anything_else_is_unreadable_and_never_none() {
        for text in ["yes", "true", "-1", "1.5", " 1", "1s", "+1"] {
            assert_eq!(parse_requirement(OsStr::new(text)), Requirement::Unreadable(text.into()), "{text:?}");
        }
    }

    #[test]
    fn a_test_program_is_not_the_server() {
        assert!(!is_server());
    }
}
