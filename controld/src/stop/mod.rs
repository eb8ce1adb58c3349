//! Ends clients so that nobody else is harmed: the command `stop-client`, and `mps-stop` in hooks of containers.
//!
//! A client that is killed in the middle of a kernel takes its server's other clients along: the driver takes its
//! memory away under the running work. One that is terminated at its server first can be killed without anybody
//! noticing (measured on an H200: longest step of a bystander 6 ms instead of its end). So:
//!
//! ```text
//!  find the client ──▶ [handles SIGTERM: SIGTERM, wait --grace] ──▶ terminate_client ──▶ SIGTERM ──▶ SIGKILL
//!  (daemon's lists)                                                 (daemon, ~10 ms)     --timeout
//! ```
//!
//! A process descriptor is opened before the daemon is asked, so no signal can reach a later process of the same pid.
//! Without a daemon there is nobody to harm, and the signals are sent all the same: a hook must end what it was told
//! to end.
//!
//! | part | does |
//! |---|---|
//! | `clients` | asks the daemon who is a client where, and to terminate one |
//! | `view` | translates pids between this pid namespace and the daemon's |
//! | `targets` | who is meant by the call |
//! | `end` | signals and waits |

mod clients;
mod end;
mod targets;
#[cfg(test)]
mod tests;
mod view;

use crate::cli::StopRequest;
use crate::report::text::wrapped;
use crate::sys::proc::FOLDER;
use clients::Clients;
use remps_proto::admin::Form;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use targets::Target;

/// Exit status when everything asked for was done.
const DONE: u8 = 0;
/// Exit status when a process lives on, a client of another namespace could not be terminated, or there was no such process
/// or client.
const NOT_DONE: u8 = 1;
/// Blanks before what goes on of a line.
const INDENT: usize = 4;

/// Stops whom `request` names, with the daemon of `pipe_dir`; prints a line for each and returns the exit status.
#[must_use]
pub(crate) fn run(pipe_dir: &Path, request: &StopRequest) -> u8 {
    let proc = Path::new(FOLDER);
    let mut warnings = Vec::new();
    let mut is_answered = true;
    let targets = targets::name(proc, &request.whom).and_then(|named| {
        let clients = Clients::ask(pipe_dir).unwrap_or_else(|error| {
            warnings.push(format!("{error}; nothing is terminated before it is ended"));
            is_answered = false;
            Clients::default()
        });
        targets::find(proc, named, &clients)
    });
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let mut status = DONE;
    match targets {
        Ok(targets) => {
            for target in targets {
                let report = stop(pipe_dir, request, &target);
                warnings.extend(report.warning.clone());
                // Without a daemon nobody can say so, and a hook must end what it was told to end.
                if is_answered && target.client.is_none() && target.process.is_some() {
                    warnings.push(format!("{}: no client of this daemon's", target.name()));
                    status = NOT_DONE;
                }
                // A closed standard output leaves nobody to tell, and is no reason to leave a client running.
                let _ = out.write_all(report.shown(&target, request.form).as_bytes());
                if !report.complete {
                    status = NOT_DONE;
                }
            }
        }
        Err(error) => {
            warnings.push(error.to_string());
            status = NOT_DONE;
        }
    }
    for warning in warnings {
        let _ = writeln!(err, "stop-client: {warning}");
    }
    status
}

/// What was done with one process.
struct Report {
    done: String,
    complete: bool,
    warning: Option<String>,
}

impl Report {
    /// A line for people, or one JSON object.
    fn shown(&self, target: &Target, form: Form) -> String {
        let Self { done, complete, .. } = self;
        let lines = match form {
            Form::Json => vec![json!({"process": target.name(), "done": done, "complete": complete}).to_string()],
            Form::Table | Form::Wide => wrapped(&format!("{}: {done}", target.name()), INDENT, form),
        };
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn stop(pipe_dir: &Path, request: &StopRequest, target: &Target) -> Report {
    let mut steps = Vec::new();
    let mut warning = None;
    if target.process.is_none() && target.client.is_none() {
        return Report { done: "no such process".to_owned(), complete: false, warning };
    }
    let process = target.process.as_ref().filter(|_| request.signals);
    if let Some(process) = process
        && let Some(took) = end::let_it_end(process, request.grace)
    {
        let done = format!("ended by itself {:.1} s after SIGTERM", took.as_secs_f64());
        return Report { done, complete: true, warning };
    }
    let mut terminated = true;
    if let Some(client) = &target.client {
        match clients::terminate(pipe_dir, client) {
            Ok(()) => steps.push(format!("terminated at server {}", client.server)),
            Err(error) => {
                terminated = false;
                steps.push("not terminated".to_owned());
                warning = Some(format!("{}: {error}", target.name()));
            }
        }
    } else {
        steps.push("no client".to_owned());
    }
    let ended = match process {
        None => {
            steps.push("no signal sent".to_owned());
            terminated
        }
        Some(process) => {
            let (how, ended) = end::end(process, request.timeout);
            steps.push(how);
            ended
        }
    };
    Report { done: steps.join(", "), complete: ended, warning }
}
