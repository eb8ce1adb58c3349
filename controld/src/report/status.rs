//! `status`: the daemon, its domains, servers, clients, witnesses and funerals at a glance.

use super::table::aligned;
use super::text::{NOTHING, harmless, mebibytes, or_nothing, span, wrapped};
use super::{Viewer, fitted};
use crate::core::picture::{
    ClientFacts, ClientPhase, DomainFacts, DomainPhase, Lacking, RecoveryFacts, ReplayFacts, ServerFacts, Snapshot,
    SpareFacts, WitnessFacts,
};
use remps_proto::admin::Form;
use serde::Serialize;

/// The witness that is the patched module, as verdicts have it.
const NOTICE: &str = "notice";

const DOMAINS: [&str; 7] = ["DOMAIN", "UID", "STATE", "SERVER", "STANDBY", "CLIENTS", "WAITING"];
const SERVERS: [&str; 7] = ["SERVER", "UID", "DOMAIN", "STATE", "CLIENTS", "READY FOR", "MEMORY"];
const CLIENTS: [&str; 10] =
    ["CLIENT", "UID", "DOMAIN", "STATE", "SERVER", "SPARE", "RECOVERED", "MEMORY", "WAITED", "COMMAND"];
/// The columns that are there only when some client has something in them, the last one first.
const SOMETIMES: [usize; 3] = [7, 6, 5];
const FUNERALS: [&str; 6] = ["FUNERAL", "UID", "DOMAIN", "DESCRIPTORS", "PINNED", "HELD"];
const STRANGERS: [&str; 6] = ["STRANGER", "UID", "MEMORY", "SINCE", "GPU", "COMMAND"];

/// The answer to `status`, of what `viewer` may see.
///
/// As JSON it is one object over several lines, with each list's elements on lines of their own: the wire would cut a
/// long line in two.
pub(crate) fn status(snapshot: Snapshot, viewer: Viewer, form: Form) -> Vec<String> {
    let obstacles = snapshot.obstacles();
    let snapshot = snapshot.seen_by(viewer);
    match form {
        Form::Json => as_json(&snapshot, &obstacles),
        Form::Table | Form::Wide => as_text(&snapshot, &obstacles, form),
    }
}

fn as_json(snapshot: &Snapshot, obstacles: &[String]) -> Vec<String> {
    let mut lines = vec!["{".to_owned()];
    lines.push("\"daemon\":".to_owned());
    lines.push(fitted(&snapshot.daemon));
    lines.push(format!(",\"ready\":{},", obstacles.is_empty()));
    lines.push("\"obstacles\":".to_owned());
    lines.push(fitted(&obstacles));
    lines.push(",".to_owned());
    list(&mut lines, "domains", &snapshot.domains);
    list(&mut lines, "servers", &snapshot.servers);
    list(&mut lines, "named", &snapshot.named);
    list(&mut lines, "clients", &snapshot.clients);
    list(&mut lines, "funerals", &snapshot.funerals);
    list(&mut lines, "witnesses", &snapshot.witnesses);
    list(&mut lines, "gpus", &snapshot.gpus);
    list(&mut lines, "suspicions", &snapshot.suspicions);
    list(&mut lines, "strangers", &snapshot.strangers);
    list(&mut lines, "degraded", &snapshot.daemon.degraded);
    // The last list has no comma behind it.
    if let Some(last) = lines.last_mut() {
        last.pop();
    }
    lines.push("}".to_owned());
    lines
}

fn list(lines: &mut Vec<String>, name: &str, elements: &[impl Serialize]) {
    lines.push(format!("\"{name}\":["));
    for (index, element) in elements.iter().enumerate() {
        // A comma of its own line keeps the element within the limit of a line.
        if index > 0 {
            lines.push(",".to_owned());
        }
        lines.push(fitted(element));
    }
    lines.push("],".to_owned());
}

