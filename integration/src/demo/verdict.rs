//! Which promises of this release were kept, and what was not proven.
//!
//! Containment is not among them: what a fault does to the clients of the same server is the vendor's server's doing,
//! and this release does not change it.

use super::facts::{ClientFacts, Failure, FaultFacts, MachineFacts, NewcomerFacts, Promise, QuitFacts};

/// `CUDA_ERROR_MPS_CONNECTION_FAILED`: the client reached something, but no daemon or server.
const CONNECTION_FAILED: u32 = 805;
/// `CUDA_ERROR_MPS_RPC_FAILURE`: the server is gone.
const RPC_FAILURE: u32 = 806;
/// `CUDA_ERROR_MPS_SERVER_NOT_READY`.
const SERVER_NOT_READY: u32 = 807;

/// Why a client failed, in words that follow a "because".
pub(super) fn why(code: u32, is_culprit: bool, shares_the_fault: bool) -> String {
    match code {
        SERVER_NOT_READY => "the server takes nobody until the last client of the fault has left".to_owned(),
        CONNECTION_FAILED => "there was nobody to connect to".to_owned(),
        RPC_FAILURE => "the server is gone".to_owned(),
        _ if is_culprit => "its own kernel wrote to an address where nothing is mapped".to_owned(),
        _ if shares_the_fault => {
            "another client of its server faulted, and the vendor's server gives the error to all of them".to_owned()
        }
        _ => "of something that this demonstration did not bring about".to_owned(),
    }
}

/// Judges; `is_faulted` says whether the faulting kernel was launched.
pub(super) fn promises(
    is_faulted: bool,
    clients: &[ClientFacts],
    newcomers: &[NewcomerFacts],
    quit: &QuitFacts,
) -> Vec<Promise> {
    vec![
        every_client_served(clients),
        nobody_refused_by_us(clients, newcomers),
        other_users_unharmed(is_faulted, clients),
        newcomers_served(newcomers),
        daemon_lived(quit),
        nothing_left(quit),
    ]
}

fn every_client_served(clients: &[ClientFacts]) -> Promise {
    let served = clients.iter().filter(|client| client.served_after_ms.is_some()).count();
    Promise {
        name: "clients-served",
        text: "every client gets a context and memory through the daemon",
        kept: Some(served == clients.len() && !clients.is_empty()),
        seen: format!("{served} of {} clients were served", clients.len()),
    }
}

/// Whether a failure is one that only we can have brought about.
fn is_ours(failure: &Failure, is_by_server: bool) -> bool {
    match failure.code {
        CONNECTION_FAILED => true,
        SERVER_NOT_READY => !is_by_server,
        _ => false,
    }
}

fn nobody_refused_by_us(clients: &[ClientFacts], newcomers: &[NewcomerFacts]) -> Promise {
    let by_clients =
        clients.iter().filter_map(|client| client.failure.as_ref()).filter(|failure| is_ours(failure, false));
    let attempts = || newcomers.iter().flat_map(|newcomer| &newcomer.failures);
    let by_newcomers = attempts().filter(|refusal| is_ours(&refusal.failure, refusal.is_by_server));
    let ours = by_clients.count() + by_newcomers.count();
    let servers = attempts().filter(|refusal| refusal.is_by_server).count();
    Promise {
        name: "not-refused-by-us",
        text: "nobody gets 805 or 807 because of the daemon",
        kept: Some(ours == 0),
        seen: format!("{ours} because of the daemon, {servers} refused by the vendor's server in its fault state"),
    }
}

fn other_users_unharmed(is_faulted: bool, clients: &[ClientFacts]) -> Promise {
    let others: Vec<&ClientFacts> = clients.iter().filter(|client| !client.shares_the_fault).collect();
    let is_well = |client: &&ClientFacts| {
        client.failure.is_none() && client.exit.status == Some(0) && client.is_intact == Some(true)
    };
    let seen = match others.as_slice() {
        _ if !is_faulted => "not tried: there was no fault".to_owned(),
        [] => "not tried: only root can run clients of two users".to_owned(),
        others => others
            .iter()
            .map(|client| {
                let longest = client.longest_step_since_fault_ms.unwrap_or_default();
                let steps = client.steps.unwrap_or_default();
                match &client.failure {
                    None => format!("{} did {steps} steps, the longest since the fault {longest:.1} ms", client.name),
                    Some(failure) => format!("{} failed with {} ({})", client.name, failure.name, failure.code),
                }
            })
            .collect::<Vec<_>>()
            .join("; "),
    };
    Promise {
        name: "other-users-unharmed",
        text: "a fault does not reach clients of other users, whose servers run side by side",
        kept: (is_faulted && !others.is_empty()).then(|| others.iter().all(is_well)),
        seen,
    }
}

