//! Completions for fish: a line an option and a command.

use super::{Choice, PROGRAM, Topic, Value, options};
use std::fmt::Write as _;

/// What asks the daemon for pids by a command.
const PIDS: &str = "
function __nvidia_cuda_mps_control_pids
    timeout 2 nvidia-cuda-mps-control $argv 2>/dev/null </dev/null | string match -r '^[0-9]+'
end
";

const TAKES: &str = "a String takes every text";

/// The script.
pub(super) fn script(topics: &[Topic]) -> String {
    let mut text = format!("# Completions of {PROGRAM}, made by \"{PROGRAM} completions fish\".\n{PIDS}\n");
    let begin = format!("complete -c {PROGRAM}");
    writeln!(text, "{begin} -f").expect(TAKES);
    for (spelling, help, value) in options() {
        let spelling = named(&spelling);
        let value = value.as_ref().map(action).unwrap_or_default();
        writeln!(text, "{begin} -n __fish_use_subcommand {spelling}{value} -d {}", quoted(help)).expect(TAKES);
    }
    for topic in topics {
        let (name, help) = (topic.name, quoted(topic.help));
        writeln!(text, "{begin} -n __fish_use_subcommand -a {name} -d {help}").expect(TAKES);
        let within = format!("{begin} -n '__fish_seen_subcommand_from {name}'");
        for Choice { name, value, help } in &topic.options {
            let value = value.as_ref().map(action).unwrap_or_default();
            let help = if help.is_empty() { String::new() } else { format!(" -d {}", quoted(help)) };
            writeln!(text, "{within} {}{value}{help}", named(name)).expect(TAKES);
        }
        for operand in &topic.operands {
            if *operand == Value::Topics {
                let names: Vec<&str> = topics.iter().map(|topic| topic.name).collect();
                writeln!(text, "{within} -a {}", quoted(&names.join(" "))).expect(TAKES);
            } else if *operand != Value::Text {
                writeln!(text, "{within}{}", action(operand).replace(" -x", "")).expect(TAKES);
            }
        }
    }
    text
}

/// An option by the switch for its kind: one letter, a word after two dashes, a word after one.
fn named(option: &str) -> String {
    match option.strip_prefix("--") {
        Some(word) => format!("-l {word}"),
        None if option.len() == 2 => format!("-s {}", &option[1..]),
        None => format!("-o {}", &option[1..]),
    }
}

fn action(value: &Value) -> String {
    match value {
        Value::Text | Value::Topics => " -x".to_owned(),
        Value::OneOf(words) => format!(" -x -a {}", quoted(&words.join(" "))),
        Value::File => " -r -F".to_owned(),
        Value::Folder => " -x -a '(__fish_complete_directories)'".to_owned(),
        Value::Servers => " -x -a '(__nvidia_cuda_mps_control_pids get_server_list)'".to_owned(),
        Value::Clients => " -x -a '(__nvidia_cuda_mps_control_pids ps)'".to_owned(),
        Value::Program => " -x -a '(__fish_complete_subcommand --fcs-skip=2)'".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
