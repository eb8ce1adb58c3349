//! `--at-step NAME|any`: a program's fault comes when the library's thread has just come to a step of a spare copy's making.
//!
//! A library for tests keeps its thread there until it is told (`client-shim/src/process/failpoint.rs`). The first program of
//! a process whose disturbed run has a fault meets it so: the run does not begin before the thread is at its step, and the
//! thread goes on when the fault is under way. The recovery that begins waits for it.

use super::api::Failed;
use super::random::Random;
use super::run::HEARTBEAT;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// All of them, in the order in which a copy comes by.
pub(super) const ALL: [&str; 9] = [
    "spare-file",
    "spare-loaded",
    "spare-cleared",
    "spare-bound",
    "spare-initialised",
    "spare-contexts",
    "spare-memory",
    "spare-objects",
    "spare-stands",
];

/// How long the library's thread may take to its step, and the time between two looks.
const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// For how long the thread is kept at its step when a fault has begun.
const A_MOMENT: Duration = Duration::from_millis(5);

const AT: &str = "MPS_SHIM_TEST_AT";
const GO: &str = "MPS_SHIM_TEST_GO";

/// The step that is meant, by its name or by the first seed of a process.
pub(super) fn named(name: &str, seed: u64) -> Option<&'static str> {
    if name == "any" {
        // By numbers of its own, and not by the first ones that the program is made of.
        let drawn = Random::new(!seed).below(u8::try_from(ALL.len()).unwrap_or(u8::MAX));
        return ALL.get(usize::from(drawn)).copied();
    }
    ALL.into_iter().find(|step| *step == name)
}

/// Has a process keep its library at this step, with files in this folder.
pub(super) fn keep_at(command: &mut Command, step: &str, folder: &Path) {
    command.env(AT, format!("hold:{step}")).env(GO, folder.join("go"));
}

/// Where the library is told to go on, if it is kept somewhere.
fn go() -> Option<&'static PathBuf> {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    PLACE.get_or_init(|| std::env::var_os(GO).map(PathBuf::from)).as_ref()
}

static IS_OPEN: AtomicBool = AtomicBool::new(false);
static IS_MET: AtomicBool = AtomicBool::new(false);

/// Waits until the library's thread is at its step, if no fault has met it there yet.
pub(super) fn wait() -> Result<(), Failed> {
    let Some(go) = go().filter(|_| !IS_OPEN.load(Ordering::SeqCst)) else { return Ok(()) };
    let held = PathBuf::from([go.as_os_str(), ".held".as_ref()].into_iter().collect::<OsString>());
    let deadline = Instant::now() + PATIENCE;
    while !held.exists() {
        if Instant::now() > deadline {
            return Err(Failed { call: "a step of a spare copy's making", code: 0 });
        }
        HEARTBEAT.fetch_add(1, Ordering::Relaxed);
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
    Ok(())
}

/// A fault begins: the thread goes on in a moment.
pub(super) fn meet() {
    if go().is_some() && !IS_OPEN.swap(true, Ordering::SeqCst) {
        IS_MET.store(true, Ordering::SeqCst);
        std::thread::spawn(|| {
            std::thread::park_timeout(A_MOMENT);
            go_on();
        });
    }
}

/// The thread goes on, whatever it has met.
pub(super) fn go_on() {
    if let Some(go) = go() {
        IS_OPEN.store(true, Ordering::SeqCst);
        // Who is kept there for ever is seen by the program's end, which then does not come.
        let _told = fs::write(go, "");
    }
}

/// Whether a fault has come while the thread was kept at its step.
pub(super) fn is_met() -> bool {
    IS_MET.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::{ALL, named};

    /// Processes of forty programs have the first seeds of these.
    #[test]
    fn processes_that_follow_each_other_draw_each_step() {
        for first in [1, 100_001, 2_811_200_100] {
            let drawn: Vec<_> = (0..300).filter_map(|process| named("any", first + 40 * process)).collect();
            assert_eq!(drawn.len(), 300);
            for step in ALL {
                let count = drawn.iter().filter(|one| **one == step).count();
                assert!((10..=70).contains(&count), "{step}: {count} of {}, from {first} on", drawn.len());
            }
        }
    }
}
