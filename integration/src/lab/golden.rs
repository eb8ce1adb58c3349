//! The golden files: commands and the vendor's answers, as a program wrote them down.
//!
//! A row is `'command'  rc=0 out=b'…' err=b'…'` with the quoting of Python's `repr`; after a line `--- title` follow
//! rows of other shapes, kept as text.

/// One command and its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What was typed, without its line end.
    pub command: String,
    /// Exit status of the user interface.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Reads the rows above the first title.
///
/// # Panics
/// When a row has another form: the files are ours.
#[must_use]
pub fn rows(text: &str) -> Vec<Row> {
    text.lines().take_while(|line| !line.starts_with("---")).filter(|line| !line.is_empty()).map(row).collect()
}

/// The lines below `--- title`, up to the next title.
#[must_use]
pub fn section<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let mut lines = text.lines().skip_while(|line| line.strip_prefix("--- ") != Some(title));
    lines.next();
    lines.take_while(|line| !line.starts_with("---")).collect()
}

fn row(line: &str) -> Row {
    let (command, rest) = literal(line);
    let rest = rest.trim_start().strip_prefix("rc=").unwrap_or_else(|| panic!("no rc= in {line:?}"));
    let (status, rest) = rest.split_once(' ').unwrap_or_else(|| panic!("no out= in {line:?}"));
    let (stdout, rest) = literal(rest.strip_prefix("out=b").unwrap_or_else(|| panic!("no out= in {line:?}")));
    let (stderr, _) = literal(rest.strip_prefix(" err=b").unwrap_or_else(|| panic!("no err= in {line:?}")));
    Row {
        command: String::from_utf8(command).expect("commands are text"),
        status: status.parse().expect("a status is a number"),
        stdout,
        stderr,
    }
}

/// Reads a quoted string; what it says, and what follows it.
///
/// # Panics
/// When it does not start with a quote or does not end.
#[must_use]
pub fn literal(text: &str) -> (Vec<u8>, &str) {
    let quote = text.chars().next().filter(|first| matches!(first, '\'' | '"')).expect("a quoted string");
    let mut bytes = Vec::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == quote {
            return (bytes, &text[at + 1..]);
        }
        if character != '\\' {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let (at, escaped) = characters.next().expect("a character behind the backslash");
        match escaped {
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'x' => {
                bytes.push(u8::from_str_radix(&text[at + 1..at + 3], 16).expect("two hexadecimal digits"));
                characters.nth(1);
            }
            other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    panic!("no closing quote in {text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_with_its_quotes_and_escapes() {
        let text = "'a \"b\"'   rc=1 out=b'x\\n\\x01' err=b\"it's\"\n--- more\n(0, b'')\nlast\n--- end\n";
        let rows = rows(text);
        assert_eq!(
            rows,
            [Row { command: "a \"b\"".to_owned(), status: 1, stdout: b"x\n\x01".to_vec(), stderr: b"it's".to_vec() }]
        );
        assert_eq!(section(text, "more"), ["(0, b'')", "last"]);
        assert!(section(text, "none").is_empty());
    }
}
