//! UVM descriptors that a client's own library hands over, where the daemon has not the right to take them: without
//! `CAP_SYS_PTRACE`, and another user's or one that may do more.
//!
//! ```text
//!  cuInit ends in the client ──Follow, Follow──► session (proves them) ──► driver ──► tracker and copies ──► answer
//! ```
//! The library waits for the answer before it lets the program go on, so the client is watched before its first kernel
//! can run, as it is where the daemon looks itself. They are followed as that client's which has sent them; a process
//! that sends another's takes that one's faults upon itself, and what is held as somebody's already is never taken twice.

use super::Following;
use crate::core::ProcessKey;
use crate::door::{ReplyTo, Request};
use crate::driver::events::Event;
use crate::driver::processes::kernel_pid;
use crate::driver::turn::Turn;
use crate::witness::uvm::{AttachError, Attached};
use remps_proto::shim::Failure;

/// Address spaces of one client that are followed by what it has handed over. It has one for each copy of the driver's
/// library in it.
const MOST_SPACES: usize = 8;

impl Following {
    /// Answers a client that has handed its descriptors over, when they are looked at.
    pub(in crate::driver) fn descriptors_given(&self, request: Request) {
        let Request { client, given, reply, .. } = request;
        let process = client.caller.process;
        let spaces = self.clients.get(&process).map(|followed| followed.copies.len());
        let uvm = match (self.uvm.clone(), spaces) {
            (None, _) => Err(Failure::SWITCHED_OFF),
            (_, None) => Err(Failure::NOT_FOUND),
            (_, Some(spaces)) if spaces >= MOST_SPACES => Err(Failure::QUOTA),
            (Some(uvm), Some(_)) => Ok(uvm),
        };
        let uvm = match uvm {
            Ok(uvm) => uvm,
            Err(failure) => return reply.done(Err(failure)),
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            let result = uvm.attach_handed_over(kernel_pid(process.pid), given).await.map(Box::new);
            events.send(Event::Given { process, result, reply }).await;
        });
    }

    /// What a client has handed over has been looked at: it is followed from now on, if there was an address space that
    /// nobody followed.
    pub(in crate::driver) fn attached_given(
        &mut self,
        turn: &mut Turn<'_>,
        process: ProcessKey,
        result: Result<Box<Attached>, AttachError>,
        reply: ReplyTo,
    ) {
        let is_new = result.is_ok();
        if is_new {
            turn.say(format!("Client {} is watched by uvm-event: it has handed its descriptors over", process.pid));
        }
        self.take_attached(turn, process, false, result);
        reply.done(Ok(usize::from(is_new)));
    }
}
