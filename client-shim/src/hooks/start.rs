//! `cuInit`: never silently without MPS.
//!
//! The driver looks for the control daemon when it is initialised. If it finds none it runs all the same, unshared and
//! without any of the limits that the daemon would have set, and says nothing. When `MPS_SHIM_REQUIRE` is set, the
//! daemon is looked for first, as the driver does it, and without one `cuInit` fails. The daemon can still end between
//! this look and the driver's own; afterwards nothing tells from outside which way the driver went.

use std::{ffi::c_uint, path::Path, time::Duration};

use super::state;
use crate::{
    cuda::{
        belongings,
        call::{Bypass, Driver},
        functions::lookup::cuInit,
        result::CUresult,
    },
    daemon::{evidence, greeting, stage},
    kept,
    process::{
        fork, log,
        settings::{self, Requirement},
    },
    recovery,
};

/// The word of the fork page that belongs to the process.
const PROCESS: usize = 0;
/// The driver has answered `cuInit` with success.
const INITIALISED: u32 = 1;
/// The time to wait for a daemon has been spent; from then on one look must do.
const WAITED: u32 = 1 << 1;
/// The failure has been reported.
const REPORTED: u32 = 1 << 2;

/// Logic of `cuInit`.
pub(crate) fn start(driver: &mut Driver<cuInit::Signature>, _flags: c_uint) -> Result<CUresult, Bypass> {
    let patience = match settings::requirement() {
        Requirement::None if settings::is_keeping() || settings::is_telling_of_faults() => {
            return Ok(call(driver));
        }
        Requirement::None => return Err(Bypass::NotRequired),
        _ if settings::is_server() => return Err(Bypass::IsServer),
        _ if fork::recall(PROCESS) & INITIALISED != 0 => return Err(Bypass::AlreadyInitialised),
        Requirement::Unreadable(value) => {
            report(format_args!("MPS_SHIM_REQUIRE is not a number of seconds: {value:?}"));
            return Ok(CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED);
        }
        Requirement::Within(_) if fork::recall(PROCESS) & WAITED != 0 => Duration::ZERO,
        Requirement::Within(patience) => patience,
    };
    let socket = settings::control_socket();
    if let Err(failure) = greeting::wait_for_greeting(&socket, patience) {
        fork::remember(PROCESS, WAITED);
        let socket = Path::new(&socket).display();
        report(format_args!("no MPS control daemon at {socket} within {} s: {failure}", patience.as_secs()));
        return Ok(CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED);
    }
    let answer = call(driver);
    if answer.is_success() {
        fork::remember(PROCESS, INITIALISED);
    }
    Ok(answer)
}

/// The program's call, after which memory is kept if that is wanted.
fn call(driver: &mut Driver<cuInit::Signature>) -> CUresult {
    let interval = if recovery::is_armed() { None } else { belongings::Interval::begin() };
    let answer = driver.pass();
    if let Some(interval) = interval {
        interval.end();
    }
    if answer.is_success() && settings::is_keeping() {
        let surroundings = kept::Surroundings {
            has_context: evidence::offer,
            has_no_context: |answer| evidence::hear_of_context(answer, 0),
            is_short: || {
                recovery::burial::wait();
                recovery::spare::give_way();
                stage::have_room_made();
                state::settle();
            },
            report: state::report,
            spare: recovery::spare::report,
            private: recovery::private::report,
        };
        if kept::begin(surroundings) {
            state::begin();
        }
        recovery::arm(state::constant_ranges);
    }
    if answer.is_success() {
        evidence::offer();
    }
    answer
}

/// Says once in a process why `cuInit` fails.
fn report(reason: std::fmt::Arguments<'_>) {
    if fork::remember(PROCESS, REPORTED) & REPORTED == 0 {
        log::complain(format_args!("{reason}; cuInit fails with CUDA_ERROR_MPS_CONNECTION_FAILED (805)"));
    }
}
