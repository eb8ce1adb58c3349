//! The preload library's door: the socket `shim`, where programs give their GPU memory's descriptors into the daemon's
//! keeping, ask for what it knows, and are told news of their server.
//!
//! ```text
//!   program ──connects──► Door ──a thread for each connection──► Session ──Request──► driver (decides, keeps)
//!                                                                        ◄──answers──
//! ```
//! Peers send descriptors, and may send any: of a file system of theirs that never answers, of a socket that lingers
//! when it is closed. Receiving such a one and closing it, even closing a connection in which it still lies, can hang in
//! the kernel. So every connection is served by a thread of its own, which alone receives, examines and closes what the
//! peer sends; what hangs there is that one connection, of which each user has a bounded number. The driver gets what
//! has been proven to be GPU memory ([`descriptor`]) or the UVM driver's, and closes it on threads made for that.
//!
//! Between receiving a foreign file and closing it, some microseconds, it is in the table of descriptors that all threads
//! share, and no server is started ([`foreign_files`](crate::io::foreign_files)): it would get a copy, which hangs at its `exec`, and
//! whoever started it waits for that. A table of the thread's own (`unshare`) would keep it out altogether; then the
//! driver could not use what has been proven without a second journey.
//!
//! | part | does |
//! |---|---|
//! | [`accept`] | accepts, and bounds connections per user |
//! | `session` | one connection: limits, deadlines, one request at a time |
//! | [`line`] | the same for the driver, which says in between what nobody asked for |
//! | [`client`] | who the peer is: process, user and cgroup, as the kernel says |
//! | [`descriptor`] | what is kept, and what is refused |
//! | [`device`] | `/dev/nvidiaN`, held open as long as memory of that GPU is kept |
//! | `reach` | for which GPUs that is done: those that the program has open itself |
//! | [`note`] | what is written beside a region for the daemon's successor |
//!
//! # What identity means
//! The process that connected, by its pid and start time. A connection that is passed on or inherited by a fork is of
//! no use to the other process: each packet's sender is compared. A peer of a PID namespace that this daemon does not
//! see has no pid here, and is refused.

pub(crate) mod accept;
pub(crate) mod client;
pub(crate) mod descriptor;
pub(crate) mod device;
pub(crate) mod line;
pub(crate) mod note;
mod reach;
mod session;

use crate::core::{End, ProcessKey};
use crate::witness::uvm::Given;
use client::Client;
use descriptor::Descriptor;
use device::Device;
use line::Line;
use remps_proto::shim::{Answer, Ask, Failure};
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;

/// An answer, with the descriptor that goes beside it.
pub(crate) type Reply = (Answer, Option<Arc<Descriptor>>);

/// The end of an answer that was about so many regions.
pub(crate) fn done(regions: usize) -> Reply {
    (Answer::Done { regions: u32::try_from(regions).unwrap_or(u32::MAX) }, None)
}

/// Why a request is not done.
pub(crate) fn failed(failure: Failure) -> Vec<Reply> {
    vec![(Answer::Failed(failure), None)]
}

/// To whom the answers to a request go; the last of them ends it. A program that has gone meanwhile needs none.
#[derive(Debug)]
pub(crate) struct ReplyTo(oneshot::Sender<Vec<Reply>>);

impl ReplyTo {
    pub(crate) fn answer(self, answers: Vec<Reply>) {
        let _ = self.0.send(answers);
    }

    /// It is done, or why not.
    pub(crate) fn done(self, regions: Result<usize, Failure>) {
        self.answer(regions.map_or_else(failed, |regions| vec![done(regions)]));
    }
}

/// What sessions tell the driver.
#[derive(Debug)]
pub(crate) enum Told {
    /// A program asks.
    Asked(Request),
    /// A program has closed its connection because it ends: nothing of it runs any more, though it has not ended yet.
    Ends {
        /// Which.
        process: ProcessKey,
        /// How.
        end: End,
    },
}

/// A request that has been understood, on its way to the driver.
#[derive(Debug)]
pub(crate) struct Request {
    /// Who asks.
    pub client: Arc<Client>,
    /// What. Never a hello, which the session answers itself.
    pub ask: Ask,
    /// With an escrow, and only then: the descriptor, proven.
    pub descriptor: Option<Descriptor>,
    /// With an escrow: the GPU's device file, where it could be opened.
    pub device: Option<Arc<Device>>,
    /// With a follow: what the process has of the UVM driver.
    pub given: Vec<Given>,
    /// Where news goes, for as long as the session lasts.
    pub line: Weak<Line>,
    /// session <--answers-- driver
    pub reply: ReplyTo,
}
