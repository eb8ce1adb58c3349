//! `get_client_state PID`.

use super::text::{NOTHING, harmless, mebibytes, or_nothing, span, wrapped};
use super::{Viewer, fitted};
use crate::core::picture::{ClientFacts, RecoveryFacts, RefusalFacts, Snapshot, SpareFacts};
use crate::core::{End, Gpu, Pid};
use remps_proto::admin::Form;

/// The answer for a process that is no client, or none that the asker may see.
pub(super) fn client_not_found(pid: Pid) -> Vec<String> {
    vec![format!("Client {pid} not found")]
}

/// The answer to `get_client_state`: one `name: value` a line, or one JSON object.
///
/// A pid may stand for a client that is gone and one that lives; the one that lives is meant.
///
/// # Errors
/// What is answered where there is none, or none that the viewer may see.
pub(crate) fn client_state(
    snapshot: &Snapshot,
    viewer: Viewer,
    pid: Pid,
    form: Form,
) -> Result<Vec<String>, Vec<String>> {
    let of_pid = snapshot.clients.iter().filter(|client| client.process.pid == pid && viewer.may_see(client.uid));
    let Some(client) = of_pid.max_by_key(|client| (client.end.is_none(), client.process.start_time)) else {
        return Err(client_not_found(pid));
    };
    if form == Form::Json {
        return Ok(vec![fitted(client)]);
    }
    let width = ROWS.iter().map(|(name, _)| name.len() + 1).max().unwrap_or_default();
    let line = |(name, value): &Row| format!("{:<width$} {}", format!("{name}:"), value(client));
    Ok(ROWS.iter().flat_map(|row| wrapped(&line(row), width + 1, form)).collect())
}

type Row = (&'static str, fn(&ClientFacts) -> String);

const ROWS: [Row; 20] = [
    ("pid", |client| client.process.pid.to_string()),
    ("start time", |client| client.process.start_time.to_string()),
    ("uid", |client| client.uid.to_string()),
    ("domain", |client| harmless(&client.domain)),
    ("state", |client| client.phase.word().to_owned()),
    ("end", |client| or_nothing(client.end.map(end))),
    ("server", |client| or_nothing(client.server)),
    ("contexts", |client| client.contexts.to_string()),
    ("GPUs", |client| {
        let names = |gpus: &Vec<Gpu>| gpus.iter().map(Gpu::to_string).collect::<Vec<_>>().join(" ");
        or_nothing(client.gpus.as_ref().map(names).filter(|names| !names.is_empty()))
    }),
    ("spare", |client| or_nothing(client.spare.as_ref().map(spare))),
    ("last recovery", |client| or_nothing(client.recovery.as_ref().map(recovery))),
    ("not recovered", |client| or_nothing(client.unrecovered.as_ref().map(refusal))),
    ("waited", |client| or_nothing(client.waited.map(span))),
    ("command", |client| harmless(&client.identity.command)),
    ("cgroup", |client| harmless(&client.identity.cgroup)),
    ("container", |client| harmless(client.identity.container.as_deref().unwrap_or_default())),
    ("pod", |client| harmless(client.identity.pod.as_deref().unwrap_or_default())),
    ("faults followed", |client| if client.tracked { "yes" } else { "no" }.to_owned()),
    ("descriptors held", |client| client.descriptors.to_string()),
    ("culprit of", |client| {
        let numbers: Vec<String> = client.verdicts.iter().map(u64::to_string).collect();
        if numbers.is_empty() { NOTHING.to_owned() } else { format!("fault {}", numbers.join(", ")) }
    }),
];

/// How far the second copy of the driver is, in words.
fn spare(spare: &SpareFacts) -> String {
    let server = spare.server.map(|pid| format!(" on server {pid}")).unwrap_or_default();
    let behind = if spare.behind > 0 { format!(", {} behind", spare.behind) } else { String::new() };
    let threads = if spare.threads == 1 { "thread" } else { "threads" };
    let takes = format!(", {} {threads}, {} of the host's memory", spare.threads, mebibytes(spare.host_bytes));
    let takes = if spare.host_bytes > 0 { takes } else { String::new() };
    format!("{}{server}{behind}{takes}", spare.word())
}

/// How the client has gone on after the last fault, in words.
fn recovery(last: &RecoveryFacts) -> String {
    format!("{}, {} ago", last.text(), span(last.ago))
}

/// Why it has not, in words.
fn refusal(last: &RefusalFacts) -> String {
    let RefusalFacts { refusal, ago } = last;
    let tried = if refusal.is_final { "for good" } else { "for now" };
    format!("{} ({tried}), from CUDA error {}, {} ago", harmless(&refusal.reason), refusal.error, span(*ago))
}

/// How a process ended, in words.
fn end(end: End) -> String {
    match end {
        End::Exited(status) => format!("exited with status {status}"),
        End::Signaled(signal) => format!("killed by signal {signal}"),
        End::OutOfMemory => "killed by the kernel for want of memory".to_owned(),
        End::Unknown => "gone, nobody could say how".to_owned(),
    }
}
