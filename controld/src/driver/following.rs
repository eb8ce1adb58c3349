//! Follows each client with a tools queue and copies of its UVM descriptors.
//!
//! A client's first connection starts a task that attaches as soon as the client has an address space, some 5 ms after
//! its start. Each later connection is for a context, which may come with a new address space, so the client is looked at
//! once more:
//!
//! | connection | address spaces | the look |
//! |---|---|---|
//! | for the first context | followed, with all that goes with them | beside its way to the server: the context is made in what `cuInit` has opened, and making it takes the driver a hundred times as long |
//! | for the first context | none is yet | comes first, at once, since there would be nothing to save or to name the client by |
//! | for another context | some | comes first: who has destroyed its last context makes the next in a new address space |
//!
//! A context that has a server can run kernels, so what comes first is waited for, for a time. While a look is under way
//! the client's silence about a memory fault means nothing, since an address space may not be heard: nobody else is
//! blamed because of it. When a client ends, what its queues still hold is told before its end is, and its copies are
//! closed when the core has no use for them.

mod closed;
mod ends;
mod first_look;
mod handed_over;
mod hearing;
mod inherited;

use super::events::{Event, Events};
use super::processes::kernel_pid;
use super::turn::{Told, Turn};
use crate::core::{Input, ProcessKey};
use crate::io::process::open_same;
use crate::patience::patient;
use crate::witness::uvm::{AttachError, Attached, Copies, Uvm};
use first_look::{Waiting, looked_at};
use hearing::Hearing;
use inherited::Inherited;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// What this witness is called.
pub(super) const UVM: &str = "uvm-event";
/// How long a client may take from its first connection to an address space that can be tracked.
const ATTACH_PATIENCE: Duration = Duration::from_secs(10);

/// All clients that are followed, and what they are followed with.
pub(super) struct Following {
    /// Whether the configuration wants it.
    is_wanted: bool,
    /// `None` while the driver's module is not loaded, or its tools device can't be used.
    uvm: Option<Arc<Uvm>>,
    pub(super) clients: HashMap<ProcessKey, Followed>,
    /// What an earlier daemon left of clients that are not followed yet, and of dead ones.
    pub(super) inherited: Inherited,
    pub(super) events: Events,
}

