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

mod given;
mod hearing;

use super::Driver;
use super::events::Event;
use super::processes::kernel_pid;
use super::successor::copies::EarlierCopies;
use crate::core::{ConnectionId, End, ExitCause, Input, Peer, ProcessKey, ServerEpoch};
use crate::io::process::{open_process, start_time};
use crate::patience::patient;
use crate::witness::uvm::{AttachError, Attached, Copies, OpenFiles, Uvm};
use hearing::{Hearing, hear_out};
use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// What this witness is called.
pub(super) const UVM: &str = "uvm-event";
/// How long a client may take from its first connection to an address space that can be tracked.
const ATTACH_PATIENCE: Duration = Duration::from_secs(10);

/// How long a connection waits until its client has been looked at, where that comes first.
/// One look takes less than a millisecond, and more than 50 on two cores with a load of 12; with five test suites at a time
/// a client waited out 200. Nobody waits but a client that can't be looked at.
const LOOKED_AT_FIRST: Duration = Duration::from_millis(500);
/// How long the end of a client waits for what its tools queues still hold. Reading them takes microseconds.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// All clients that are followed, and what they are followed with.
pub(super) struct Following {
    /// Whether the configuration wants it.
    is_wanted: bool,
    /// `None` while the driver's module is not loaded, or its tools device can't be used.
    uvm: Option<Arc<Uvm>>,
    pub(super) clients: HashMap<ProcessKey, Followed>,
    /// What an earlier daemon left of clients that are not followed yet, and of dead ones.
    pub(super) earlier: HashMap<ProcessKey, EarlierCopies>,
}

