//! The facts for a reader.

use super::facts::{ClientFacts, Facts, NewcomerFacts};
use std::fmt::Write;

/// Columns of a speaker's name in the timeline.
const WHO_WIDTH: usize = 14;

/// The whole text.
pub(super) fn render(facts: &Facts) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = whole(&mut text, facts);
    text
}

fn whole(out: &mut String, facts: &Facts) -> std::fmt::Result {
    let machine = &facts.machine;
    match &machine.why_simulated {
        Some(reason) => writeln!(out, "Driver and servers: simulated ({reason})")?,
        None => writeln!(out, "Driver and servers: NVIDIA's, on {}", machine.devices.join(", "))?,
    }
    let users: Vec<String> = machine.users.iter().map(u32::to_string).collect();
    writeln!(out, "Users: {}", users.join(" and "))?;
    writeln!(out, "\nTimeline, in milliseconds since the start of the daemon")?;
    for entry in &facts.timeline {
        writeln!(out, "{:10.1}  {:WHO_WIDTH$}  {}", entry.ms, entry.who, entry.text)?;
    }
    writeln!(out, "\nClients")?;
    for client in &facts.clients {
        client_lines(out, client)?;
    }
    writeln!(out, "\nThe fault")?;
    fault_lines(out, facts)?;
    writeln!(out, "\nNewcomers")?;
    for newcomer in &facts.newcomers {
        newcomer_lines(out, newcomer)?;
    }
    writeln!(out, "\nPromises of this release")?;
    for promise in &facts.promises {
        let kept = match promise.kept {
            Some(true) => "kept",
            Some(false) => "BROKEN",
            None => "not tried",
        };
        writeln!(out, "  {kept:9}  {}: {}", promise.name, promise.text)?;
        writeln!(out, "  {:9}  {}", "", promise.seen)?;
    }
    writeln!(out, "\nNot proven")?;
    for line in &facts.not_proven {
        writeln!(out, "  - {line}")?;
    }
    let verdict = if facts.all_kept() { "every promise that was tried was kept" } else { "a promise was BROKEN" };
    writeln!(out, "\nResult: {verdict}")
}

fn client_lines(out: &mut String, client: &ClientFacts) -> std::fmt::Result {
    let server = client.server.map_or_else(|| "unknown".to_owned(), |server| server.to_string());
    write!(out, "  {}: user {}, pid {}, server {server}, ", client.name, client.uid, client.pid)?;
    match client.served_after_ms {
        Some(ms) => writeln!(out, "served after {ms:.1} ms")?,
        None => writeln!(out, "never served")?,
    }
    let end = match &client.failure {
        Some(failure) => {
            let failed =
                format!("failed at {:.1} ms: {} gave {} ({})", failure.at_ms, failure.call, failure.name, failure.code);
            format!("{failed}\n    because {}", failure.why)
        }
        None => match client.longest_step_since_fault_ms {
            Some(longest) => format!(
                "felt nothing: {} steps, the longest since the fault {longest:.1} ms",
                client.steps.unwrap_or_default()
            ),
            None => "did not fail".to_owned(),
        },
    };
    writeln!(out, "    {end}")
}

fn fault_lines(out: &mut String, facts: &Facts) -> std::fmt::Result {
    let fault = &facts.fault;
    match (fault.launched_ms, fault.culprit) {
        (Some(ms), Some(pid)) => {
            writeln!(out, "  pid {pid} launched the faulting kernel ({}) at {ms:.1} ms", fault.kind)?;
        }
        _ => writeln!(out, "  no kernel was launched")?,
    }
    match (fault.named_by_server, fault.is_named_rightly) {
        (Some(named), Some(true)) => writeln!(out, "  the server's log names pid {named}, which is right")?,
        (Some(named), _) => {
            let name = facts.clients.iter().find(|client| client.pid == named);
            let name = name.map_or("a newcomer", |client| client.name.as_str());
            writeln!(out, "  the server's log names pid {named}, {name}, which is WRONG")?;
        }
        (None, _) => writeln!(out, "  the server's log names nobody")?,
    }
    if let Some(status) = &fault.server_status {
        writeln!(out, "  get_server_status, asked when the first client knew, answered {status}")?;
    }
    Ok(())
}

fn newcomer_lines(out: &mut String, newcomer: &NewcomerFacts) -> std::fmt::Result {
    let NewcomerFacts { name, uid, came_at_ms, .. } = newcomer;
    let server = newcomer.server.map_or_else(|| "unknown".to_owned(), |server| server.to_string());
    write!(out, "  {name}: user {uid}, server {server}, came at {came_at_ms:.1} ms, ")?;
    match (newcomer.served_after_ms, newcomer.first_allocation_ms) {
        (Some(ms), Some(first)) => writeln!(out, "first allocation {ms:.1} ms later ({first:.1} ms of its own)")?,
        (Some(ms), None) => writeln!(out, "first allocation {ms:.1} ms later")?,
        (None, _) => writeln!(out, "never served")?,
    }
    for refusal in &newcomer.failures {
        let failure = &refusal.failure;
        let whose = if refusal.is_by_server { "refused by the server" } else { "failed" };
        writeln!(
            out,
            "    {whose} at {:.1} ms: {} gave {} ({})",
            failure.at_ms, failure.call, failure.name, failure.code
        )?;
        writeln!(out, "    because {}", failure.why)?;
    }
    Ok(())
}
