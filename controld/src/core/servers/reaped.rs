//! The servers that were, by their pids.

use super::server::Server;
use crate::core::ids::{Pid, ServerEpoch, Uid};
use std::collections::VecDeque;

/// How many are remembered; the oldest makes room.
const MOST_REAPED: usize = 1024;

/// A server whose process is reaped.
#[derive(Debug, Clone, Copy)]
pub(in crate::core) struct ReapedServer {
    pub(in crate::core) pid: Pid,
    pub(in crate::core) uid: Uid,
    epoch: ServerEpoch,
}

/// Those that are remembered, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct Reaped(VecDeque<ReapedServer>);

impl Reaped {
    pub(super) fn note(&mut self, server: &Server) {
        let Some(pid) = server.pid else { return };
        if self.0.len() >= MOST_REAPED {
            self.0.pop_front();
        }
        self.0.push_back(ReapedServer { pid, uid: server.uid, epoch: server.epoch });
    }
}

impl super::Servers {
    /// Those whose processes are reaped, oldest first.
    pub(in crate::core) fn reaped(&self) -> impl Iterator<Item = ReapedServer> {
        self.reaped.0.iter().copied()
    }

    /// The pid that a server had.
    pub(in crate::core) fn pid_of_reaped(&self, epoch: ServerEpoch) -> Option<Pid> {
        self.reaped().find(|reaped| reaped.epoch == epoch).map(|reaped| reaped.pid)
    }
}
