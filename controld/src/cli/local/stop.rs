//! `stop-client`: whom to end, and how patiently.

use super::LocalCommand;
use super::words::{output, pid, seconds, unknown};
use remps_proto::admin::{Form, Output};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// How long a process may take to end after SIGTERM, unless the call says otherwise.
const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Whom to stop, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StopRequest {
    pub whom: Whom,
    /// How long a process may take to end after SIGTERM before it gets SIGKILL.
    pub timeout: Duration,
    /// How long a process that handles SIGTERM may take to end by itself before its work is terminated.
    pub grace: Duration,
    /// Whether to send signals at all, and not only end the work on the GPU.
    pub signals: bool,
    /// How it is told what was done.
    pub form: Form,
}

/// Which processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    /// These, clients or not.
    Pids(Vec<u32>),
    /// The clients in a cgroup and below it.
    Cgroup(PathBuf),
    /// The clients in the pid namespace of this process; `None` is the caller's own.
    NamespaceOf(Option<u32>),
}

pub(super) fn parse(words: &[OsString]) -> Result<LocalCommand, String> {
    let (Output { form, .. }, words) = output(words)?;
    let mut request = StopRequest {
        whom: Whom::Pids(Vec::new()),
        timeout: DEFAULT_STOP_TIMEOUT,
        grace: Duration::ZERO,
        signals: true,
        form,
    };
    let mut pids = Vec::new();
    let mut groups = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{} needs a value", word.to_string_lossy()));
        match word.as_bytes() {
            b"--timeout" => request.timeout = seconds(value()?)?,
            b"--grace" => request.grace = seconds(value()?)?,
            b"--no-signal" => request.signals = false,
            b"--cgroup" => match value()? {
                path if path.is_empty() => return Err("--cgroup needs a path".to_owned()),
                path => groups.push(Whom::Cgroup(PathBuf::from(path))),
            },
            b"--all-of" => match value()? {
                who if *who == OsStr::new("self") => groups.push(Whom::NamespaceOf(None)),
                who => groups.push(Whom::NamespaceOf(Some(pid(who)?))),
            },
            [b'-', ..] => return Err(unknown(word)),
            _ => pids.push(pid(word)?),
        }
    }
    if !request.signals && !request.grace.is_zero() {
        return Err("--grace is the time after a signal, which --no-signal forbids".to_owned());
    }
    request.whom = match (pids.is_empty(), groups.len()) {
        (false, 0) => Whom::Pids(pids),
        (true, 1) => groups.remove(0),
        (true, 0) => return Err("names no process".to_owned()),
        _ => return Err("PIDs, --cgroup and --all-of exclude each other".to_owned()),
    };
    Ok(LocalCommand::StopClient(request))
}
