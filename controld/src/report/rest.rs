//! `at-rest`: whether work can still write to GPU memory, and by what proof not.

use super::client::client_not_found;
use super::fitted;
use crate::core::{Awaited, RestFacts};
use remps_proto::admin::{Form, RestQuery, Whose};
use serde_json::json;

/// The answer where nothing is known of whom the question is about, or nothing that the asker may see.
pub(crate) fn nobody(whose: Whose) -> Vec<String> {
    match whose {
        Whose::Process(pid) => client_not_found(pid),
        Whose::User(uid) => vec![format!("User {uid} not found")],
        Whose::Server(pid) => vec![format!("Server {pid} not found")],
    }
}

/// The answer to `at-rest`: a line that says whether it is so, and one for each thing that must end first or that is the
/// proof; or one JSON object.
pub(crate) fn rest(facts: &RestFacts, query: RestQuery) -> Vec<String> {
    let whom = match query.whose {
        Whose::Process(pid) => format!("Client {pid}"),
        Whose::User(uid) => format!("User {uid}"),
        Whose::Server(pid) => format!("Server {pid}"),
    };
    let is_proven = facts.is_proven();
    if query.output.form == Form::Json {
        let (of, number) = match query.whose {
            Whose::Process(pid) => ("pid", pid),
            Whose::User(uid) => ("uid", uid),
            Whose::Server(pid) => ("server", pid),
        };
        let ended = json!({ "processes": facts.processes, "servers": facts.servers });
        return vec![fitted(&json!({ "at_rest": is_proven, of: number, "ended": ended, "awaited": facts.awaited }))];
    }
    let mut lines = vec![if is_proven { format!("{whom} is at rest") } else { format!("{whom} is not at rest") }];
    lines.extend(facts.awaited.iter().map(awaited));
    if is_proven {
        lines.extend(facts.processes.iter().map(|pid| format!("  process {pid} has ended")));
        lines.extend(facts.servers.iter().map(|pid| format!("  server {pid} has ended, and no channel of it is left")));
        if facts.processes.is_empty() && facts.servers.is_empty() {
            lines.push("  nothing of it has been on a server".to_owned());
        }
    }
    lines
}

fn awaited(what: &Awaited) -> String {
    let server =
        |pid: &Option<u32>| pid.map_or_else(|| "a server that starts".to_owned(), |pid| format!("server {pid}"));
    match what {
        Awaited::Process { pid } => format!("  process {pid} lives"),
        Awaited::Server { pid, unremembered: false } => {
            format!("  {} lives: a kernel may still run there", server(pid))
        }
        Awaited::Server { pid, unremembered: true } => {
            format!("  {} lives: not all of its former clients are known", server(pid))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remps_proto::admin::Output;

    fn query(whose: Whose, json: bool) -> RestQuery {
        let form = if json { Form::Json } else { Form::Table };
        RestQuery { whose, wait_s: None, output: Output { form, utc: false } }
    }

    #[test]
    fn a_proof_names_what_has_ended_and_an_open_question_what_has_not() {
        let proven = RestFacts { processes: [42].into(), servers: [7].into(), ..RestFacts::default() };
        let expected =
            ["Client 42 is at rest", "  process 42 has ended", "  server 7 has ended, and no channel of it is left"];
        assert_eq!(rest(&proven, query(Whose::Process(42), false)), expected);
        let awaited = vec![
            Awaited::Process { pid: 42 },
            Awaited::Server { pid: Some(7), unremembered: false },
            Awaited::Server { pid: None, unremembered: true },
        ];
        let open = RestFacts { awaited, ..RestFacts::default() };
        let expected = [
            "User 1000 is not at rest",
            "  process 42 lives",
            "  server 7 lives: a kernel may still run there",
            "  a server that starts lives: not all of its former clients are known",
        ];
        assert_eq!(rest(&open, query(Whose::User(1000), false)), expected);
        let nothing = rest(&RestFacts::default(), query(Whose::User(1000), false));
        assert_eq!(nothing, ["User 1000 is at rest", "  nothing of it has been on a server"]);
        let told: serde_json::Value = serde_json::from_str(&rest(&open, query(Whose::Process(42), true))[0]).unwrap();
        assert_eq!((&told["at_rest"], &told["pid"]), (&false.into(), &42.into()));
        assert_eq!(told["awaited"][0], json!({ "what": "process", "pid": 42 }));
        assert_eq!(told["awaited"][1], json!({ "what": "server", "pid": 7, "unremembered": false }));
        let told: serde_json::Value = serde_json::from_str(&rest(&proven, query(Whose::Server(7), true))[0]).unwrap();
        assert_eq!(
            told,
            json!({ "at_rest": true, "server": 7, "ended": { "processes": [42], "servers": [7] }, "awaited": [] })
        );
    }
}