fn as_text(snapshot: &Snapshot, obstacles: &[String], form: Form) -> Vec<String> {
    /// Blanks before what goes on of a line that is too long, and of one that is indented already.
    const INDENT: usize = 2;
    let daemon = &snapshot.daemon;
    let ready = if obstacles.is_empty() { "ready".to_owned() } else { format!("not ready: {}", obstacles.join(", ")) };
    let mut lines = vec![format!(
        "Daemon {}, ReMPS {} in place of {}, up {}, {}",
        daemon.pid,
        daemon.version,
        daemon.personality,
        span(daemon.uptime),
        harmless(&ready)
    )];
    if let Some(ReplayFacts { keep, recover, tables }) = daemon.replay {
        let others = match tables {
            0 => String::new(),
            1 => "; those of one [[domain]] have values of their own".to_owned(),
            many => format!("; those of {many} [[domain]] have values of their own"),
        };
        let line = format!("Programs with the preload library: keep {keep}, recover {recover}");
        lines.push(format!("{line}, unless they say otherwise{others}"));
    }
    let lacking = |Lacking { right, costs }: &Lacking| format!("The daemon has no {right}: {costs}");
    lines.extend(daemon.rights.lacks.iter().map(lacking));
    lines.extend(snapshot.witnesses.iter().map(witness));
    for gpu in &snapshot.gpus {
        let mode = or_nothing(gpu.compute_mode);
        let back = gpu.restored.map(|mode| format!(", {mode} again when the daemon ends")).unwrap_or_default();
        lines.push(format!("GPU {} {}: compute mode {mode}{back}", gpu.index, harmless(&gpu.uuid)));
    }
    if let Some(reason) = &daemon.memory_unknown {
        lines.push(format!("GPU memory of clients: unknown, {}", harmless(reason)));
    }
    lines.extend(snapshot.suspicions.iter().map(|suspicion| harmless(&suspicion.to_string())));
    let mut lines: Vec<String> = lines.iter().flat_map(|line| wrapped(line, INDENT, form)).collect();
    lines.extend(section(&DOMAINS, &domains(snapshot), form));
    for domain in &snapshot.domains {
        if let Some(offender) = &domain.quarantine_of {
            let line = format!("{} is the quarantine of {}", harmless(&domain.name), harmless(offender));
            lines.extend(wrapped(&line, INDENT, form));
        }
    }
    lines.extend(section(&SERVERS, &servers(snapshot), form));
    let (mut heading, mut clients) = (CLIENTS.to_vec(), clients(snapshot, form));
    for column in SOMETIMES {
        if clients.iter().all(|row| row[column] == NOTHING) {
            heading.remove(column);
            clients.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    lines.extend(section(&heading, &clients, form));
    lines.extend(section(&FUNERALS, &funerals(snapshot), form));
    lines.extend(section(&STRANGERS, &strangers(snapshot), form));
    if !daemon.degraded.is_empty() {
        lines.extend([String::new(), "Degraded:".to_owned()]);
        for found in &daemon.degraded {
            lines.extend(wrapped(&format!("  {}: {}", found.part, harmless(&found.text)), 2 * INDENT, form));
        }
    }
    lines
}

/// The line of a witness. The patched module is the one that most machines do without.
fn witness(witness: &WitnessFacts) -> String {
    let state = match (&witness.missing, witness.attached) {
        (Some(reason), _) if witness.name == NOTICE => harmless(reason),
        (Some(reason), _) => format!("missing: {}", harmless(reason)),
        (None, Some(attached)) => {
            let refused =
                if witness.refused > 0 { format!(", can't follow {}", witness.refused) } else { String::new() };
            format!("follows {attached} {}{refused}", if attached == 1 { "client" } else { "clients" })
        }
        (None, None) => "heard".to_owned(),
    };
    if witness.name == NOTICE {
        format!("Patched module: {state}")
    } else {
        format!("Witness {}: {state}", witness.name)
    }
}

/// A table after an empty line; none without rows.
fn section(heading: &[&str], rows: &[Vec<String>], form: Form) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new()];
    lines.extend(aligned(heading, rows, form));
    lines
}

