//! What has come of the daemon's requests: failures, and that everything before a barrier is done.
//!
//! A barrier is passed when what came before it is done or its failure told. So failures that there is no room for wait,
//! and what is said of a barrier with them is not said at all: the daemon asks again.

use remps_proto::holder::{Failure, FromHolder};

use super::Holder;
use super::attached::{Daemon, Sent};

/// Most failures that wait. A daemon that reads nothing while it asks for more is told of the last ones.
const MOST_FAILURES: usize = 4096;

impl Daemon {
    /// Tells of the failures that wait, as far as there is room; whether that was all.
    pub(super) fn tell_failures(&mut self) -> bool {
        while let Some((key, reason)) = self.failures.front().copied() {
            if self.send(FromHolder::Failed { key, reason }, &[]) == Sent::Later {
                return false;
            }
            self.failures.pop_front();
        }
        true
    }
}

impl Holder {
    /// A request could not be done.
    pub(super) fn failed(&mut self, key: u64, reason: Failure) {
        if let Some(daemon) = &mut self.daemon {
            if daemon.failures.len() == MOST_FAILURES {
                daemon.failures.pop_front();
            }
            daemon.failures.push_back((key, reason));
            daemon.tell_failures();
        }
    }

    /// Everything before a barrier is done.
    pub(super) fn passed(&mut self, number: u64) {
        if let Some(daemon) = &mut self.daemon
            && daemon.tell_failures()
        {
            daemon.send(FromHolder::Passed { number }, &[]);
        }
    }
}
