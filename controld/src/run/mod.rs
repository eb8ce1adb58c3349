//! The command `run`: starts a program whose state outlives it, and starts it again when a fault on the GPU has ended it.
//!
//! ```text
//!  run --name N -- cmd ──LD_PRELOAD, MPS_SHIM_NAME──► program ──its end──► by a fault? ──yes──► again, up to a limit
//!      signals are passed on ─────────────────────────►    │                  └─no──► its status is ours
//!      orphans are reaped, where this is PID 1              └─ exit page: the library's word
//! ```
//! What ended the program is known from the library in it, which notes the error of its context on a page that both
//! share ([`page`]), and from the daemon, which is asked how the program's server was ([`ask`]). Nothing is guessed
//! from a status alone: without a word of either the status is passed on.

mod ask;
mod child;
mod page;

use crate::cli::RunRequest;
use child::Child;
use page::Page;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Exit status when the program can't be found, and when it can't be started.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;
/// Exit status when this call makes no sense on this machine.
const UNUSABLE: u8 = 125;
/// The pause before the first restart is none, since who recovers from a fault is in a hurry; then it doubles from this.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A program that ran for so long begins anew with pauses and the limit.
const LONG_LIFE: Duration = Duration::from_secs(300);
/// The library's file.
const LIBRARY: &str = "libmps_client_shim.so";

fn complain(text: &str) {
    use std::io::Write as _;
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(std::io::stderr(), "nvidia-cuda-mps-control run: {text}");
}

/// The library: as asked for, or beside this program, or where libraries are.
fn library(request: &RunRequest) -> Option<PathBuf> {
    if let Some(path) = &request.library {
        return path.exists().then(|| path.clone());
    }
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).into_iter();
    let places = beside.flat_map(|folder| [folder.to_owned(), folder.join("../lib")]);
    let system = ["/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"].map(PathBuf::from);
    places.chain(system).map(|folder| folder.join(LIBRARY)).find(|path| path.exists())
}

/// The variables that the program gets in addition.
fn variables(
    request: &RunRequest,
    library: &Path,
    page: Option<&Page>,
    lane: u32,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = environment("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut variables = vec![("LD_PRELOAD", preload)];
    if environment("MPS_SHIM_KEEP").is_none_or(|keep| keep.is_empty()) {
        variables.push(("MPS_SHIM_KEEP", "memory".into()));
    }
    if let Some(name) = &request.name {
        variables.push(("MPS_SHIM_NAME", name.into()));
    }
    if request.standby {
        variables.push(("MPS_SHIM_STANDBY", lane.to_string().into()));
        if environment("MPS_DOMAIN").is_none() {
            let mut domain = OsString::from("standby-");
            domain.push(request.name.as_deref().unwrap_or_default());
            variables.push(("MPS_DOMAIN", domain));
        }
    }
    if let Some(page) = page {
        variables.push(("MPS_SHIM_EXIT_PAGE", page.number().to_string().into()));
    }
    variables
}

/// How often a program was started again, and when it may be next.
#[derive(Debug)]
struct Restarts {
    limit: u32,
    done: u32,
    pause: Duration,
}

impl Restarts {
    fn new(limit: u32) -> Self {
        Self { limit, done: 0, pause: Duration::ZERO }
    }

    /// The pause before the next start; `None` when there were enough.
    fn next(&mut self, lived: Duration) -> Option<Duration> {
        if lived >= LONG_LIFE {
            *self = Self::new(self.limit);
        }
        if self.done >= self.limit {
            return None;
        }
        self.done += 1;
        let pause = self.pause;
        self.pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        Some(pause)
    }
}

/// Runs the program; the exit status.
#[must_use]
pub(crate) fn run(pipe_dir: &Path, request: &RunRequest, environment: impl Fn(&str) -> Option<OsString>) -> u8 {
    let Some(library) = library(request) else {
        complain(&format!("{LIBRARY} is not found; --library names it"));
        return UNUSABLE;
    };
    let Some((program, arguments)) = request.command.split_first() else { return UNUSABLE };
    let signals = match child::Signals::take() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("signals can't be taken: {error}"));
            return UNUSABLE;
        }
    };
    let mut restarts = Restarts::new(request.limit);
    loop {
        let page = Page::new().inspect_err(|error| complain(&format!("no page to read of faults on: {error}"))).ok();
        // A standby must leave the addresses alone that whoever has the name now allocates at.
        let lane = request.name.as_deref().filter(|_| request.standby).map_or(1, |name| ask::free_lane(pipe_dir, name));
        let added = variables(request, &library, page.as_ref(), lane, &environment);
        let (began, started) = (Instant::now(), Child::start(program, arguments, &added));
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                complain(&format!("{}: {error}", Path::new(program).display()));
                return if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_STARTED };
            }
        };
        let end = child.wait(&signals);
        if !request.restart || end.is_wanted || end.is_good() {
            return end.status();
        }
        let Some(why) = fault(pipe_dir, page.as_ref(), &child) else { return end.status() };
        let Some(pause) = restarts.next(began.elapsed()) else {
            complain(&format!("{}, {why}; it was started again {} times, and is not any more", end, request.limit));
            return end.status();
        };
        complain(&format!("{end}, {why}; it is started again"));
        if signals.wait(pause) {
            return end.status();
        }
    }
}

/// The fault that has ended the program; `None` if nobody knows of one.
fn fault(pipe_dir: &Path, page: Option<&Page>, child: &Child) -> Option<String> {
    match page.and_then(Page::error) {
        Some(error) => Some(format!("its driver had answered {error}")),
        None => ask::was_tainted(pipe_dir, child.pid()).then(|| "its server has met a fault".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RunRequest {
        RunRequest {
            name: Some("llm".into()),
            restart: true,
            standby: false,
            limit: 3,
            library: None,
            command: vec!["serve".into()],
        }
    }

    #[test]
    fn a_program_gets_the_library_before_others_and_keeps_what_it_says_itself() {
        let environment = |name: &str| match name {
            "LD_PRELOAD" => Some("/other.so".into()),
            "MPS_SHIM_KEEP" => Some("state".into()),
            _ => None,
        };
        let added = variables(&request(), Path::new("/lib.so"), None, 1, environment);
        assert_eq!(added, [("LD_PRELOAD", "/lib.so:/other.so".into()), ("MPS_SHIM_NAME", "llm".into())]);
        let standby = RunRequest { standby: true, ..request() };
        let added = variables(&standby, Path::new("/lib.so"), None, 2, |_| None);
        let expected = [("MPS_SHIM_STANDBY", "2"), ("MPS_DOMAIN", "standby-llm"), ("MPS_SHIM_KEEP", "memory")];
        assert!(expected.iter().all(|(name, value)| added.contains(&(*name, (*value).into()))), "{added:?}");
    }

    #[test]
    fn restarts_begin_at_once_slow_down_and_end() {
        let mut restarts = Restarts::new(4);
        let pauses: Vec<_> = (0..5).map(|_| restarts.next(Duration::ZERO)).collect();
        let milliseconds = [0, 500, 1000, 2000].map(|pause| Some(Duration::from_millis(pause)));
        assert_eq!(pauses, [milliseconds.as_slice(), &[None]].concat());
        assert_eq!(restarts.next(LONG_LIFE), Some(Duration::ZERO), "it has earned a new beginning");
    }
}
