//! What somebody at the command line may do: looked up once, when its session begins.
//!
//! Root and the daemon's user own the daemon. But user 0 of a container without a user namespace of its own is user 0
//! here as well, and opens the privileged socket too where the pipe directory is mounted. So the owner's rights are for
//! who could end the daemon with a signal anyway, and of them not for who is in another container: the connection came by
//! `control_privileged`, both who connected and who said the role are root or the daemon's user, and who connected is in
//! the daemon's own user and PID namespace and in no container that the daemon is not in
//! ([`Place::is_the_daemons`](crate::core::Place::is_the_daemons)). Whose namespaces can't be read has none.

use crate::core::{EntranceId, Namespace, Peer, Rights, is_hidden};
use crate::driver::Driver;
use crate::io::seqpacket::SeqPacket;
use crate::witness::peer;

/// Why a user who has the owner's number is not the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Lack {
    #[error("it did not come by control_privileged")]
    Socket,
    #[error("the process that connected can't be looked at")]
    Unseen,
    #[error("it is in another user namespace than this daemon")]
    UserNamespace,
    #[error("it is in another process namespace than this daemon")]
    ProcessNamespace,
    #[error("it is in a container that this daemon is not in")]
    Container,
}

impl Driver {
    /// What the peer of a connection may do that has said it is a command line.
    pub(in crate::driver) fn rights_of(&self, socket: &SeqPacket, is_privileged: bool, peer: Peer) -> Rights {
        let connected = peer::look(&socket).inspect_err(|error| {
            tracing::debug!(pid = peer.pid, %error, "who opened a session can't be looked at");
        });
        let (found, place) = match connected {
            Ok(connected) => (Some(connected.peer), connected.found.place),
            // Nobody's owner, but perhaps somebody in a container who may end what is there.
            Err(_) => {
                let pidfd = socket.peer_pidfd().ok().filter(|_| is_hidden(peer.pid));
                let place = pidfd.and_then(|pidfd| self.witnesses.identities.place_of_hidden(&pidfd));
                (None, place.unwrap_or_default())
            }
        };
        let lack = match found {
            _ if !is_privileged => Some(Lack::Socket),
            None => Some(Lack::Unseen),
            Some(found) if !self.is_owner(found.uid) => Some(Lack::Socket),
            Some(_) if place.user != Namespace::Own => Some(Lack::UserNamespace),
            Some(_) if place.pid != Namespace::Own => Some(Lack::ProcessNamespace),
            Some(_) if place.is_apart => Some(Lack::Container),
            Some(_) => None,
        };
        if let Some(lack) = lack.filter(|_| self.is_owner(peer.uid)) {
            let Peer { pid, uid, .. } = peer;
            self.logs.chatter(&format!("User {uid} (process {pid}) is not the owner here: {lack}"));
        }
        let within = socket.entrance().map(EntranceId).filter(|entrance| self.core.is_joined(*entrance));
        Rights { privileged: lack.is_none(), place, within }
    }
}
