//! Domains, servers and clients as they are now, on a screen that follows them: the command `top`.
//!
//! It asks the daemon for `status --memory` and `get_fault_list`, as anybody can, and knows nothing else: what is on the
//! screen is what the reports say. The columns have the names that nvtop and nvitop give them where those have them
//! (`PID`, `USER`, `GPU`, `GPU-MEM`, `COMMAND`).
//!
//! | part | does |
//! |---|---|
//! | `gather` | asks, and reads the answers |
//! | `rows` | what of them is in which column |
//! | `table` | rows in a width: what is sorted, filtered, left out |
//! | `state` | what keys change |
//! | `draw` | a screen into a buffer, without a terminal |
//! | `page` | the same as plain text, for `--once` |
//! | `terminal` | the loop: keys, answers and signals in, screens out |
//!
//! All but `gather` and `terminal` do no I/O, so that tests compare whole screens.

mod draw;
mod gather;
mod page;
mod rows;
mod state;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use crate::cli::{TopForm, TopRequest, text};
use gather::Asker;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Shows what there is, once or until the user has seen enough; returns the exit status.
#[must_use]
pub(crate) fn run(
    pipe_dir: &Path,
    request: &TopRequest,
    environment: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> u8 {
    // Nobody is left to tell when standard error is closed.
    let failed = |why: &str| {
        let _ = writeln!(std::io::stderr(), "top: {why}");
        text::FAILURE
    };
    let is_screen = std::io::stdout().is_terminal() && environment("TERM").is_none_or(|term| term != "dumb");
    if request.form == TopForm::Screen && is_screen {
        let look = state::Look {
            colour: environment("NO_COLOR").is_none_or(|value| value.is_empty()),
            utc: request.utc,
            interval: request.interval,
        };
        return match terminal::run(pipe_dir.to_owned(), look) {
            Ok(status) => status,
            Err(error) => failed(&format!("the terminal can't be used: {error}")),
        };
    }
    let seen = match Asker::new(pipe_dir).ask() {
        Ok(seen) => seen,
        Err(why) => return failed(&why),
    };
    let shown = match request.form {
        TopForm::Json => serde_json::to_string(&seen).map(|json| json + "\n").unwrap_or_default(),
        TopForm::Screen | TopForm::Once => page::text(&seen, request.utc),
    };
    match std::io::stdout().write_all(shown.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            failed(&format!("the page can't be written: {error}"))
        }
        _ => text::SUCCESS,
    }
}
