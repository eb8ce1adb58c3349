//! Completions for bash: tables of words, and one function that reads them.

use super::{PROGRAM, Topic, Value, options};
use std::fmt::Write as _;

/// What reads the tables; `options`, `values`, `operands` and `repeats` are those of the command in `command`.
const REST: &str = r#"
    [[ -z $command ]] || ((at++))
    for (( ; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        if [[ $word == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset $((at + 1))
            elif ((at + 1 == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else
                compopt -o filenames
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            return
        elif [[ -n ${values[$word]-} ]]; then
            ((at++))
        elif [[ $word != -* ]]; then
            ((operand++))
        fi
    done
    if ((at > COMP_CWORD)); then
        kind=${values[$prev]}
        options=()
    elif [[ $cur != -* && ${#operands[@]} -gt 0 ]]; then
        if ((operand >= ${#operands[@]})) && [[ -n $repeats ]]; then
            operand=$((${#operands[@]} - 1))
        fi
        kind=${operands[operand]-}
    fi
    case $kind in
        =*) words=${kind#=} ;;
        file | folder)
            compopt -o filenames
            if [[ $kind == file ]]; then
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            fi
            ;;
        servers) words=$(timeout 2 "${COMP_WORDS[0]}" get_server_list 2>/dev/null </dev/null | grep -oE '^[0-9]+') ;;
        clients) words=$(timeout 2 "${COMP_WORDS[0]}" ps 2>/dev/null </dev/null | grep -oE '^[0-9]+') ;;
        topics) words=${commands[*]} ;;
    esac
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    fi
    if [[ ${#COMPREPLY[@]} == 0 && ${#options[@]} -gt 0 && (-z $cur || $cur == -*) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${options[*]}" -- "$cur")
    fi
}
"#;

/// The script.
pub(super) fn script(topics: &[Topic]) -> String {
    let mut text = format!(
        "# shellcheck shell=bash\n# Completions of {PROGRAM}, made by \"{PROGRAM} completions bash\".\n\
         _nvidia_cuda_mps_control() {{\n    local cur=${{COMP_WORDS[COMP_CWORD]}} \
         prev=${{COMP_WORDS[COMP_CWORD - 1]}}\n    local command='' at word words='' kind='' operand=0 repeats=''\n    \
         local -a options=() operands=() commands=()\n    local -A values=()\n    COMPREPLY=()\n"
    );
    let names: Vec<&str> = topics.iter().map(|topic| topic.name).collect();
    text.push_str(&array("commands", "    ", &names));
    let valued: Vec<(String, Value)> = options().filter_map(|(spelling, _, value)| Some((spelling, value?))).collect();
    let names: Vec<&str> = valued.iter().map(|(spelling, _)| spelling.as_str()).collect();
    writeln!(
        text,
        "    for ((at = 1; at < COMP_CWORD; at++)); do\n        [[ ${{COMP_WORDS[at]}} == -* || ${{COMP_WORDS[at - 1]}} \
         == @({}) ]] || {{ command=${{COMP_WORDS[at]}}; break; }}\n    done\n    case $command in",
        names.join("|")
    )
    .expect("a String takes every text");
    let spellings: Vec<String> = options().map(|(spelling, ..)| spelling).collect();
    let spellings: Vec<&str> = spellings.iter().map(String::as_str).collect();
    text.push_str("        '')\n");
    text.push_str(&array("options", "            ", &spellings));
    text.push_str("            case $prev in\n");
    for (spelling, value) in &valued {
        writeln!(text, "                {spelling}) kind='{}' ;;", kind(value)).expect("a String takes every text");
    }
    text.push_str("                *) kind='topics' ;;\n            esac\n            [[ $cur != -* ]] || kind=''\n            ;;\n");
    for topic in topics {
        write_topic(&mut text, topic);
    }
    text.push_str("        *) return ;;\n    esac");
    text.push_str(REST);
    writeln!(text, "complete -F _nvidia_cuda_mps_control {PROGRAM}").expect("a String takes every text");
    text
}

fn write_topic(text: &mut String, topic: &Topic) {
    let Topic { name, options, operands, repeats, .. } = topic;
    if options.is_empty() && operands.is_empty() {
        writeln!(text, "        {name}) ;;").expect("a String takes every text");
        return;
    }
    writeln!(text, "        {name})").expect("a String takes every text");
    let names: Vec<&str> = options.iter().map(|choice| choice.name).collect();
    if !names.is_empty() {
        text.push_str(&array("options", "            ", &names));
    }
    let valued = options.iter().filter_map(|choice| Some((choice.name, choice.value.as_ref()?)));
    let valued: Vec<String> = valued.map(|(name, value)| format!("['{name}']='{}'", kind(value))).collect();
    if !valued.is_empty() {
        let valued: Vec<&str> = valued.iter().map(String::as_str).collect();
        text.push_str(&array("values", "            ", &valued));
    }
    let operands: Vec<String> = operands.iter().map(|value| format!("'{}'", kind(value))).collect();
    if !operands.is_empty() {
        writeln!(text, "            operands=({})", operands.join(" ")).expect("a String takes every text");
    }
    if *repeats {
        text.push_str("            repeats=1\n");
    }
    text.push_str("            ;;\n");
}

fn array(name: &str, indent: &str, words: &[&str]) -> String {
    format!("{indent}{name}=(\n{indent}    {}\n{indent})\n", words.join(&format!("\n{indent}    ")))
}

fn kind(value: &Value) -> String {
    match value {
        Value::Text => "text".to_owned(),
        Value::OneOf(words) => format!("={}", words.join(" ")),
        Value::File => "file".to_owned(),
        Value::Folder => "folder".to_owned(),
        Value::Servers => "servers".to_owned(),
        Value::Clients => "clients".to_owned(),
        Value::Topics => "topics".to_owned(),
        Value::Program => "program".to_owned(),
    }
}
