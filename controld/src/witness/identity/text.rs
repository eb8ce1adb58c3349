//! The command line, the label, the GPUs that it sees and the share of threads that it asks for, out of a process's memory.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use super::{Memory, Missing};
use crate::core::Threads;
use crate::sys::proc::{ProcDir, printable};
use remps_proto::who::{self, LABEL_VARIABLE, MAX_ENVIRONMENT, MAX_LABEL};

/// The variable that says which GPUs a program sees.
const VISIBLE_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// Longest value of it that is read: a UUID and a comma for each of 64 GPUs.
const MAX_VISIBLE: usize = 64 * 41;
/// The variable that bounds a program's share of threads within its server's.
const THREADS_VARIABLE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
/// Longest value of it that is read.
const MAX_THREADS: usize = 32;
/// Bytes of a command line that are kept.
pub(super) const MAX_COMMAND: usize = 256;
/// Bytes read in one turn.
const CHUNK: usize = 64 * 1024;

/// Reads both. May wait for as long as the process likes.
pub(super) fn read(dir: &ProcDir) -> Memory {
    let words = dir.file("cmdline").and_then(|file| words(&file)).map_err(|error| reason(&error));
    let found = dir.file("environ").map_err(|error| reason(&error)).and_then(search);
    let missing = words.as_ref().err().or(found.as_ref().err()).copied();
    let (words, Variables { label, visible, threads }) = (words.unwrap_or_default(), found.unwrap_or_default());
    Memory { command: command(&words), program: program(&words), label, visible, threads, missing }
}

fn reason(error: &io::Error) -> Missing {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Missing::Forbidden,
        // ESRCH and ENOENT as a rule.
        _ => Missing::Ended,
    }
}

/// The words of a command line, with a NUL after each, and no more of them than is kept.
fn words(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than is kept tells nothing; but a character may begin with the last of them.
    file.take(MAX_COMMAND as u64 + 4).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The words with blanks between them, at most [`MAX_COMMAND`] bytes.
fn command(words: &[u8]) -> String {
    cut(String::from_utf8_lossy(words).trim_end_matches('\0')).trim_end().to_owned()
}

/// The first of the words, at most [`MAX_COMMAND`] bytes of it.
fn program(words: &[u8]) -> String {
    cut(&String::from_utf8_lossy(words.split(|byte| *byte == 0).next().unwrap_or_default()))
}

fn cut(text: &str) -> String {
    let text = printable(text);
    text[..text.floor_char_boundary(MAX_COMMAND)].to_owned()
}

/// What an environment says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Variables {
    pub(super) label: Option<String>,
    /// Which GPUs it sees, as it is written there.
    pub(super) visible: Option<String>,
    /// The share of threads that it asks for.
    pub(super) threads: Option<Threads>,
}

/// Looks for them in an environment.
///
/// # Errors
/// [`Missing::Large`] when it is not in the first [`MAX_ENVIRONMENT`] bytes of a larger one, [`Missing::BadLabel`] when it
/// is no label, and whatever the reader says.
pub(super) fn search(mut environment: impl Read) -> Result<Variables, Missing> {
    let mut chunk = vec![0; CHUNK];
    // The part of the current variable that has been read: no more than what a label's can have.
    let longest = (LABEL_VARIABLE.len() + MAX_LABEL).max(VISIBLE_VARIABLE.len() + MAX_VISIBLE) + 1;
    let mut found = Variables::default();
    let mut variable: Vec<u8> = Vec::with_capacity(longest + 1);
    let mut searched = 0;
    while searched < MAX_ENVIRONMENT {
        let count = match environment.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other.map_err(|error| reason(&error))?,
        };
        if count == 0 {
            found.take(&variable)?;
            return Ok(found);
        }
        searched += count;
        let mut pieces = chunk[..count].split(|byte| *byte == 0).peekable();
        while let Some(piece) = pieces.next() {
            let room = (longest + 1).saturating_sub(variable.len());
            variable.extend(&piece[..piece.len().min(room)]);
            if pieces.peek().is_some() {
                found.take(&variable)?;
                if found.label.is_some() && found.visible.is_some() && found.threads.is_some() {
                    return Ok(found);
                }
                variable.clear();
            }
        }
    }
    // What comes behind so much is not looked for.
    if found.label.is_some() { Ok(found) } else { Err(Missing::Large) }
}

impl Variables {
    /// Takes a variable's value, if it is one of these; the first of several counts.
    fn take(&mut self, variable: &[u8]) -> Result<(), Missing> {
        if self.label.is_none() {
            self.label = who::label(variable).map_err(|who::BadLabel| Missing::BadLabel)?.map(str::to_owned);
        }
        if self.visible.is_none() {
            self.visible = visible(variable);
        }
        if self.threads.is_none() {
            self.threads = threads(variable);
        }
        Ok(())
    }
}

/// The list of GPUs, if a variable is its. One that is too long, or no text, is as good as none.
fn visible(variable: &[u8]) -> Option<String> {
    let value = variable.strip_prefix(VISIBLE_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
    let value = std::str::from_utf8(value).ok().filter(|value| value.len() <= MAX_VISIBLE)?;
    (!value.chars().any(char::is_control)).then(|| value.to_owned())
}

/// The share of threads, if a variable is its and it is one.
fn threads(variable: &[u8]) -> Option<Threads> {
    let value = variable.strip_prefix(THREADS_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
    let value = std::str::from_utf8(value).ok().filter(|value| value.len() <= MAX_THREADS)?;
    value.trim().parse().ok().and_then(Threads::new)
}
