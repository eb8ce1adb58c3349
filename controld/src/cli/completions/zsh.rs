//! Completions for zsh: specifications for `_arguments`, command by command.

use super::{Choice, PROGRAM, Topic, Value, options};
use std::fmt::Write as _;

/// What asks the daemon for pids; `$1` is what they are of, `$2` the command.
const PIDS: &str = r#"
_nvidia-cuda-mps-control_pids() {
    local -a pids
    pids=(${(f)"$(timeout 2 $_nvidia_cuda_mps_control_program $2 2>/dev/null </dev/null | grep -oE '^[0-9]+')"})
    _wanted pids expl "pid of a $1" compadd -a pids
}
"#;

/// The script.
pub(super) fn script(topics: &[Topic]) -> String {
    let mut text = format!(
        "#compdef {PROGRAM}\n# Completions of {PROGRAM}, made by \"{PROGRAM} completions zsh\".\n{PIDS}\n\
         _nvidia-cuda-mps-control_commands() {{\n    local -a commands\n    commands=(\n"
    );
    for Topic { name, help, .. } in topics {
        writeln!(text, "        {}", quoted(&format!("{name}:{}", help.replace(':', "\\:")))).expect(TAKES);
    }
    text.push_str(
        "    )\n    _describe -t commands command commands\n}\n\n_nvidia-cuda-mps-control() {\n    \
         local curcontext=$curcontext state line expl _nvidia_cuda_mps_control_program=$words[1]\n    \
         typeset -A opt_args\n    _arguments -C -A '-*' \\\n",
    );
    for (spelling, help, value) in options() {
        writeln!(text, "        {} \\", quoted(&specified(&spelling, help, value.as_ref()))).expect(TAKES);
    }
    text.push_str(
        "        '1: :_nvidia-cuda-mps-control_commands' '*:: :->arguments' && return\n    \
         [[ $state == arguments ]] || return\n    case $words[1] in\n",
    );
    for topic in topics.iter().filter(|topic| !topic.options.is_empty() || !topic.operands.is_empty()) {
        write_topic(&mut text, topic);
    }
    text.push_str("        *) _message 'no more arguments' ;;\n    esac\n}\n\n");
    text.push_str("if [[ $funcstack[1] == _nvidia-cuda-mps-control ]]; then\n    _nvidia-cuda-mps-control \"$@\"\n");
    writeln!(text, "else\n    compdef _nvidia-cuda-mps-control {PROGRAM}\nfi").expect(TAKES);
    text
}

const TAKES: &str = "a String takes every text";

fn write_topic(text: &mut String, topic: &Topic) {
    write!(text, "        {}) _arguments", topic.name).expect(TAKES);
    for Choice { name, value, help } in &topic.options {
        write!(text, " \\\n            {}", quoted(&specified(name, help, value.as_ref()))).expect(TAKES);
    }
    let last = topic.operands.len();
    for (number, operand) in topic.operands.iter().enumerate() {
        let spec = if *operand == Value::Program {
            "*:: :_normal".to_owned()
        } else if topic.repeats && number + 1 == last {
            format!("*{}", action(operand))
        } else {
            format!("{}{}", number + 1, action(operand))
        };
        write!(text, " \\\n            {}", quoted(&spec)).expect(TAKES);
    }
    text.push_str(" ;;\n");
}

/// An option as `_arguments` reads it.
fn specified(name: &str, help: &str, value: Option<&Value>) -> String {
    let help = help.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    let help = if help.is_empty() { help } else { format!("[{help}]") };
    format!("{name}{help}{}", value.map(action).unwrap_or_default())
}

/// What is offered for a word, with the colons before it. A blank keeps `_arguments` from putting options of its own
/// before the arguments of what is called.
fn action(value: &Value) -> String {
    match value {
        Value::Text => ":value: ".to_owned(),
        Value::OneOf(words) => format!(":value:({})", words.join(" ")),
        Value::File => ":file:_files".to_owned(),
        Value::Folder => ":folder:_files -/".to_owned(),
        Value::Servers => ":server: _nvidia-cuda-mps-control_pids server get_server_list".to_owned(),
        Value::Clients => ":client: _nvidia-cuda-mps-control_pids client ps".to_owned(),
        Value::Topics => ":command:_nvidia-cuda-mps-control_commands".to_owned(),
        Value::Program => ":program:_normal".to_owned(),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
