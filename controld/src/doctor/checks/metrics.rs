//! Whether metrics and health can be asked for where the configuration says.

use crate::doctor::Outcome;
use crate::doctor::machine::{Daemon, Listening, Machine};

const COSTS: &str = "the daemon serves neither metrics nor probes there, and goes on without";

pub(super) fn metrics(machine: &Machine) -> Outcome {
    let Ok(config) = &machine.config else {
        return Outcome::unknown("the configuration can't be used");
    };
    let listen = config.observe.listen.as_str();
    if listen.is_empty() {
        return Outcome::ok("not wanted, observe.listen is empty");
    }
    let is_there = matches!(machine.daemon, Daemon::Answers { .. } | Daemon::Silent(_));
    match (machine.listening)(listen) {
        Listening::Ours if is_there => Outcome::ok(format!("served on {listen}")),
        Listening::Nobody if !is_there => Outcome::ok(format!("{listen} is free")),
        Listening::Nobody => Outcome::warning(
            format!("nobody listens on {listen}"),
            "nobody gets metrics, and probes fail",
            "look under Degraded in status; or the daemon was started with another configuration",
        ),
        Listening::Ours => Outcome::warning(
            format!("the daemon of another pipe directory listens on {listen}"),
            COSTS,
            "give each daemon an observe.listen of its own",
        ),
        Listening::Another => Outcome::warning(
            format!("another program listens on {listen}"),
            COSTS,
            "choose another observe.listen and start the daemon again",
        ),
        Listening::Unknown(why) => Outcome::unknown(format!("{listen}: {why}")),
    }
}
