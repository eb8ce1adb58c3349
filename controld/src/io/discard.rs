//! What peers have sent and nobody wants, where the kernel could not refuse it ([`passed`](crate::sys::passed)).
//!
//! A file may take as long to close as its sender wishes, whoever lets go of its last copy. So a few threads do it that do
//! nothing else, and end when there is nothing left. What hangs makes others of its kind wait, and nobody else.
//!
//! What lies in a connection is not taken out of it: it never is in the table of this process, of which a process that is
//! started gets a copy ([`foreign_files`](super::foreign_files)).

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use nix::sys::socket::{MsgFlags, Shutdown, shutdown};
use parking_lot::Mutex;

use super::foreign_files::ForeignFile;
use super::packets::{CREDENTIALS_WORDS, receive_with};

/// Closings that may hang at a time.
const THREADS: usize = 16;

/// What is let go of.
enum Unwanted {
    /// A connection, with all that lies in it.
    Rest(OwnedFd),
    /// A file that has come in.
    File(OwnedFd, ForeignFile),
}

struct All {
    waiting: VecDeque<Unwanted>,
    threads: usize,
}

static ALL: Mutex<All> = Mutex::new(All { waiting: VecDeque::new(), threads: 0 });

/// Closes files that have come in, each for itself.
pub(super) fn close(descriptors: Vec<OwnedFd>) {
    for descriptor in descriptors {
        let_go(Unwanted::File(descriptor, ForeignFile::enter()));
    }
}

/// Throws away what lies in a connection, of which this is a copy, and closes that; nothing more comes in.
pub(crate) fn rest(connection: OwnedFd) {
    let_go(Unwanted::Rest(connection));
}

fn let_go(what: Unwanted) {
    let mut all = ALL.lock();
    all.waiting.push_back(what);
    // Without a thread they wait for the next one.
    let may_start = all.threads < THREADS;
    if may_start && std::thread::Builder::new().name("unwanted".to_owned()).spawn(work).is_ok() {
        all.threads += 1;
    }
}

fn work() {
    while let Some(unwanted) = next() {
        match unwanted {
            Unwanted::Rest(connection) => {
                // One that is not connected any more has nothing to come.
                let _ = shutdown(connection.as_raw_fd(), Shutdown::Read);
                // Without room for descriptors the kernel lets go of them here, packet by packet.
                let mut room = [0; CREDENTIALS_WORDS];
                let more = |room: &mut [u64]| receive_with(connection.as_fd(), &mut [], room, MsgFlags::empty());
                while more(&mut room).is_ok_and(|got| got.sender.is_some() || got.descriptors_lost) {}
            }
            Unwanted::File(descriptor, foreign) => foreign.close(descriptor),
        }
    }
}

fn next() -> Option<Unwanted> {
    let mut all = ALL.lock();
    let next = all.waiting.pop_front();
    if next.is_none() {
        all.threads -= 1;
    }
    next
}
