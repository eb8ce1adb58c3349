//! UVM descriptors that a client hands over itself, because nobody here may look into it.

use super::{Candidate, UVM_MINOR, prove, read_major};
use crate::io::foreign_files::ForeignFile;
use crate::sys::uvm as sys;
use crate::witness::uvm::closing;
use crate::witness::uvm::copies::{MOST_COPIES, Registry};
use crate::witness::uvm::error::AttachError;
use nix::unistd::Pid;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A UVM descriptor that somebody has handed over. Dropped, it is closed on another thread: the last close of an address
/// space takes the kernel 16 to 39 ms.
#[derive(Debug)]
pub struct Given(Option<OwnedFd>);

impl Given {
    /// Takes one that is of the UVM driver, by its device number. Blocks.
    ///
    /// # Errors
    /// Anything else is given back, to be closed where closing may hang.
    pub fn prove(descriptor: OwnedFd) -> Result<Self, OwnedFd> {
        let major = read_major().ok().flatten();
        match sys::device_of(descriptor.as_fd()) {
            Ok(Some(device)) if Some(device) == major.map(|major| (major, UVM_MINOR)) => Ok(Self(Some(descriptor))),
            _ => Err(descriptor),
        }
    }

    fn into_inner(mut self) -> Option<OwnedFd> {
        self.0.take()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0.take() {
            drop(closing::close(vec![descriptor]));
        }
    }
}

/// The descriptors themselves.
pub(in crate::witness::uvm) fn taken(given: Vec<Given>) -> Vec<OwnedFd> {
    given.into_iter().filter_map(Given::into_inner).collect()
}

/// Proves descriptors that somebody has handed over as those of a process. Blocks as [`take`] does.
pub(in crate::witness::uvm) fn prove_given(
    registry: &Registry,
    major: u32,
    owner: Pid,
    given: Vec<OwnedFd>,
) -> Result<Vec<Candidate>, AttachError> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut given = given.into_iter();
    // Each could be one whose closing hangs.
    while closing::can_close_foreign() {
        let Some(descriptor) = given.next() else { return Ok(found) };
        let number = descriptor.as_raw_fd();
        if let Some(candidate) = prove(registry, major, owner, descriptor, number, ForeignFile::enter())
            && found.len() < MOST_COPIES
            && !found.iter().any(|other| other.held.is_same_file(&candidate.held))
        {
            found.push(candidate);
        }
    }
    given.for_each(|descriptor| closing::close_foreign(descriptor, None));
    Err(AttachError::Exhausted)
}
