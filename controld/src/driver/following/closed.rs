//! Copies of descriptors that a program has closed itself.
//!
//! A program that comes back in place has two copies of the driver one after the other, each with an address space, and
//! the daemon holds copies of both. Those of the dead one keep its memory on the GPU. When the program says that it has
//! cut the dead one off, its descriptors are looked through, and what it has really closed is let go of. Its word alone
//! changes nothing: with the copies of a living address space gone its death in the middle of a kernel would end its
//! neighbours.

use super::Following;
use crate::core::ProcessKey;
use crate::door::{ReplyTo, Request};
use crate::driver::events::Event;
use crate::driver::processes::kernel_pid;
use crate::driver::turn::Turn;
use crate::failpoint::reached;
use crate::witness::uvm::{AttachError, OpenFiles};
use std::os::fd::AsFd;
use std::sync::Arc;

impl Following {
    /// Has a process's descriptors looked through for those of its address spaces that it has closed.
    pub(in crate::driver) fn sift(&self, Request { client, reply, .. }: Request) {
        reached("renewal-asked");
        let process = client.caller.process;
        let followed = self.clients.get(&process).filter(|followed| !followed.copies.is_empty());
        let (Some(followed), Some(uvm)) = (followed, self.uvm.clone()) else {
            // Nothing is held of it.
            return reply.done(Ok(0));
        };
        let (pidfd, events) = (Arc::clone(&followed.pidfd), self.events.clone());
        tokio::spawn(async move {
            let open = uvm.files_open_in(kernel_pid(process.pid), pidfd.as_fd()).await;
            events.send(Event::Sifted { process, open, reply }).await;
        });
    }

    /// A process's descriptors have been looked through: copies of those that it has closed are let go of.
    pub(in crate::driver) fn sifted(
        &mut self,
        turn: &mut Turn<'_>,
        process: ProcessKey,
        open: Result<OpenFiles, AttachError>,
        reply: ReplyTo,
    ) {
        reached("renewal-known");
        let released = match open {
            Ok(open) => self.release_closed(turn, process, &open),
            Err(AttachError::Gone) => 0,
            Err(error) => {
                tracing::warn!(pid = process.pid, %error, "what a client has closed is held on");
                0
            }
        };
        reached("renewal-done");
        reply.done(Ok(released));
    }

    /// Lets go of the copies of address spaces that a client has closed, of which these files are what it has open; how
    /// many descriptors.
    fn release_closed(&mut self, turn: &mut Turn<'_>, process: ProcessKey, open: &OpenFiles) -> usize {
        let Some(followed) = self.clients.get_mut(&process) else { return 0 };
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
        self.count_copies(turn, process);
        let Some(followed) = self.clients.get(&process) else { return released };
        before.difference(&followed.keys).for_each(|key| turn.successor.release(*key));
        // What was found before its own address space was kept with another one's, and is looked for again.
        self.follow(turn, process, None);
        released
    }
}
