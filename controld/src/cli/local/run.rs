//! `run`: which program, what outlives it, and when it is started again.

use super::LocalCommand;
use super::words::unknown;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What to run, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RunRequest {
    /// Under which name a successor finds what the program has; without one nothing outlives it.
    pub name: Option<String>,
    /// Whether it is started again when a fault has ended it.
    pub restart: bool,
    /// Whether it waits for the end of another one of its name.
    pub standby: bool,
    /// How often it is started again.
    pub limit: u32,
    /// The preload library, if it is not to be looked for.
    pub library: Option<PathBuf>,
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
}

/// How often a program is started again, unless the call says otherwise.
const DEFAULT_RESTARTS: u32 = 10;

pub(super) fn parse(words: &[OsString]) -> Result<LocalCommand, String> {
    let command = Vec::new();
    let limit = DEFAULT_RESTARTS;
    let mut request = RunRequest { name: None, restart: true, standby: false, limit, library: None, command };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{} needs a value", word.to_string_lossy()));
        match word.as_bytes() {
            b"--name" => {
                let name = value()?.to_str().filter(|name| is_name(name)).map(str::to_owned);
                let most = remps_proto::shim::MAX_NAME_BYTES;
                request.name =
                    Some(name.ok_or_else(|| format!("--name is 1 to {most} printable characters without blanks"))?);
            }
            b"--restart" => match value()?.as_bytes() {
                b"on-fault" => request.restart = true,
                b"never" => request.restart = false,
                _ => return Err("--restart is on-fault or never".to_owned()),
            },
            b"--limit" => {
                let limit = value()?.to_str().and_then(|text| text.parse().ok());
                request.limit = limit.ok_or_else(|| "--limit needs a number".to_owned())?;
            }
            b"--standby" => request.standby = true,
            b"--library" => request.library = Some(PathBuf::from(value()?)),
            b"--" => {
                request.command = words.cloned().collect();
                break;
            }
            _ => return Err(unknown(word)),
        }
    }
    if request.command.is_empty() {
        return Err("names no command, after --".to_owned());
    }
    if request.standby && request.name.is_none() {
        return Err("--standby needs the --name that it stands by for".to_owned());
    }
    Ok(LocalCommand::Run(request))
}

fn is_name(text: &str) -> bool {
    (1..=remps_proto::shim::MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