impl Following {
    /// Finds the UVM driver if it is wanted; the second is why it can't be used.
    pub(super) fn open(is_wanted: bool) -> (Self, Option<AttachError>) {
        let (uvm, error) = match is_wanted.then(Uvm::open) {
            Some(Ok(uvm)) => (Some(uvm), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        (Self { is_wanted, uvm, clients: HashMap::new(), earlier: HashMap::new() }, error)
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
}

impl Following {
    /// How many address spaces of a client are followed, `None` if it is no client, and what they are looked at with;
    /// `None` if nobody can be followed.
    pub(super) fn spaces_of(&self, process: ProcessKey) -> Option<(Arc<Uvm>, Option<usize>)> {
        let spaces = self.clients.get(&process).map(|followed| followed.copies.len());
        Some((self.uvm.clone()?, spaces))
    }

    /// The address spaces of a client, as long as all that it has are followed.
    pub(super) fn gpus_of(&self, process: ProcessKey) -> Option<&[Copies]> {
        let followed = self.clients.get(&process).filter(|followed| !followed.copies.is_empty())?;
        Some(&followed.copies)
    }

    /// What a client's descriptors are looked through with; `None` when nothing is held of it.
    pub(super) fn looking_at(&self, process: ProcessKey) -> Option<(Arc<Uvm>, Arc<OwnedFd>)> {
        let followed = self.clients.get(&process).filter(|followed| !followed.copies.is_empty())?;
        Some((self.uvm.clone()?, Arc::clone(&followed.pidfd)))
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

/// A connection of a client that is to be looked at.
struct Waiting {
    connection: ConnectionId,
    peer: Peer,
    _looked: oneshot::Sender<()>,
}

impl Driver {
    /// Looks for the UVM driver, if it was not there: the first server of a machine loads it, and at boot this daemon may
    /// be first. Asked when a server or a client comes, so that nothing wakes up for it.
    pub(super) fn look_for_uvm(&mut self) {
        let following = &mut self.witnesses.following;
        if !following.is_wanted || following.uvm.is_some() {
            return;
        }
        match Uvm::open() {
            Ok(uvm) => {
                following.uvm = Some(uvm);
                let found = self.witnesses.is_found(UVM);
                self.told(found);
                // Those that are there already.
                for process in self.core.client_processes() {
                    let pid = kernel_pid(process.pid);
                    let opened = open_process(pid).ok();
                    // The descriptor names one process for ever, so this decides.
                    if start_time(pid).unwrap_or_default() == process.start_time {
                        self.follow(process, opened.and_then(|opened| opened.pidfd()?.try_clone_to_owned().ok()));
                    }
                }
            }
            Err(error) => self.witness_missing(UVM, None, error.to_string()),
        }
    }

    /// Follows a client from its first connection on; at each later one it is looked for a new address space.
    pub(super) fn follow(&mut self, process: ProcessKey, pidfd: Option<OwnedFd>) {
        self.look_for_uvm();
        let Some(uvm) = self.witnesses.following.uvm.clone() else {
            return;
        };
        let is_first = !self.witnesses.following.clients.contains_key(&process);
        let mut given = Vec::new();
        if is_first {
            let Some(pidfd) = pidfd else {
                return;
            };
            let pidfd = Arc::new(pidfd);
            let EarlierCopies { keys, files, .. } =
                self.witnesses.following.earlier.remove(&process).unwrap_or_default();
            given = files;
            let followed = Followed {
                pidfd,
                copies: Vec::new(),
                keys,
                hearings: Vec::new(),
                told: given.len(),
                is_looking: true,
                hurry: Arc::new(Notify::new()),
                looks: 0,
                is_deaf: false,
                waiting: Vec::new(),
            };
            self.witnesses.following.clients.insert(process, followed);
            if !given.is_empty() {
                // Known from now on, and not when they are looked at: the client may die meanwhile.
                self.feed(Input::CopiesHeld { process, descriptors: given.len() });
            }
        }
        let Some(followed) = self.witnesses.following.clients.get_mut(&process) else {
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
            self.tell_tracked(process);
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

    /// A client that is followed has come with another connection, for a context, and is looked at. Whether that comes
    /// before it gets a server there; not when it is not followed.
    pub(super) fn look_first(&mut self, process: ProcessKey, connection: ConnectionId, peer: Peer) -> bool {
        let is_first_context = self.core.is_before_contexts(process);
        let Some(followed) = self.witnesses.following.clients.get_mut(&process) else {
            return false;
        };
        if is_first_context && followed.is_covered() {
            self.follow(process, None);
            return false;
        }
        // driver --nothing; its end says that it was looked at--> task
        let (looked, looked_rx) = oneshot::channel::<()>();
        followed.waiting.push(Waiting { connection, peer, _looked: looked });
        self.follow(process, None);
        let events = self.events.clone();
        tokio::spawn(async move {
            if tokio::time::timeout(patient(LOOKED_AT_FIRST), looked_rx).await.is_err() {
                events.send(Event::LookOverdue { process, connection }).await;
            }
        });
        true
    }

    /// A look takes too long: the connection goes on without.
    pub(super) fn look_overdue(&mut self, process: ProcessKey, connection: ConnectionId) {
        let Some(followed) = self.witnesses.following.clients.get_mut(&process) else {
            return;
        };
        let is_this = |waiting: &mut Waiting| waiting.connection == connection;
        let overdue: Vec<_> = followed.waiting.extract_if(.., is_this).collect();
        self.looked_at(overdue);
    }

    /// These connections' process has been looked at.
    fn looked_at(&mut self, waiting: Vec<Waiting>) {
        for Waiting { connection, peer, .. } in waiting {
            // Unless it has left meanwhile.
            if self.connections.has(connection) {
                self.client_arrived(connection, peer);
            }
        }
    }

    pub(super) fn attached(&mut self, process: ProcessKey, is_first: bool, result: Result<Box<Attached>, AttachError>) {
        let mut waiting = Vec::new();
        if let Some(followed) = self.witnesses.following.clients.get_mut(&process) {
            followed.looks = followed.looks.saturating_sub(usize::from(!is_first));
            waiting = std::mem::take(&mut followed.waiting);
        }
        self.take_attached(process, is_first, result);
        self.looked_at(waiting);
    }

    /// Tells the core whether a client's silence about a memory fault means something.
    fn tell_tracked(&mut self, process: ProcessKey) {
        if let Some(followed) = self.witnesses.following.clients.get(&process) {
            let tracked = followed.is_heard();
            self.feed(Input::Tracked { process, tracked });
        }
    }

    /// A client's tools queue can't be read any longer.
    pub(super) fn is_unheard(&mut self, process: ProcessKey) {
        if let Some(followed) = self.witnesses.following.clients.get_mut(&process) {
            followed.is_deaf = true;
        }
        self.feed(Input::Tracked { process, tracked: false });
    }

    pub(super) fn take_attached(
        &mut self,
        process: ProcessKey,
        is_first: bool,
        result: Result<Box<Attached>, AttachError>,
    ) {
        if is_first && let Some(followed) = self.witnesses.following.clients.get_mut(&process) {
            followed.is_looking = false;
        }
        match result {
            Ok(attached) => {
                let Attached { tracker, copies } = *attached;
                let Some(followed) = self.witnesses.following.clients.get_mut(&process) else {
                    // The client is gone and buried.
                    return;
                };
                followed.hearings.push(Hearing::begin(process, tracker, self.events.clone()));
                followed.copies.push(copies);
                self.count_copies(process);
                self.tell_tracked(process);
            }
            Err(AttachError::Gone) => {}
            // No new address space at a later connection; what else was found is kept with an earlier one.
            Err(AttachError::NotYet) if !is_first => {
                self.count_copies(process);
                self.tell_tracked(process);
            }
            Err(error) => {
                self.feed(Input::Tracked { process, tracked: false });
                if matches!(error, AttachError::NoDevice { .. }) {
                    // It is looked for again with the next who comes.
                    self.witnesses.following.uvm = None;
                }
                let whose = (!error.concerns_everybody()).then_some(process);
                self.witness_missing(UVM, whose, error.to_string());
            }
        }
    }

    /// Tells the core how many descriptors are held of a client, if it does not know.
    fn count_copies(&mut self, process: ProcessKey) {
        let Some(followed) = self.witnesses.following.clients.get_mut(&process) else {
            return;
        };
        let descriptors = followed.copies.iter().map(Copies::count).sum();
        if std::mem::replace(&mut followed.told, descriptors) != descriptors {
            self.feed(Input::CopiesHeld { process, descriptors });
            self.hold_copies(process);
            self.note_its_funeral(process);
        }
    }

    /// A client has ended. Its fault may still be waiting in its queue, so that is read before the core hears of the end
    /// and forgets whose it was.
    pub(super) fn process_ended(&mut self, process: ProcessKey, end: End) {
        let hearings = self.witnesses.following.clients.get(&process).map(|followed| followed.hearings.as_slice());
        let heard = hear_out(hearings.unwrap_or_default().iter());
        if heard.is_empty() {
            self.process_gone(process, end);
        } else {
            self.tell_after(heard, Event::ProcessHeard { process, end });
        }
    }

    /// A server has ended, and its incident with it: what its clients' queues still hold is read before.
    pub(super) fn server_ended(&mut self, server: ServerEpoch, cause: ExitCause) {
        let hearings = self.witnesses.following.clients.values().flat_map(|followed| &followed.hearings);
        let heard = hear_out(hearings);
        if heard.is_empty() {
            self.server_exited(server, cause);
        } else {
            self.tell_after(heard, Event::ServerHeard { server, cause });
        }
    }

    /// Tells the driver of an end when these queues are read, which send it their faults before they say so.
    fn tell_after(&self, heard: Vec<oneshot::Receiver<()>>, event: Event) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let last_words = async {
                for empty in heard {
                    // A queue that can't be read any longer has no last words.
                    let _ = empty.await;
                }
            };
            // A driver that is too busy to take events hears of the end first, which costs a fault its certainty.
            let _ = tokio::time::timeout(patient(LAST_WORDS), last_words).await;
            events.send(event).await;
        });
    }

    /// Closes a client's queue and the copies of its descriptors, elsewhere: it takes the kernel 16 to 39 ms.
    pub(super) fn release_copies(&mut self, process: ProcessKey) {
        self.release_earlier(process);
        if let Some(mut followed) = self.witnesses.following.clients.remove(&process) {
            for key in &followed.keys {
                self.successor.release(*key);
            }
            self.looked_at(std::mem::take(&mut followed.waiting));
        }
    }

    /// Lets go of the copies of address spaces that a client has closed, of which these files are what it has open; how
    /// many descriptors.
    pub(super) fn release_closed(&mut self, process: ProcessKey, open: &OpenFiles) -> usize {
        let Some(followed) = self.witnesses.following.clients.get_mut(&process) else { return 0 };
        let mut released = 0;
        for at in (0..followed.copies.len()).rev() {
            if !followed.copies[at].is_among(open) {
                // One queue and one set of copies for each address space, in the same order.
                drop(followed.hearings.remove(at));
                let copies = followed.copies.remove(at);
                released += copies.count();
            }
        }
        if released == 0 {
            return 0;
        }
        let before = std::mem::take(&mut followed.keys);
        // So that those that stay are told anew, however many they are.
        followed.told = usize::MAX;
        // Those that stay are noted under the first keys, and only then are the others given up.
        self.count_copies(process);
        let Some(followed) = self.witnesses.following.clients.get(&process) else { return released };
        for key in before.difference(&followed.keys) {
            self.successor.release(*key);
        }
        // What was found before its own address space was kept with another one's, and is looked for again.
        self.follow(process, None);
        released
    }

    /// A client is gone, and the core wants nothing kept of it.
    pub(super) fn forget_unless_held(&mut self, process: ProcessKey) {
        if !self.core.holds_copies_of(process) {
            self.release_copies(process);
        }
    }
}
