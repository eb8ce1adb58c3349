//! Who a process is: start time, cgroup, container, pod, command line and `MPS_DOMAIN`, from `/proc`.
//!
//! # A process can make a reader wait
//! `cmdline` and `environ` are read out of the process's memory, under its memory lock. A thread of the process that
//! hangs in a driver's `mmap` keeps that lock, as every `ps` on a machine with a stuck GPU shows, and kernels before 4.17
//! waited for a file system of the process's own as well (CVE-2018-1120). So these two are read by threads of their own,
//! at most [`MAX_READERS`] at a time, and waited for until [`DEADLINE`]. A thread that is stuck stays, with its place; a
//! user of whom [`MAX_STUCK_OF_USER`] are stuck is not read any more until they come back, so that one user can't take all
//! places. Everything else comes from the kernel's own memory and is read at once.
//!
//! # A pid can be given to another
//! The process's directory is opened once and everything is read through it: it belongs to one process, and when that has
//! ended nothing can be read there, whoever has the pid by then. The start time is read first and compared last.
//!
//! What can't be read is empty, with one reason. Nothing here is proof against the process itself: a command line and an
//! environment are what the process made of them.
//!
//! The driver calls [`Identities::more_of`] in a task of its own when a server has taken a process's first connection, and
//! feeds what it found to the core. Until then the core has what the kernel tells without the process's help
//! ([`at_once`]): a fault can come before the rest, and so can the process's end.
//!
//! A cluster's names of a container are read by threads of other calls than these: they are of no process's memory, and a
//! user whose processes can't be read has pods that can be told of a fault.

mod elsewhere;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::core::{Identity, Pid, PodNames, Threads, Uid};
use crate::io::blocking::FOLDERS;
use crate::patience::patient;
use crate::sys::other_proc::OtherProc;
use crate::sys::proc::ProcDir;
use crate::witness::{place, pod_names};
pub(crate) use elsewhere::hidden_id;
use remps_proto::who::Cgroups;

/// Threads that read processes' memory at one time.
pub(crate) const MAX_READERS: usize = 16;
/// Stuck threads of one user, from which on that user's processes are not read.
pub(crate) const MAX_STUCK_OF_USER: usize = 2;
/// How long a process's memory is waited for.
pub(crate) const DEADLINE: Duration = Duration::from_millis(500);
/// How long a free thread is waited for.
const QUEUE_DEADLINE: Duration = Duration::from_millis(500);
/// Whose threads read the names: the daemon's own.
const OWN: Uid = 0;
/// Bytes of a reader's stack; it calls little.
const READER_STACK: usize = 256 * 1024;

/// What was found of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Found {
    /// The identity; what is not known is empty.
    pub identity: Identity,
    /// Its cgroups, for the counter of kills.
    pub cgroups: Cgroups,
    /// Why something is missing.
    pub missing: Option<Missing>,
    /// The pid of one that has none here, in the `/proc` where it was found.
    pub seen_as: Option<Pid>,
}

/// Why something of an identity is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Missing {
    /// The pid is 0: the process lives in a PID namespace that is not below this one.
    #[error("the process can't be seen from this PID namespace")]
    NotVisible,
    /// It ended before or while it was read.
    #[error("the process has ended")]
    Ended,
    /// The pid is another process's: the start time is not the one that the caller knew.
    #[error("the process id belongs to another process")]
    Another,
    /// Its memory is another user's, or another user namespace's.
    #[error("the process may not be read; CAP_SYS_PTRACE is missing")]
    Forbidden,
    /// It did not let itself be read.
    #[error("the process did not let itself be read in time")]
    Stuck,
    /// Other processes of its user did not.
    #[error("too many processes of this user did not let themselves be read")]
    UserIsStuck,
    /// All threads were busy.
    #[error("too many processes are being read")]
    Busy,
    /// Its environment is larger than what is read, and the part that was read has no label.
    #[error("the environment is too large")]
    Large,
    /// Its label is too long or has control characters.
    #[error("the label is not usable")]
    BadLabel,
}

