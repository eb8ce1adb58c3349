//! A program that has its memory kept in the vault, for tests: does what its standard input says.
//!
//! | line | does | answers |
//! |---|---|---|
//! | (start) | | `attached` |
//! | `escrow KEY NAME` | makes memory that follows from the key and has it kept; `-` is no name | `done 1` |
//! | `release KEY`, `discard NAME` | | `done N` |
//! | `adopt NAME`, `hand-back` | takes memory and looks whether it is the same to the bit | `1 intact, 2 torn, done 2` |
//! | `list` | | `1 owned, 2 orphaned, done 2` |
//! | `commit NAME N` | notes that it has come to N | `done 0` |
//! | `succeed NAME MS`, `stand NAME MS` | adopts a name as soon as that can be; the latter also waits for a first owner | `after 12 at 3 at rest SERVER, 1 intact, done 1` |
//! | `fate PID` | | `TAINTED` |
//! | end of input | ends | |
//!
//! A request that fails is answered `failed REASON`. It is a program and not a thread of the test because the daemon
//! tells owners apart by their process.

use integration::lab::escrow::{Patient, Told, is_intact, memory, region};
use remps_proto::shim::{Answer, Ask, Commit, Inherited, Rest};
use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// No request takes longer in any test, a daemon's death included.
const LIMIT: Duration = Duration::from_secs(60);

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn name(word: &str) -> String {
    if word == "-" { String::new() } else { word.to_owned() }
}

fn request(line: &str) -> Option<Ask> {
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words.as_slice() {
        ["escrow", key, word] => Ask::Escrow(region(key.parse().ok()?, &name(word))),
        ["release", key] => Ask::Release { key: key.parse().ok()? },
        ["discard", word] => Ask::Discard { name: name(word) },
        ["adopt", word] => Ask::Adopt { name: name(word) },
        ["hand-back"] => Ask::HandBack,
        ["commit", word, number] => {
            let (generation, data) = (number.parse().ok()?, number.as_bytes().to_vec());
            Ask::Commit { name: name(word), commit: Commit { generation, data, ranges: Vec::new() } }
        }
        [how @ ("succeed" | "stand"), word, wait] => Ask::Succeed {
            name: name(word),
            wait_ms: wait.parse().ok()?,
            even_if_nobody: *how == "stand",
            least: Rest::PROCESS,
            offer: None,
        },
        ["fate", pid] => Ask::Fate { pid: pid.parse().ok()? },
        ["list"] => Ask::List { name: String::new() },
        ["report", error] => Ask::Report { error: error.parse().ok()?, own_work: true, server: 0 },
        ["where"] => Ask::Where,
        _ => return None,
    })
}

fn told((answer, memory): Told) -> String {
    match (answer, memory) {
        (Answer::Region(region), Some(memory)) => {
            format!("{} {}", region.key, if is_intact(memory, region.key) { "intact" } else { "torn" })
        }
        (Answer::Region(region), None) => {
            format!("{} {}", region.key, if region.owner == 0 { "orphaned" } else { "owned" })
        }
        (Answer::Done { regions }, _) => format!("done {regions}"),
        (Answer::Inherited(Inherited { commit, predecessor, rest, .. }), _) => {
            let generation = commit.map_or_else(|| "no commit".to_owned(), |commit| commit.generation.to_string());
            format!("after {predecessor} at {generation} at rest {rest}")
        }
        (Answer::Epoch { state, .. }, _) => state.to_string(),
        (Answer::Failed(failure), _) => format!("failed {failure}"),
        (other, _) => format!("{other:?}"),
    }
}

fn serve() -> std::io::Result<()> {
    let directory = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| "/tmp/nvidia-mps".into(), PathBuf::from);
    let mut patient = Patient::new(&directory, LIMIT);
    say("attached")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let ask = request(&line).ok_or_else(|| std::io::Error::other(format!("no command: {line}")))?;
        let kept = if let Ask::Escrow(region) = &ask { Some(memory(region.key)) } else { None };
        let answers = patient.ask(&ask, kept.as_ref().map(AsFd::as_fd))?;
        say(&answers.into_iter().map(told).collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever started it has gone if this can't be said.
            let _ = say(&format!("failed: {error}"));
            ExitCode::FAILURE
        }
    }
}