fn newcomers_served(newcomers: &[NewcomerFacts]) -> Promise {
    let tell = |newcomer: &NewcomerFacts| match newcomer.served_after_ms {
        Some(ms) => {
            format!("{} after {ms:.1} ms and {} failed attempts", newcomer.name, newcomer.failures.len())
        }
        None => format!("{} never, in {} attempts", newcomer.name, newcomer.failures.len()),
    };
    Promise {
        name: "newcomers-served",
        text: "who comes during a fault is served, at the latest when the last client of the fault has left",
        kept: (!newcomers.is_empty()).then(|| newcomers.iter().all(|newcomer| newcomer.served_after_ms.is_some())),
        seen: match newcomers {
            [] => "not tried: nobody came".to_owned(),
            newcomers => newcomers.iter().map(tell).collect::<Vec<_>>().join("; "),
        },
    }
}

fn daemon_lived(quit: &QuitFacts) -> Promise {
    Promise {
        name: "daemon-lived",
        text: "the daemon outlives the fault and ends when it is told to, with status 0",
        kept: Some(quit.was_alive && quit.status == Some(0) && quit.daemon_status == Some(0)),
        seen: match (quit.was_alive, quit.status, quit.daemon_status) {
            (false, ..) => "the daemon was gone before it was told to quit".to_owned(),
            (true, Some(command), Some(daemon)) => {
                format!("quit ended with {command} and the daemon with {daemon} after {:.1} ms", quit.took_ms)
            }
            (true, ..) => "quit or the daemon did not end in time".to_owned(),
        },
    }
}

fn nothing_left(quit: &QuitFacts) -> Promise {
    let left: Vec<&str> = quit.files_left.iter().chain(&quit.processes_left).map(String::as_str).collect();
    Promise {
        name: "nothing-left",
        text: "after quit no file is left in the pipe directory and no process runs",
        kept: Some(left.is_empty()),
        seen: if left.is_empty() { "nothing was left".to_owned() } else { format!("left: {}", left.join(", ")) },
    }
}