impl Following {
    /// Finds the UVM driver if it is wanted; the second is why it can't be used.
    pub(super) fn open(is_wanted: bool, events: Events) -> (Self, Option<AttachError>) {
        let (uvm, error) = match is_wanted.then(Uvm::open) {
            Some(Ok(uvm)) => (Some(uvm), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        (Self { is_wanted, uvm, clients: HashMap::new(), inherited: Inherited::default(), events }, error)
    }

    /// Whether clients can be followed at all.
    pub(super) const fn is_possible(&self) -> bool {
        self.uvm.is_some()
    }

    /// How many clients are followed with copies of their descriptors, and how many can't be.
    pub(super) fn counts(&self) -> (usize, usize) {
        let has_copies = |followed: &&Followed| !followed.copies.is_empty();
        let attached = self.clients.values().filter(has_copies).count();
        let refused = self.clients.values().filter(|followed| !followed.is_looking && followed.copies.is_empty());
        (attached, refused.count())
    }

    /// The address spaces of a client, as long as all that it has are followed.
    pub(super) fn gpus_of(&self, process: ProcessKey) -> Option<&[Copies]> {
        let followed = self.clients.get(&process).filter(|followed| !followed.copies.is_empty())?;
        Some(&followed.copies)
    }
}

/// A client that is followed.
pub(super) struct Followed {
    pub(super) pidfd: Arc<OwnedFd>,
    /// One for each address space.
    pub(super) copies: Vec<Copies>,
    /// Under which keys the holder has them too.
    pub(super) keys: BTreeSet<u64>,
    hearings: Vec<Hearing>,
    /// How many copies the core knows of.
    told: usize,
    /// Whether its first address space is still waited for.
    is_looking: bool,
    /// Has it looked for at once and not after a pause.
    hurry: Arc<Notify>,
    /// Later looks that are under way.
    looks: usize,
    /// Whether a queue of it can't be read any longer.
    is_deaf: bool,
    /// Its connections that wait until it has been looked at.
    waiting: Vec<Waiting>,
}

impl Followed {
    /// A client of which an earlier daemon has left so many copies, noted under these keys.
    fn begin(pidfd: OwnedFd, keys: BTreeSet<u64>, told: usize) -> Self {
        Self {
            pidfd: Arc::new(pidfd),
            copies: Vec::new(),
            keys,
            hearings: Vec::new(),
            told,
            is_looking: true,
            hurry: Arc::new(Notify::new()),
            looks: 0,
            is_deaf: false,
            waiting: Vec::new(),
        }
    }

    /// Whether all that its first context can be made in is kept and heard.
    fn is_covered(&self) -> bool {
        let is_whole = !self.copies.is_empty() && self.copies.iter().all(Copies::is_complete);
        is_whole && !self.is_looking && self.looks == 0 && !self.is_deaf
    }

    /// Whether a memory fault of it would be heard.
    fn is_heard(&self) -> bool {
        !self.hearings.is_empty() && self.looks == 0 && !self.is_deaf
    }
}

impl Following {
    /// Looks for the UVM driver, if it was not there: the first server of a machine loads it, and at boot this daemon may
    /// be first. Asked when a server or a client comes, so that nothing wakes up for it.
    pub(super) fn look_for_uvm(&mut self, turn: &mut Turn<'_>) {
        if !self.is_wanted || self.uvm.is_some() {
            return;
        }
        match Uvm::open() {
            Ok(uvm) => {
                self.uvm = Some(uvm);
                turn.tell(Told::Heard(UVM));
                // Those that are there already.
                for process in turn.core.client_processes() {
                    if let Ok(opened) = open_same(kernel_pid(process.pid), process.start_time) {
                        self.follow(turn, process, opened.pidfd().and_then(|fd| fd.try_clone_to_owned().ok()));
                    }
                }
            }
            Err(error) => turn.tell(Told::Missing(UVM, None, error.to_string())),
        }
    }

    /// Follows a client from its first connection on; at each later one it is looked for a new address space.
    pub(super) fn follow(&mut self, turn: &mut Turn<'_>, process: ProcessKey, pidfd: Option<OwnedFd>) {
        self.look_for_uvm(turn);
        let Some(uvm) = self.uvm.clone() else {
            return;
        };
        let is_first = !self.clients.contains_key(&process);
        let mut given = Vec::new();
        if is_first {
            let Some(pidfd) = pidfd else {
                return;
            };
            let (keys, files) = self.inherited.take(process);
            given = files;
            self.clients.insert(process, Followed::begin(pidfd, keys, given.len()));
            if !given.is_empty() {
                // Known from now on, and not when they are looked at: the client may die meanwhile.
                turn.feed(Input::CopiesHeld { process, descriptors: given.len() });
            }
        }
        let Some(followed) = self.clients.get_mut(&process) else {
            return;
        };
        if followed.is_looking && !is_first {
            followed.hurry.notify_one();
            return;
        }
        let patience = if is_first { patient(ATTACH_PATIENCE) } else { Duration::ZERO };
        let (pidfd, events) = (Arc::clone(&followed.pidfd), self.events.clone());
        let hurry = Arc::clone(&followed.hurry);
        if !is_first {
            followed.looks += 1;
            self.tell_tracked(turn, process);
        }
        tokio::spawn(async move {
            let pid = kernel_pid(process.pid);
            let deadline = Instant::now() + patience;
            // What an earlier daemon left is there at once, and all that there is of a client that may not be traced.
            let given = if given.is_empty() { None } else { uvm.attach_given(pid, given).await.ok() };
            let result = match given {
                Some(attached) => Ok(attached),
                None => uvm.attach_when_ready(pid, pidfd.as_fd(), deadline, &hurry).await,
            };
            events.send(Event::Attached { process, is_first, result: result.map(Box::new) }).await;
        });
    }

    /// What has come of a look at a client, the first one or a later one.
    pub(super) fn attached(
        &mut self,
        turn: &mut Turn<'_>,
        process: ProcessKey,
        is_first: bool,
        result: Result<Box<Attached>, AttachError>,
    ) {
        let mut waiting = Vec::new();
        if let Some(followed) = self.clients.get_mut(&process) {
            followed.is_looking &= !is_first;
            followed.looks = followed.looks.saturating_sub(usize::from(!is_first));
            waiting = std::mem::take(&mut followed.waiting);
        }
        self.take_attached(turn, process, is_first, result);
        looked_at(turn, waiting);
    }

    fn take_attached(
        &mut self,
        turn: &mut Turn<'_>,
        process: ProcessKey,
        is_first: bool,
        result: Result<Box<Attached>, AttachError>,
    ) {
        match result {
            Ok(attached) => {
                let Attached { tracker, copies } = *attached;
                let Some(followed) = self.clients.get_mut(&process) else {
                    // The client is gone and buried.
                    return;
                };
                let is_of_own_server = !turn.core.may_be_guest(process);
                followed.hearings.push(Hearing::begin(process, is_of_own_server, tracker, self.events.clone()));
                followed.copies.push(copies);
                self.count_copies(turn, process);
                self.tell_tracked(turn, process);
            }
            Err(AttachError::Gone) => {}
            // No new address space at a later connection; what else was found is kept with an earlier one.
            Err(AttachError::NotYet) if !is_first => {
                self.count_copies(turn, process);
                self.tell_tracked(turn, process);
            }
            Err(error) => {
                turn.feed(Input::Tracked { process, tracked: false });
                if matches!(error, AttachError::NoDevice { .. }) {
                    // It is looked for again with the next who comes.
                    self.uvm = None;
                }
                let whose = (!error.concerns_everybody()).then_some(process);
                turn.tell(Told::Missing(UVM, whose, error.to_string()));
            }
        }
    }

    /// Tells the core whether a client's silence about a memory fault means something.
    fn tell_tracked(&self, turn: &mut Turn<'_>, process: ProcessKey) {
        if let Some(followed) = self.clients.get(&process) {
            turn.feed(Input::Tracked { process, tracked: followed.is_heard() });
        }
    }

    /// A client's tools queue can't be read any longer.
    pub(super) fn is_unheard(&mut self, turn: &mut Turn<'_>, process: ProcessKey) {
        if let Some(followed) = self.clients.get_mut(&process) {
            followed.is_deaf = true;
        }
        turn.feed(Input::Tracked { process, tracked: false });
    }

    /// Tells the core how many descriptors are held of a client, if it does not know, and the holder which.
    fn count_copies(&mut self, turn: &mut Turn<'_>, process: ProcessKey) {
        let Some(followed) = self.clients.get_mut(&process) else {
            return;
        };
        let descriptors = followed.copies.iter().map(Copies::count).sum();
        if std::mem::replace(&mut followed.told, descriptors) != descriptors {
            turn.feed(Input::CopiesHeld { process, descriptors });
            self.hold_copies(turn, process);
        }
    }
}