/// What a process's memory said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Memory {
    command: String,
    program: String,
    label: Option<String>,
    visible: Option<String>,
    threads: Option<Threads>,
    missing: Option<Missing>,
}

/// What the kernel tells of a process without its help, so that it can't hold anybody up.
pub(crate) fn at_once(pid: Pid) -> Identity {
    let Some(dir) = ProcDir::open(pid) else { return Identity::default() };
    let Some(start_time) = dir.start_time() else { return Identity::default() };
    let (cgroup, names) = Cgroups::parse(&dir.cgroup().unwrap_or_default()).telling();
    Identity {
        start_time,
        cgroup,
        container: names.container,
        pod: names.pod,
        awaits_more: true,
        ..Identity::default()
    }
}

/// Finds out who processes are.
#[derive(Debug, Clone)]
pub(crate) struct Identities {
    places: Arc<Semaphore>,
    stuck: Arc<Mutex<BTreeMap<Uid, usize>>>,
    deadline: Duration,
    /// Where a cluster's names of containers are found.
    containers: Option<Arc<Path>>,
    /// Where those are found that have no pid here.
    other: Option<Arc<OtherProc>>,
}

impl Default for Identities {
    fn default() -> Self {
        let (places, stuck) = (Arc::new(Semaphore::new(MAX_READERS)), Arc::default());
        Self { places, stuck, deadline: patient(DEADLINE), containers: None, other: None }
    }
}

impl Identities {
    /// One that finds a cluster's names of containers in this folder; empty is nowhere.
    pub(crate) fn naming(containers: &str) -> Self {
        Self { containers: (!containers.is_empty()).then(|| Path::new(containers).into()), ..Self::default() }
    }

    /// The same, with those that have no pid here found there.
    pub(crate) fn seeing(self, other: Option<OtherProc>) -> Self {
        Self { other: other.map(Arc::new), ..self }
    }

    /// Whether those that have no pid here can be found.
    pub(crate) const fn sees_others(&self) -> bool {
        self.other.is_some()
    }

    /// With another deadline than [`DEADLINE`].
    #[cfg(test)]
    fn with_deadline(deadline: Duration) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// Threads that are reading now, stuck ones included.
    #[cfg(test)]
    fn busy(&self) -> usize {
        MAX_READERS - self.places.available_permits()
    }

    /// Finds out who a process is. Takes [`DEADLINE`] and a little more at the most. `expected` is the start time that
    /// the caller knows it by, if it does.
    pub(crate) async fn of(&self, pid: Pid, uid: Uid, expected: Option<u64>) -> Found {
        if pid == 0 {
            return Found { missing: Some(Missing::NotVisible), ..Found::default() };
        }
        let Some((dir, start_time)) = ProcDir::open(pid).and_then(|dir| Some((dir.clone(), dir.start_time()?))) else {
            return Found { missing: Some(Missing::Ended), ..Found::default() };
        };
        if expected.is_some_and(|expected| expected != start_time) {
            return Found { missing: Some(Missing::Another), ..Found::default() };
        }
        self.read(dir, start_time, uid).await
    }

    /// Finds out more of a process of whom this was known at once. Of one that has ended meanwhile that is all that there
    /// is, and what its cluster calls it.
    pub(crate) async fn more_of(&self, pid: Pid, uid: Uid, known: &Identity) -> Found {
        let mut found = self.of(pid, uid, Some(known.start_time)).await;
        if found.identity.cgroup.is_empty() {
            let Identity { cgroup, container, pod, .. } = known.clone();
            let names = self.names(container.clone()).await;
            found.identity = Identity { cgroup, container, pod, names, ..found.identity };
        }
        found
    }

