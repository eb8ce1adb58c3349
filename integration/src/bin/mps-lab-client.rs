//! A client program for tests: attaches to the daemon's server for its user and then does what its standard input says.
//!
//! | line | does | answers |
//! |---|---|---|
//! | (start) | the process's connection and one context | `attached` |
//! | `ping` | uses every connection | `pong` |
//! | `context` | makes one more context | `context` |
//! | `leave`, end of input | ends | |
//!
//! Whatever goes wrong is one line `failed: …` and exit status 1. It is a program and not a thread of the test because
//! the daemon tells clients apart by their process.

use integration::lab::peer::Peer;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// No step of a client takes longer in any test.
const LIMIT: Duration = Duration::from_secs(60);

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn serve() -> std::io::Result<()> {
    let directory = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| "/tmp/nvidia-mps".into(), PathBuf::from);
    let mut peer = Peer::attach(&directory, LIMIT)?;
    say("attached")?;
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "ping" => peer.ping().and_then(|()| say("pong"))?,
            "context" => peer.add_context().and_then(|()| say("context"))?,
            "leave" => return Ok(()),
            other => return Err(std::io::Error::other(format!("no command: {other}"))),
        }
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