fn domains(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let row = |domain: &DomainFacts| {
        let mut state = match domain.phase {
            DomainPhase::Idle => "idle",
            DomainPhase::Starting => "starting",
            DomainPhase::Serving => "serving",
            DomainPhase::Recovering => "recovering",
            DomainPhase::Broken => "broken",
        }
        .to_owned();
        if domain.quarantined {
            state.push_str(", quarantine");
        }
        if let Some(retry) = domain.retry {
            state.push_str(&format!(", retry in {}", span(retry)));
        }
        let clients = match domain.max_clients {
            Some(most) => format!("{}/{most}", domain.clients),
            None => domain.clients.to_string(),
        };
        vec![
            harmless(&domain.name),
            domain.uid.to_string(),
            state,
            or_nothing(domain.server),
            or_nothing(domain.standby),
            clients,
            domain.waiting.to_string(),
        ]
    };
    snapshot.domains.iter().map(row).collect()
}

fn servers(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let servers = snapshot.servers.iter().map(|server| {
        vec![
            or_nothing(server.pid),
            server.uid.to_string(),
            harmless(&server.domain),
            state(server),
            server.clients.to_string(),
            or_nothing(server.ready.map(span)),
            or_nothing(server.memory_bytes.map(mebibytes)),
        ]
    });
    servers.collect()
}

/// What it does, where a fault has spoilt only some of its GPUs which of them, and whether it was ended for a fault.
fn state(server: &ServerFacts) -> String {
    let gpus: Vec<String> = server.spoilt_gpus.iter().map(ToString::to_string).collect();
    let word = server.phase.word();
    if server.early_end.is_some() {
        return format!("{word} after a fault");
    }
    if gpus.is_empty() { word.to_owned() } else { format!("{word} on {}", gpus.join(" ")) }
}

fn clients(snapshot: &Snapshot, form: Form) -> Vec<Vec<String>> {
    let here = snapshot.clients.iter().filter(|client| client.phase != ClientPhase::Gone);
    // It is for the wide table alone.
    let recovered = |client: &ClientFacts| {
        let refused = client.unrecovered.as_ref().map(|_| "refused".to_owned());
        refused.or_else(|| client.recovery.as_ref().map(RecoveryFacts::text)).filter(|_| form == Form::Wide)
    };
    let clients = here.map(|client| {
        vec![
            shown_pid(client),
            client.uid.to_string(),
            harmless(&client.domain),
            client.phase.word().to_owned(),
            or_nothing(client.server),
            or_nothing(client.spare.as_ref().map(spare)),
            or_nothing(recovered(client)),
            or_nothing(client.memory_bytes.map(mebibytes)),
            or_nothing(client.waited.map(span)),
            harmless(&client.identity.command),
        ]
    });
    clients.collect()
}

/// A client's pid; of one that has none here the number in its place, and behind it the pid that it has on the machine, as
/// `~4711`, where that is known.
fn shown_pid(client: &ClientFacts) -> String {
    let own = or_nothing(Some(client.process.pid).filter(|pid| *pid != 0));
    client.seen_as.map_or(own.clone(), |pid| format!("{own}~{pid}"))
}

/// How far a client's second copy of the driver is.
fn spare(spare: &SpareFacts) -> String {
    if spare.behind > 0 { format!("{}, {} behind", spare.word(), spare.behind) } else { spare.word().to_owned() }
}

fn funerals(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let funerals = snapshot.funerals.iter().map(|funeral| {
        let endless = if funeral.endless { ", endless" } else { "" };
        vec![
            funeral.process.pid.to_string(),
            funeral.uid.to_string(),
            harmless(&funeral.domain),
            funeral.descriptors.to_string(),
            or_nothing(funeral.pinned_bytes.map(mebibytes)),
            format!("{}{endless}", span(funeral.held)),
        ]
    });
    funerals.collect()
}

fn strangers(snapshot: &Snapshot) -> Vec<Vec<String>> {
    let strangers = snapshot.strangers.iter().map(|stranger| {
        let instance = stranger.instance.map(|(gpu, compute)| format!("/{gpu}/{compute}")).unwrap_or_default();
        vec![
            stranger.process.pid.to_string(),
            stranger.uid.to_string(),
            or_nothing(stranger.bytes.map(mebibytes)),
            span(stranger.since),
            format!("{}{instance}", harmless(&stranger.gpus.join(","))),
            harmless(&stranger.command),
        ]
    });
    strangers.collect()
}
