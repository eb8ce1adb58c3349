//! What is held of clients, and by whom it may be closed.
//!
//! Everything held is in one registry, of all clients, so that no open file is taken for a second client's. An address
//! space and what goes with it are kept together, as [`Copies`]; their closing never happens on the thread that drops
//! them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nix::unistd::Pid;
use parking_lot::Mutex;

use super::ask;
use super::closing::{self, Closing};
use super::error::AttachError;
use super::processors::Processors;
use crate::sys::uvm as sys;

/// Descriptors of one client that are held at most. A process has two for each copy of libcuda in it.
pub(crate) const MOST_COPIES: usize = 16;

/// What of all that is held a process has open.
#[derive(Debug)]
pub struct OpenFiles(pub(super) Vec<Arc<Held>>);

/// One descriptor that is held. The last owner's drop closes it, on another thread.
#[derive(Debug)]
pub(super) struct Held {
    descriptor: Option<OwnedFd>,
    /// Its number in the client.
    number: RawFd,
    owner: Pid,
    /// Whether it is a kept address space; others may become one, as what the client has only opened looks like what
    /// goes with another address space.
    is_space: AtomicBool,
}

impl Held {
    /// A copy that nobody has yet.
    pub(super) fn new(descriptor: OwnedFd, number: RawFd, owner: Pid) -> Arc<Self> {
        Arc::new(Self { descriptor: Some(descriptor), number, owner, is_space: AtomicBool::new(false) })
    }

    /// Whether it is this process's, and not kept as an address space yet.
    pub(super) fn may_become_space_of(&self, process: Pid) -> bool {
        self.owner == process && !self.is_space.load(Ordering::Relaxed)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_ref().expect("it is taken out only when it is dropped").as_fd()
    }

    /// Whether the client has the same open file under both numbers.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        sys::is_same_file(self.fd(), other.fd()).unwrap_or(false)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            drop(closing::close(vec![descriptor]));
        }
    }
}

/// Everything held, of all clients.
#[derive(Debug, Default)]
pub(super) struct Registry {
    held: Mutex<Vec<Weak<Held>>>,
    kept: Mutex<Vec<Weak<Kept>>>,
}

impl Registry {
    /// This open file, if it is held already.
    pub(super) fn find(&self, descriptor: BorrowedFd<'_>, number: RawFd, owner: Pid) -> Option<Arc<Held>> {
        let held: Vec<Arc<Held>> = self.held.lock().iter().filter_map(Weak::upgrade).collect();
        // Where the kernel does not tell, the same number in the same process is taken for the same file.
        held.into_iter().find(|held| {
            sys::is_same_file(held.fd(), descriptor).unwrap_or(held.number == number && held.owner == owner)
        })
    }

    fn add(&self, held: &Arc<Held>) {
        let mut all = self.held.lock();
        all.retain(|weak| weak.strong_count() > 0 && weak.as_ptr() != Arc::as_ptr(held));
        all.push(Arc::downgrade(held));
    }

    /// Takes an address space for one client, unless another look, at the same time, was faster.
    fn claim(&self, space: &Arc<Held>) -> bool {
        let mut all = self.held.lock();
        all.retain(|weak| weak.strong_count() > 0 && weak.as_ptr() != Arc::as_ptr(space));
        let others: Vec<Arc<Held>> = all.iter().filter_map(Weak::upgrade).collect();
        let is_taken = others.iter().any(|held| held.is_space.load(Ordering::Relaxed) && held.is_same_file(space));
        let is_first = !is_taken && !space.is_space.swap(true, Ordering::Relaxed);
        all.push(Arc::downgrade(space));
        is_first
    }

    fn add_kept(&self, kept: &Arc<Kept>) {
        let mut all = self.kept.lock();
        all.retain(|weak| weak.strong_count() > 0);
        all.push(Arc::downgrade(kept));
    }

    /// Keeps descriptors that go with no address space of their own, with the first that is kept of their process.
    pub(super) fn keep_with_others(&self, process: Pid, companions: Vec<Arc<Held>>) {
        if companions.is_empty() {
            return;
        }
        let kept = self.kept.lock().iter().filter_map(Weak::upgrade).find(|kept| kept.process == process);
        if let Some(kept) = kept {
            kept.extend(self, companions);
        }
    }

    /// How many descriptors are held.
    pub(super) fn count(&self) -> usize {
        self.held.lock().iter().filter(|weak| weak.strong_count() > 0).count()
    }
}

/// What [`Copies`] keep. A later look adds to it.
#[derive(Debug)]
pub(super) struct Kept {
    process: Pid,
    /// The address space.
    space: Arc<Held>,
    /// The rest, of which one holds the CPU address space for the driver.
    companions: Mutex<Vec<Arc<Held>>>,
}

/// The UVM descriptors of one client, kept for as long as this lives: with them its page tables and GPU memory.
///
/// May be kept after the client's death. The drop closes them without waiting; [`Copies::close`] says when the kernel
/// is done. What the client opens later without an address space of its own is added when it is looked at again.
#[derive(Debug)]
pub struct Copies(Arc<Kept>);

