//! Reads a synopsis, as `[--timeout S] PID...|--cgroup PATH|--all-of PID|self`, into options and operands.
//!
//! Words in small letters stand for themselves, words in capitals for something. What follows an option within its
//! brackets, or up to the next `|` and option, is its value.

use super::{Choice, Topic, Value};

/// How two words of a synopsis hang together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joint {
    /// One follows the other.
    Then,
    /// Either.
    Or,
    /// A bracket closes between them.
    Closed,
}

/// What can follow a command; the pids of `is_ours` are those of clients.
pub(super) fn read(name: &'static str, help: &'static str, arguments: &'static str, is_ours: bool) -> Topic {
    let mut topic = Topic { name, help, options: Vec::new(), operands: Vec::new(), repeats: false };
    for alternative in arguments.split(" | ") {
        read_one(&mut topic, alternative, is_ours);
    }
    topic
}

fn read_one(topic: &mut Topic, arguments: &'static str, is_ours: bool) {
    let words = words(arguments);
    let mut position = 0;
    let mut at = 0;
    while let Some((word, joint)) = words.get(at).copied() {
        at += 1;
        if word == "--" {
            continue;
        }
        let is_option = word.starts_with('-');
        let mut alternatives = if is_option { Vec::new() } else { vec![word] };
        let mut joint = joint;
        // An option's value begins after a blank, other values of the same word after `|`.
        while let Some((next, after)) = words.get(at).copied().filter(|(next, _)| !next.starts_with('-')) {
            let belongs = if is_option && alternatives.is_empty() { Joint::Then } else { Joint::Or };
            if joint != belongs {
                break;
            }
            alternatives.push(next);
            joint = after;
            at += 1;
        }
        if is_option {
            let value = (!alternatives.is_empty()).then(|| value(word, &alternatives, is_ours));
            topic.options.push(Choice { name: word, value, help: "" });
        } else {
            topic.repeats |= word.ends_with("...");
            let operand = value("", &alternatives, is_ours);
            match (topic.operands.get_mut(position), operand) {
                (Some(Value::OneOf(known)), Value::OneOf(more)) => known.extend(more),
                (Some(_), _) => {}
                (None, operand) => topic.operands.push(operand),
            }
            position += 1;
        }
    }
}

/// The words, each with what is between it and the next one.
fn words(arguments: &'static str) -> Vec<(&'static str, Joint)> {
    let mut words = Vec::new();
    for piece in arguments.split(' ').filter(|piece| !piece.is_empty()) {
        let closes = piece.ends_with(']');
        let inner = piece.trim_start_matches('[').trim_end_matches(']');
        let last = inner.split('|').count() - 1;
        words.extend(inner.split('|').enumerate().map(|(number, word)| {
            let joint = if number < last { Joint::Or } else { Joint::Then };
            (word, if closes && number == last { Joint::Closed } else { joint })
        }));
    }
    words
}

fn value(option: &str, alternatives: &[&'static str], is_ours: bool) -> Value {
    let literals: Vec<&'static str> = alternatives.iter().copied().filter(|word| is_literal(word)).collect();
    if !literals.is_empty() {
        return Value::OneOf(literals);
    }
    match alternatives.first().map_or("", |word| word.trim_end_matches("...")) {
        "PATH" if option == "--cgroup" => Value::Folder,
        "PATH" | "FILE" => Value::File,
        "PID" if is_ours => Value::Clients,
        "PID" | "SERVER_PID" => Value::Servers,
        "CLIENT_PID" => Value::Clients,
        "COMMAND" => Value::Program,
        _ => Value::Text,
    }
}

fn is_literal(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}
