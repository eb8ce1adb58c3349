//! What to do after a fault: for who owns the culprit, for who owns the victims, and for the operator.

use super::gather::Facts;
use serde::Serialize;

/// Advice, a sentence a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    /// For the culprit's owner; empty when nobody is named.
    pub culprit: Vec<String>,
    /// For the victims' owners; empty without victims.
    pub victims: Vec<String>,
    /// For the operator.
    pub operator: Vec<String>,
}

/// How often a program faults before somebody should keep it apart.
const OFTEN: usize = 2;

/// What helps after this one.
pub(super) fn of(facts: &Facts) -> Advice {
    let verdict = &facts.verdict;
    let sure = verdict["confidence"].as_str().unwrap_or("unknown");
    let isolated = verdict["isolated"].as_bool().unwrap_or_default();
    let has_victims = !isolated && verdict["victims"].as_array().is_some_and(|victims| !victims.is_empty());
    Advice {
        culprit: if verdict["culprit"].is_null() { Vec::new() } else { culprit(facts, sure) },
        victims: if has_victims { victims() } else { Vec::new() },
        operator: operator(facts),
    }
}

fn culprit(facts: &Facts, sure: &str) -> Vec<String> {
    let mut advice = Vec::new();
    if sure != "certain" {
        advice.push("The verdict is no proof: look at the program, and do not take it for guilty.".to_owned());
    }
    if facts.verdict["kind"] == "memory fault" {
        advice.push(
            "Run it alone under compute-sanitizer --tool memcheck: it names the line that accesses what it may not."
                .to_owned(),
        );
    } else {
        advice.push(
            "Run it alone with CUDA_LAUNCH_BLOCKING=1, and under compute-sanitizer: the first error is the one that \
             counts."
                .to_owned(),
        );
    }
    advice.push(
        "It is to be started again; under the preload library it may go on by itself (mps-client-shim(7)).".to_owned(),
    );
    advice
}

fn victims() -> Vec<String> {
    vec![
        "They did nothing wrong. One that ended with a CUDA error is to be started again: newcomers get a sound server."
            .to_owned(),
        "Under the preload library they may go on without that (mps-client-shim(7)).".to_owned(),
        "In a fault domain of their own others' faults pass them by ([domains] of mps-control.toml(5)).".to_owned(),
    ]
}

fn operator(facts: &Facts) -> Vec<String> {
    let verdict = &facts.verdict;
    let mut advice = Vec::new();
    if let Some(number) = facts.corrected_by {
        advice.push(format!("Read explain {number} instead: later evidence has changed this verdict."));
    }
    let suspicion = &verdict["suspicion"];
    if let Some(gpu) = suspicion["gpu"].as_str() {
        let (faults, place) = (&suspicion["faults"], suspicion["place"].as_str().unwrap_or("one place"));
        advice.push(format!(
            "{gpu} may be ill: {faults} faults at {place} in 24 h, and no one program's. Drain it, and run its \
             diagnostics (dcgmi diag -r 3)."
        ));
    }
    if verdict["culprit"].is_null() {
        advice.push(
            "To know who it is the next time, see what the witnesses lack: status, and doctor (uvm-tools, privileges)."
                .to_owned(),
        );
        advice.push(
            "Until then keep suspects apart: by = \"client\" or \"label\" in [domains] of mps-control.toml(5)."
                .to_owned(),
        );
    } else if facts.earlier >= OFTEN {
        advice.push(format!(
            "The same program has caused {} of the remembered faults before: quarantine_after and refuse_after keep its \
             like apart or away ([faults] of mps-control.toml(5)).",
            facts.earlier
        ));
    }
    let lingers = |client: &&serde_json::Value| client["phase"] == "lost" && client["server"] == verdict["server"];
    let lingering = facts.clients.iter().filter(lingers).count();
    if lingering > 0 {
        advice.push(format!(
            "{lingering} of its clients still hold on to the lost server; stop-client ends them, harming nobody."
        ));
    }
    if advice.is_empty() {
        advice.push("Nothing is to be done: newcomers are served.".to_owned());
    }
    advice
}