impl Copies {
    /// Keeps an address space, and what came with it; `None` when it is kept already.
    pub(super) fn new(registry: &Registry, process: Pid, space: Arc<Held>, companions: Vec<Arc<Held>>) -> Option<Self> {
        if !registry.claim(&space) {
            return None;
        }
        let copies = Self(Arc::new(Kept { process, space, companions: Mutex::default() }));
        copies.extend(registry, companions);
        registry.add_kept(&copies.0);
        Some(copies)
    }

    /// Adds descriptors that the client has opened since.
    pub(super) fn extend(&self, registry: &Registry, companions: Vec<Arc<Held>>) {
        self.0.extend(registry, companions);
    }

    /// Whose they are.
    #[must_use]
    pub fn process(&self) -> Pid {
        self.0.process
    }

    /// How many descriptors, as of now.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + self.0.companions.lock().len()
    }

    /// Whether the descriptor that holds the CPU address space seems to be among them. Without it, where there is one,
    /// a client's death stops its channels at once, whatever else is held.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.0.companions.lock().is_empty()
    }

    /// The numbers that they have in the client, that of the address space first.
    #[must_use]
    pub fn numbers(&self) -> Vec<RawFd> {
        std::iter::once(&self.0.space).chain(self.0.companions.lock().iter()).map(|held| held.number).collect()
    }

    /// Duplicates of all of them, that of the address space first: for a keeper in another process. What is kept lasts
    /// until those are closed too.
    ///
    /// # Errors
    /// When there are no more descriptors to be had.
    pub fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        let companions = self.0.companions.lock();
        std::iter::once(&self.0.space).chain(companions.iter()).map(|held| held.fd().try_clone_to_owned()).collect()
    }

    /// Whether the address space is one of these files.
    #[must_use]
    pub fn is_among(&self, open: &OpenFiles) -> bool {
        open.0.iter().any(|held| Arc::ptr_eq(held, &self.0.space))
    }

    /// Asks the driver which GPUs the address space has. What is asked does not keep it longer than the question lasts.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn ask_for_gpus(&self) -> impl Future<Output = Result<Vec<String>, AttachError>> + use<> {
        let (pid, space) = (self.process(), Arc::downgrade(&self.0.space));
        let question = move || {
            let space = space.upgrade().ok_or(AttachError::Gone)?;
            let what = "ask for the GPUs of an address space";
            let found = Processors::ask_any(space.fd()).map_err(|source| AttachError::System { what, source })?;
            Ok(found.names())
        };
        ask(pid, question)
    }

    pub(super) fn space(&self) -> &Arc<Held> {
        &self.0.space
    }

    /// Closes them on another thread: what was kept goes, unless somebody else holds it too, as a tracker does.
    #[must_use]
    pub fn close(self) -> Closing {
        // The companion first: it is what stops the channels, in the order that the driver wants.
        let mut all = std::mem::take(&mut *self.0.companions.lock());
        all.push(Arc::clone(&self.0.space));
        drop(self);
        closing::close(all.into_iter().filter_map(|held| Arc::into_inner(held)?.descriptor.take()).collect())
    }
}

impl Kept {
    fn extend(&self, registry: &Registry, companions: Vec<Arc<Held>>) {
        let mut kept = self.companions.lock();
        for held in companions {
            // Two looks at the same time find the same.
            let is_new = !kept.iter().any(|other| other.is_same_file(&held));
            if is_new && kept.len() + 1 < MOST_COPIES {
                registry.add(&held);
                kept.push(held);
            }
        }
    }
}

/// The number of a descriptor, as ioctls take it.
pub(super) fn number_of(held: &Held) -> RawFd {
    held.fd().as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn what_is_held_as_one_clients_is_not_taken_as_anothers() {
        let registry = Registry::default();
        let file = File::open("/dev/null").unwrap();
        let (own, other) = (Pid::this(), Pid::from_raw(1));
        let hold = |file: &File, owner| Held::new(file.as_fd().try_clone_to_owned().unwrap(), file.as_raw_fd(), owner);
        let companion = File::open("/dev/null").unwrap();
        let copies = Copies::new(&registry, own, hold(&file, own), vec![hold(&companion, own)]).unwrap();
        assert!(Copies::new(&registry, own, hold(&file, own), Vec::new()).is_none(), "it is kept already");
        copies.extend(&registry, vec![hold(&companion, own)]);
        let is_free = |file: &File, owner| {
            let found = registry.find(file.as_fd(), 99, owner);
            found.is_none_or(|held| held.may_become_space_of(owner))
        };
        assert!(!is_free(&file, own) && !is_free(&file, other));
        // What is no address space yet may become one of its own process.
        assert!(is_free(&companion, own) && !is_free(&companion, other));
        assert!(is_free(&File::open("/dev/null").unwrap(), other));
        assert_eq!((registry.count(), copies.is_complete()), (2, true));
        drop(copies);
        assert!(is_free(&file, other));
        assert_eq!(registry.count(), 0);
    }
}