    /// What a cluster calls the container with this ID.
    async fn names(&self, container: Option<String>) -> Option<Box<PodNames>> {
        let (folder, container) = self.containers.clone().zip(container)?;
        let find = move || pod_names::find(&folder, &container);
        FOLDERS.run(OWN, patient(QUEUE_DEADLINE), find).await.ok()?.map(Box::new)
    }

    /// Reads what a process's directory says.
    async fn read(&self, dir: ProcDir, start_time: u64, uid: Uid) -> Found {
        let cgroups = Cgroups::parse(&dir.cgroup().unwrap_or_default());
        let (_, place, _) = place::of(&dir);
        let name = dir.name();
        let readers_dir = dir.clone();
        let (cgroup, names) = cgroups.telling();
        let memory = self.memory(uid, move || text::read(&readers_dir));
        let (memory, called) = tokio::join!(memory, self.names(names.container.clone()));
        let missing = match dir.start_time() {
            Some(again) if again == start_time => memory.missing,
            _ => Some(Missing::Ended),
        };
        let command = if memory.command.is_empty() { name.unwrap_or_default() } else { memory.command };
        let (container, pod, label, program) = (names.container, names.pod, memory.label, memory.program);
        let (visible, threads) = (memory.visible, memory.threads);
        let identity = Identity {
            start_time,
            cgroup,
            container,
            pod,
            names: called,
            label,
            visible,
            threads,
            command,
            program,
            place,
            elsewhere: None,
            awaits_more: false,
        };
        Found { identity, cgroups, missing, seen_as: None }
    }

    /// What the kernel itself calls a process, in brackets; `None` when the process is gone. Waits for nobody.
    pub(crate) fn name(pid: Pid) -> Option<String> {
        ProcDir::open(pid)?.name()
    }

    /// Reads what lies in the process's own memory, on a thread.
    async fn memory(&self, uid: Uid, read: impl FnOnce() -> Memory + Send + 'static) -> Memory {
        let none = |missing| Memory { missing: Some(missing), ..Memory::default() };
        let place = match self.place(uid).await {
            Ok(place) => Arc::new(place),
            Err(missing) => return none(missing),
        };
        // reader --what the memory said--> here
        let (memory_tx, memory_rx) = oneshot::channel();
        let readers_place = place.clone();
        let thread =
            std::thread::Builder::new().name("identity".to_owned()).stack_size(READER_STACK).spawn(move || {
                let memory = read();
                drop(readers_place);
                // Whoever asked may have given up.
                let _ = memory_tx.send(memory);
            });
        if thread.is_err() {
            return none(Missing::Busy);
        }
        match tokio::time::timeout(self.deadline, memory_rx).await {
            Ok(Ok(memory)) => memory,
            Ok(Err(_)) => none(Missing::Ended),
            Err(_) => {
                place.mark_stuck();
                none(Missing::Stuck)
            }
        }
    }

    async fn place(&self, uid: Uid) -> Result<Place, Missing> {
        if self.stuck.lock().get(&uid).is_some_and(|stuck| *stuck >= MAX_STUCK_OF_USER) {
            return Err(Missing::UserIsStuck);
        }
        let permit = tokio::time::timeout(patient(QUEUE_DEADLINE), self.places.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else { return Err(Missing::Busy) };
        Ok(Place { _permit: permit, stuck: self.stuck.clone(), uid, is_stuck: Mutex::new(false) })
    }
}

/// A reader's place. It is given back when the thread and whoever waits for it are both done with it.
#[derive(Debug)]
struct Place {
    _permit: OwnedSemaphorePermit,
    stuck: Arc<Mutex<BTreeMap<Uid, usize>>>,
    uid: Uid,
    is_stuck: Mutex<bool>,
}

impl Place {
    fn mark_stuck(&self) {
        *self.is_stuck.lock() = true;
        *self.stuck.lock().entry(self.uid).or_default() += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !*self.is_stuck.lock() {
            return;
        }
        let mut stuck = self.stuck.lock();
        if let Some(count) = stuck.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                stuck.remove(&self.uid);
            }
        }
    }
}
