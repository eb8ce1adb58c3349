//! The grammar of `at-rest`: whether work can still write to GPU memory.

use super::form::{Asked, Output};
use super::report::{number, readable};

/// Whose work is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// That of a client's process, by its pid in the daemon's namespace.
    Process(u32),
    /// That of every client of a user.
    User(u32),
    /// That of every client of a server, by the server's pid.
    Server(u32),
}

/// `at-rest PID|--user UID|--server PID [--wait SECONDS]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RestQuery {
    /// Whose work.
    pub whose: Whose,
    /// How long the answer may take while the work is not at rest; `None` is answered at once.
    pub wait_s: Option<u32>,
    /// As JSON it is one object.
    pub output: Output,
}

impl RestQuery {
    /// Reads the words after the command's.
    ///
    /// # Errors
    /// The first word that is not understood or comes once more than it may; `None` where one is missing.
    pub fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Option<String>> {
        let (mut whose, mut wait_s, mut asked) = (None, None, Asked::default());
        while let Some(word) = words.next() {
            if word != b"--wide" && asked.take(word, &mut words)? {
                continue;
            }
            let wrong = |word: &[u8]| Some(readable(word));
            let twice = match word {
                b"--wait" => {
                    let value = words.next().ok_or(None)?;
                    wait_s.replace(number(value).ok_or_else(|| wrong(value))?).is_some()
                }
                b"--user" => {
                    let value = words.next().ok_or(None)?;
                    // Root is a user, too.
                    let uid = if value == b"0" { Some(0) } else { number(value) };
                    whose.replace(Whose::User(uid.ok_or_else(|| wrong(value))?)).is_some()
                }
                b"--server" => {
                    let value = words.next().ok_or(None)?;
                    whose.replace(Whose::Server(number(value).ok_or_else(|| wrong(value))?)).is_some()
                }
                _ => whose.replace(Whose::Process(number(word).ok_or_else(|| wrong(word))?)).is_some(),
            };
            if twice {
                return Err(wrong(word));
            }
        }
        let output = asked.output()?.unwrap_or_default();
        Ok(Self { whose: whose.ok_or(None)?, wait_s, output })
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::Form;
    use super::*;

    fn parse(line: &str) -> Result<RestQuery, Option<String>> {
        RestQuery::parse(line.split(' ').map(str::as_bytes).filter(|word| !word.is_empty()))
    }

    #[test]
    fn a_process_a_user_or_a_server_is_named() {
        let plain = |whose| Ok(RestQuery { whose, wait_s: None, output: Output::default() });
        assert_eq!(parse("42"), plain(Whose::Process(42)));
        assert_eq!(parse("--user 0"), plain(Whose::User(0)));
        assert_eq!(parse("--server 7"), plain(Whose::Server(7)));
        let output = Output { form: Form::Json, utc: false };
        let patient = RestQuery { whose: Whose::Process(42), wait_s: Some(5), output };
        assert_eq!(parse("--json --wait 5 42"), Ok(patient));
        assert_eq!(parse("42 --wait 5 --json"), Ok(patient));
        assert_eq!(parse("42 -o json --wait 5"), Ok(patient));
    }

    #[test]
    fn what_names_nobody_or_two_is_misused() {
        for (line, word) in [
            ("", None),
            ("--wait 5", None),
            ("--user", None),
            ("42 --wait", None),
            ("0", Some("0")),
            ("-1", Some("-1")),
            ("42 43", Some("43")),
            ("42 --user 7", Some("--user")),
            ("--server x", Some("x")),
            ("--user -1", Some("-1")),
            ("42 --wait 0", Some("0")),
            ("42 --wait 1 --wait 2", Some("--wait")),
            ("42 --forever", Some("--forever")),
            ("42 --wide", Some("--wide")),
            ("42 -o xml", Some("-o xml")),
            ("99999999999", Some("99999999999")),
        ] {
            assert_eq!(parse(line), Err(word.map(str::to_owned)), "{line}");
        }
    }
}
