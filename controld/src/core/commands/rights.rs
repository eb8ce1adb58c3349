//! Who may do what by the command line.

use crate::core::clients::client::Process;
use crate::core::ids::{Pid, Uid};
use crate::core::servers::server::Server;
use crate::core::{Core, Peer, Rights, Sharing};
use remps_proto::admin::command::{Command, SmPartition};
use remps_proto::admin::reply;

/// Who types commands.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) struct Asker {
    pub(in crate::core) peer: Peer,
    pub(in crate::core) rights: Rights,
}

impl Asker {
    fn reaches(&self, process: &Process) -> bool {
        self.rights.place.reaches(&process.identity.place)
    }

    /// Whether a client is his to end: of his user, or, for root of a container, of that container.
    fn may_end(&self, client: &Process) -> bool {
        let is_containers_root = self.peer.uid == 0 && !self.rights.place.is_the_daemons();
        self.reaches(client) && (client.uid == self.peer.uid || is_containers_root)
    }
}

impl Core {
    fn is_owner(&self, Asker { peer, rights }: &Asker) -> bool {
        rights.privileged && (peer.uid == 0 || peer.uid == self.turn.policy.owner)
    }

    /// Whether `asker` may change a server: the daemon's owner, or the user whose server it is, if he reaches everybody
    /// whom it serves.
    fn may_change(&self, asker: &Asker, server: i32) -> bool {
        let is_his = |server: &Server| {
            server.uid == asker.peer.uid
                && self.turn.policy.sharing != Sharing::MultiUser
                && self.clients.on(server.epoch).all(|(_, it)| asker.reaches(it))
                // Whom nobody tells apart he may not reach.
                && (!server.has_unknown_clients || asker.rights.place.is_the_daemons())
        };
        self.is_owner(asker) || self.server_by_pid(server).is_some_and(is_his)
    }

    /// Whether `asker` may start a server for this user.
    fn may_start(&self, asker: &Asker, uid: Uid) -> bool {
        self.is_owner(asker) || uid == asker.peer.uid
    }

    pub(super) fn refusal(&self, peer: Peer, command: &Command) -> Vec<String> {
        reply::refusal(command, peer.uid, self.turn.policy.personality)
    }

    /// Whether the command may be used by `asker`.
    pub(super) fn is_permitted(&self, asker: &Asker, command: &Command) -> bool {
        match command {
            Command::Quit { .. }
            | Command::SetDefaultActiveThreadPercentage { .. }
            | Command::SetDefaultDevicePinnedMemLimit { .. }
            | Command::SetDefaultClientPriority { .. }
            | Command::Change(_)
            | Command::SmPartition(SmPartition::Add { .. } | SmPartition::Remove { .. }) => self.is_owner(asker),
            Command::StartServer { uid: Some(uid), .. } => self.may_start(asker, *uid),
            Command::SetActiveThreadPercentage { server, .. }
            | Command::SetDevicePinnedMemLimit { server, .. }
            | Command::ShutdownServer { server, .. } => {
                self.server_by_pid(*server).is_none() || self.may_change(asker, *server)
            }
            // A user may terminate its own client where its server is not its own: in multi-user mode, and in a container.
            Command::TerminateClient { server, client } => {
                let client = Pid::try_from(*client).ok().and_then(|pid| self.clients.process(pid));
                self.server_by_pid(*server).is_none()
                    || self.may_change(asker, *server)
                    || client.is_some_and(|client| asker.may_end(client))
            }
            // Becomes a `terminate_client` with the client's server, which is asked about then.
            Command::EndClient { .. }
            | Command::ListDevices { .. }
            | Command::GetServerList
            | Command::GetServerStatus { .. }
            | Command::StartServer { uid: None, .. }
            | Command::GetClientList { .. }
            | Command::GetDeviceClientList { .. }
            | Command::GetDefaultActiveThreadPercentage
            | Command::GetActiveThreadPercentage { .. }
            | Command::GetDefaultDevicePinnedMemLimit { .. }
            | Command::GetDevicePinnedMemLimit { .. }
            | Command::GetDefaultClientPriority
            | Command::Ps { .. }
            | Command::DeviceQuery { .. }
            | Command::SmPartition(SmPartition::Invalid)
            | Command::Lspart
            | Command::Report(_)
            | Command::Unknown(_) => true,
        }
    }

    /// Whose clients `asker` may see; `None` is everybody's.
    pub(super) fn only_own(&self, asker: &Asker) -> Option<Uid> {
        (!self.is_owner(asker)).then_some(asker.peer.uid)
    }
}
