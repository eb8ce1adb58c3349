//! Requests to servers whose answers somebody waits for.

use super::Servers;
use crate::core::effect::Turn;
use crate::core::evidence::ProcessKey;
use crate::core::ids::{Pid, RequestId, ServerEpoch, SessionId};
use crate::core::{Core, Effect};
use core::time::Duration;
use remps_proto::mps::server::Request;

/// What a server was asked on account of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) enum Asked {
    /// `get_server_status`.
    Status(SessionId),
    /// `get_client_list`.
    Clients(SessionId),
    /// `get_active_thread_percentage`, and the echo of `set_active_thread_percentage`.
    Percentage(SessionId),
    /// `get_device_pinned_mem_limit`.
    PinnedLimit(SessionId),
    /// `terminate_client`: whether the process is a client at all.
    TerminateLookup(SessionId, Pid),
    /// `terminate_client` itself.
    Terminate(SessionId),
    /// `terminate_client`, for the end of the only one without a pid, which is this one.
    TerminateHidden(SessionId, Pid),
    /// One server's part of a command that asks several.
    Part(usize),
}

/// What an answer is for.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) enum Purpose {
    /// Whether the server ends now.
    Shutdown,
    /// Which client processes a server has that was taken over from an earlier daemon.
    Census,
    /// Whether a server is in a fault, after a sign that anybody could have forged.
    FaultCheck,
    /// The same at that time for a newcomer that may go there then.
    Health(Duration),
    /// Whether a server has got over a fault that has left some of its clients alone, asked then.
    Recovered(Duration),
    /// Which devices a server has.
    Devices,
    /// On which devices its clients have contexts.
    Contexts,
    /// The same of one that has got over a fault: who has any still, the fault has left alone.
    Remaining,
    /// The work of a client that the daemon ends, before its process.
    EndClient(ProcessKey),
    /// Which clients a server still has of those that leave it.
    Guests,
    /// The work of a process on a server that it has no place on any more.
    EndGuest(ProcessKey),
    /// A command.
    Command(Asked),
}

/// A request under way.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) struct Question {
    pub(in crate::core) server: ServerEpoch,
    pub(in crate::core) pid: Pid,
    pub(in crate::core) purpose: Purpose,
}

impl Servers {
    /// Sends a request and remembers what its answer is for.
    pub(in crate::core) fn ask(&mut self, turn: &mut Turn, server: ServerEpoch, request: Request, purpose: Purpose) {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.will_owe(turn.now, server);
        let pid = self.all.get(&server).and_then(|server| server.pid).unwrap_or_default();
        self.questions.insert(id, Question { server, pid, purpose });
        turn.push(Effect::Ask { server, id, request });
    }

    /// The number of the next request.
    pub(in crate::core) fn next_question(&self) -> RequestId {
        RequestId(self.next_request)
    }

    /// What the answer to a request is for, which nobody waits for any longer.
    pub(in crate::core) fn answered(&mut self, id: RequestId) -> Option<Question> {
        self.questions.remove(&id)
    }
}

impl Core {
    /// Has a server describe its devices, where the machine has more than one.
    pub(in crate::core) fn ask_for_devices(&mut self, server: ServerEpoch) {
        if self.gpus.known().are_several() {
            self.servers.ask(&mut self.turn, server, Request::QueryDevices, Purpose::Devices);
        }
    }
}
