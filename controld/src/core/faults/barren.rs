//! A server that gives newcomers no context.
//!
//! On an H100 with 580.159.04 a server that was in no fault, answered that it was active and had clients at work answered to every
//! newcomer's `cuDevicePrimaryCtxRetain` with 401 until it ended, with and without the preload library: the kernel module for UVM
//! refused the newcomer's channel (`UVM_REGISTER_CHANNEL`, `NV_ERR_INVALID_STATE`). It came where programs that had recovered ended
//! beside other servers' faults, once in some hundred (`OBSERVED.md`). Nothing that the server says tells of it, so a program
//! with the library does.
//!
//! Newcomers get another server then, and those who are on this one stay. The word is a program's own and may be made up: it costs a
//! server, which its speaker could have had by a fault as well. So that nobody fills the GPU with servers that others keep alive,
//! a domain leaves two at a time on such a word, and is told so otherwise.

use super::taint::Cause;
use crate::core::Core;
use crate::core::evidence::ProcessKey;
use crate::core::ids::ServerEpoch;
use crate::core::servers::server::Server;

/// `CUDA_ERROR_ILLEGAL_STATE`.
pub(super) const NO_CONTEXT: u32 = 401;
/// Servers of a domain that newcomers no longer get, and that live on without a fault.
const MOST_LEFT: usize = 2;

impl Core {
    /// A process says that it got no context, of the server that it names, or of the only one that it can mean.
    pub(super) fn gives_no_context(&mut self, process: ProcessKey, said: Option<ServerEpoch>) {
        let is_sound =
            |server: &ServerEpoch| self.servers.get(*server).is_some_and(|server| server.tainted().is_none());
        let servers: Vec<ServerEpoch> = self.clients.servers_of(process).into_iter().filter(is_sound).collect();
        let meant = match said {
            Some(said) => Some(said).filter(|said| servers.contains(said)),
            None => Some(servers.as_slice()).filter(|servers| servers.len() == 1).map(|servers| servers[0]),
        };
        let Some(server) = meant.and_then(|meant| self.servers.get(meant)) else { return };
        let (epoch, domain, pid) = (server.epoch, server.domain, server.pid.unwrap_or_default());
        let is_left = |other: &&Server| {
            other.domain == domain && other.tainted().is_some_and(|taint| taint.incident == 0) && other.is_connected()
        };
        if self.servers.iter().filter(is_left).count() < MOST_LEFT {
            self.taint(epoch, Cause::NoContexts);
        } else {
            self.turn.log(format!(
                "Process {} got no context on server {pid} (CUDA error 401); its domain has left {MOST_LEFT} servers already",
                process.pid
            ));
        }
    }
}
