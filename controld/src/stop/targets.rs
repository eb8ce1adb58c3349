//! Who is meant by a call.

use super::clients::{Client, Clients};
use super::end::Process;
use super::view::{View, as_seen, namespace, view};
use crate::cli::Whom;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel shows the cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Cgroups deeper than this below the one asked for are no container's.
const DEEPEST: usize = 16;

/// A process to stop.
#[derive(Debug)]
pub(super) struct Target {
    /// Its pid here; `None` when only the daemon's is known.
    pub(super) pid: Option<u32>,
    /// What signals are sent to; `None` when it can't be named from here, or is gone.
    pub(super) process: Option<Process>,
    /// What the daemon has of it, if it is a client.
    pub(super) client: Option<Client>,
}

/// Why nobody can be stopped.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error("the daemon has other pids than this namespace, so {0} may be anybody; use --all-of self")]
    OtherPids(u32),
    #[error("process {pid}: {source}")]
    Process { pid: u32, source: io::Error },
    #[error("{}: {source}", path.display())]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("the pid namespace of {0} can't be read")]
    Namespace(String),
}

impl Target {
    /// How an operator knows it.
    pub(super) fn name(&self) -> String {
        match (self.pid, &self.client) {
            (Some(pid), _) => pid.to_string(),
            (None, Some(client)) => format!("{} (the daemon's pid)", client.pid),
            (None, None) => "?".to_owned(),
        }
    }
}

/// Who is named by the call, before the daemon is asked.
#[derive(Debug)]
pub(super) enum Named {
    /// Processes, and pids that no process has; those of a cgroup are stopped if they are clients only.
    Processes { found: Vec<(u32, Process)>, missing: Vec<u32>, clients_only: bool },
    /// The clients in the pid namespace with this inode.
    Namespace(u64),
}

/// Opens the processes that are meant. Members of a cgroup that have ended already are left out.
///
/// # Errors
/// [`TargetError`] when they can't be named or looked at.
pub(super) fn name(proc: &Path, whom: &Whom) -> Result<Named, TargetError> {
    match whom {
        Whom::Pids(pids) => {
            let found = open_all(pids)?;
            let is_missing = |pid: &u32| found.iter().all(|(known, _)| known != pid);
            let missing = pids.iter().copied().filter(is_missing).collect();
            Ok(Named::Processes { found, missing, clients_only: false })
        }
        Whom::Cgroup(path) => {
            let path = if path.starts_with(CGROUPS) {
                path.clone()
            } else {
                Path::new(CGROUPS).join(path.strip_prefix("/").unwrap_or(path))
            };
            let members = || members(&path).map_err(|source| TargetError::Cgroup { path: path.clone(), source });
            let mut found = open_all(&members()?)?;
            // One that has ended before it was opened has left its pid to anybody; here still are only members.
            let still = members()?;
            found.retain(|(pid, _)| still.contains(pid));
            Ok(Named::Processes { found, missing: Vec::new(), clients_only: true })
        }
        Whom::NamespaceOf(process) => {
            let process = process.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
            Ok(Named::Namespace(namespace(proc, &process).ok_or(TargetError::Namespace(process))?))
        }
    }
}

fn open_all<'a>(pids: impl IntoIterator<Item = &'a u32>) -> Result<Vec<(u32, Process)>, TargetError> {
    let mut found = Vec::new();
    for pid in pids {
        match Process::open(*pid) {
            Ok(process) => found.push((*pid, process)),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(source) => return Err(TargetError::Process { pid: *pid, source }),
        }
    }
    Ok(found)
}

/// Everyone who is to be stopped.
///
/// # Errors
/// When a pid may be that of anybody for the daemon.
pub(super) fn find(proc: &Path, named: Named, clients: &Clients) -> Result<Vec<Target>, TargetError> {
    let view = view(proc, clients.speaker);
    let (found, missing, clients_only) = match named {
        Named::Namespace(inode) => return Ok(within(proc, inode, view, clients)),
        Named::Processes { found, missing, clients_only } => (found, missing, clients_only),
    };
    let gone = |pid| Target { pid: Some(pid), process: None, client: None };
    let mut targets: Vec<Target> = missing.into_iter().map(gone).collect();
    for (pid, process) in found {
        let client = match as_seen(proc, view, pid) {
            Some(seen) => clients.find(seen).cloned(),
            None if clients.all.is_empty() => None,
            None => return Err(TargetError::OtherPids(pid)),
        };
        if client.is_some() || !clients_only {
            targets.push(Target { pid: Some(pid), process: Some(process), client });
        }
    }
    Ok(targets)
}

/// The clients of a pid namespace. Signals can be sent to them where the daemon's pids are ours.
fn within(proc: &Path, inode: u64, view: View, clients: &Clients) -> Vec<Target> {
    let there = clients.all.iter().filter(|client| client.namespace == Some(inode));
    there
        .map(|client| {
            let pid = (view == View::Same).then_some(client.pid);
            let process = pid.and_then(|pid| Process::open(pid).ok());
            // It may have ended since the daemon listed it, and its pid be somebody's elsewhere.
            let process = process.filter(|_| namespace(proc, &client.pid.to_string()) == Some(inode));
            Target { pid, process, client: Some(client.clone()) }
        })
        .collect()
}

/// The processes of a cgroup and of those below it.
fn members(cgroup: &Path) -> io::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    let mut open = vec![(cgroup.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        match fs::read_to_string(folder.join("cgroup.procs")) {
            // 0 stands for a process outside this pid namespace.
            Ok(text) => found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid != 0)),
            // One below may have ended meanwhile, or hold threads; the one asked for must be there.
            Err(error) if depth == 0 => return Err(error),
            Err(_) => {}
        }
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        let folders = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(folders.filter(|_| depth < DEEPEST).map(|entry| (entry.path(), depth + 1)));
    }
    Ok(found)
}
