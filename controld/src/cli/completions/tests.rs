//! What is read out of the synopses.

use super::*;

fn topic(name: &str) -> Topic {
    topics().into_iter().find(|topic| topic.name == name).expect("a command")
}

fn choice(topic: &Topic, name: &str) -> Option<Value> {
    topic.options.iter().find(|choice| choice.name == name).expect("an option").value.clone()
}

#[test]
fn a_synopsis_becomes_options_with_values_and_operands() {
    let stop = topic("stop-client");
    assert_eq!(choice(&stop, "--timeout"), Some(Value::Text));
    assert_eq!(choice(&stop, "--no-signal"), None);
    assert_eq!(choice(&stop, "--cgroup"), Some(Value::Folder));
    assert_eq!(choice(&stop, "--all-of"), Some(Value::OneOf(vec!["self"])));
    assert_eq!((stop.operands, stop.repeats), (vec![Value::Clients], true));

    let run = topic("run");
    assert_eq!(choice(&run, "--restart"), Some(Value::OneOf(vec!["on-fault", "never"])));
    assert_eq!(choice(&run, "--library"), Some(Value::File));
    assert_eq!(choice(&run, "--standby"), None);
    assert_eq!(run.operands, [Value::Program]);

    assert_eq!(topic("terminate_client").operands, [Value::Servers, Value::Clients]);
    assert_eq!(topic("sm_partition").operands[0], Value::OneOf(vec!["add", "rm"]));
    assert_eq!(topic("get_client_list").operands, [Value::Servers]);
    assert_eq!(topic("get_client_state").operands, [Value::Clients]);
    assert_eq!(choice(&topic("start_server"), "-uid"), Some(Value::Text));
    assert_eq!(choice(&topic("start_server"), "-mlopart"), None);
    assert_eq!(choice(&topic("ps"), "-p"), Some(Value::Servers));
}

#[test]
fn every_option_of_ours_has_its_help() {
    let ours: Vec<&str> = reports().map(|name| name.spelling()).chain(LOCAL_COMMANDS.iter().map(|s| s.name)).collect();
    for topic in topics().iter().filter(|topic| ours.contains(&topic.name)) {
        for choice in &topic.options {
            assert!(!choice.help.is_empty(), "{} {}", topic.name, choice.name);
        }
    }
}

#[test]
fn each_script_names_every_option_and_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Shell::named(shell).expect("a shell").completions();
        for topic in topics() {
            assert!(script.contains(topic.name), "{shell}: {}", topic.name);
        }
        for (spelling, ..) in options() {
            let bare = spelling.trim_start_matches('-');
            let shown = if shell == "fish" { format!(" {bare}") } else { spelling.clone() };
            assert!(script.contains(&shown), "{shell}: {spelling}");
        }
    }
    assert_eq!(Shell::named("tcsh"), None);
}