/// What was not shown.
pub(super) fn not_proven(machine: &MachineFacts, clients: &[ClientFacts], fault: &FaultFacts) -> Vec<String> {
    let mut list = Vec::new();
    if clients.iter().all(|client| !client.is_culprit || client.failure.is_none()) {
        list.push("that there was a fault: the client that was to fault did not fail".to_owned());
    }
    let victims = clients.iter().filter(|client| client.shares_the_fault && !client.is_culprit);
    let (dead, alive): (Vec<_>, Vec<_>) = victims.partition(|client| client.failure.is_some());
    if !dead.is_empty() {
        let names: Vec<&str> = dead.iter().map(|client| client.name.as_str()).collect();
        list.push(format!(
            "containment inside one server: this release does not do it, and {} died of a fault that was not its own",
            names.join(", ")
        ));
    }
    if !alive.is_empty() {
        list.push("that clients of the culprit's server always live: this release does not see to it".to_owned());
    }
    if fault.is_named_rightly != Some(true) {
        list.push("who did it: this release repeats the server's log and does not correct it".to_owned());
    }
    if clients.iter().all(|client| client.shares_the_fault) {
        list.push("that other users are unharmed: it takes root to run clients of two users".to_owned());
    }
    if machine.driver == "simulated" {
        list.push(
            "anything about a GPU: driver and servers were simulated, as measured on an H200 with 580".to_owned(),
        );
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Exit, Refusal};
    use super::*;

    fn client(name: &str, shares_the_fault: bool) -> ClientFacts {
        ClientFacts {
            name: name.to_owned(),
            uid: 0,
            pid: 10,
            server: Some(5),
            shares_the_fault,
            is_culprit: false,
            served_after_ms: Some(40.0),
            steps: Some(100),
            longest_step_since_fault_ms: Some(0.5),
            is_intact: Some(true),
            failure: None,
            exit: Exit { status: Some(0), signal: None },
        }
    }

    fn failure(code: u32) -> Failure {
        Failure { at_ms: 1.0, call: "cuInit".to_owned(), code, name: "NAME".to_owned(), why: String::new() }
    }

    fn newcomer(failures: Vec<Refusal>, served_after_ms: Option<f64>) -> NewcomerFacts {
        let name = "newcomer 1".to_owned();
        NewcomerFacts {
            name,
            uid: 0,
            server: None,
            came_at_ms: 1.0,
            served_after_ms,
            first_allocation_ms: served_after_ms,
            failures,
        }
    }

    fn quit() -> QuitFacts {
        QuitFacts {
            was_alive: true,
            status: Some(0),
            daemon_status: Some(0),
            took_ms: 3.0,
            files_left: Vec::new(),
            processes_left: Vec::new(),
        }
    }

    fn broken(promises: &[Promise]) -> Vec<&'static str> {
        promises.iter().filter(|promise| promise.kept == Some(false)).map(|promise| promise.name).collect()
    }

    #[test]
    fn victims_of_the_same_server_break_no_promise() {
        let mut victim = client("bystander A", true);
        victim.failure = Some(failure(700));
        victim.exit.status = Some(188);
        let clients = [victim, client("bystander B", false)];
        assert_eq!(broken(&promises(true, &clients, &[newcomer(Vec::new(), Some(9.0))], &quit())), [""; 0]);
    }

    #[test]
    fn a_client_of_another_user_that_fails_or_loses_memory_breaks_a_promise() {
        let served = [newcomer(Vec::new(), Some(9.0))];
        let mut failed = client("bystander B", false);
        failed.failure = Some(failure(700));
        assert_eq!(broken(&promises(true, &[failed], &served, &quit())), ["other-users-unharmed"]);
        let mut torn = client("bystander B", false);
        torn.is_intact = Some(false);
        assert_eq!(broken(&promises(true, &[torn], &served, &quit())), ["other-users-unharmed"]);
        let alone = promises(true, &[client("bystander A", true)], &served, &quit());
        let other_users = alone.iter().find(|promise| promise.name == "other-users-unharmed").unwrap();
        assert_eq!(other_users.kept, None, "what was not tried is not kept");
    }

    #[test]
    fn a_refusal_counts_against_us_unless_the_server_says_that_it_was_its_own() {
        let clients = [client("bystander A", true)];
        let names = |code, is_by_server| {
            let refusal = Refusal { pid: 7, failure: failure(code), is_by_server };
            broken(&promises(true, &clients, &[newcomer(vec![refusal], Some(90.0))], &quit()))
        };
        assert_eq!(names(807, true), [""; 0]);
        assert_eq!(names(807, false), ["not-refused-by-us"]);
        assert_eq!(names(805, false), ["not-refused-by-us"]);
        assert_eq!(names(805, true), ["not-refused-by-us"]);
        assert_eq!(names(700, false), [""; 0], "a newcomer hit by the fault was not refused");
    }

    #[test]
    fn nobody_served_and_leftovers_break_promises() {
        let mut waiting = client("bystander A", true);
        waiting.served_after_ms = None;
        let mut end = quit();
        end.files_left.push("control".to_owned());
        let names = promises(true, &[waiting], &[newcomer(Vec::new(), None)], &end);
        assert_eq!(broken(&names), ["clients-served", "newcomers-served", "nothing-left"]);
        let mut dead = quit();
        dead.was_alive = false;
        assert_eq!(broken(&promises(true, &[client("a", true)], &[], &dead)), ["daemon-lived"]);
    }

    #[test]
    fn what_was_not_tried_is_neither_kept_nor_broken() {
        let untried = promises(false, &[client("bystander B", false)], &[], &quit());
        let names = untried.iter().filter(|promise| promise.kept.is_none()).map(|promise| promise.name);
        assert_eq!(names.collect::<Vec<_>>(), ["other-users-unharmed", "newcomers-served"]);
    }
}
