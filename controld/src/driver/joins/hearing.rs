//! The conversations with thin daemons: who may join, and what they say.
//!
//! Whoever may join has the daemon make a socket and a server for him, so it is root or the daemon's user, as the kernel
//! says, and somebody who is where the daemon is ([`Place::is_the_daemons`](crate::core::Place::is_the_daemons)): user 0 of
//! any container that the pipe directory is mounted in is user 0 as well. Who is in another container may join only if
//! the configuration says so; one in another user namespace never.

use super::{Asked, FILE_PATIENCE, JOINED_PLACES, said};
use crate::core::{JoinId, Namespace, Uid};
use crate::driver::events::{Event, Events};
use crate::driver::handshake;
use crate::io::join_link::{JoinLink, Parcel};
use crate::io::joined_place::JoinedPlace;
use crate::io::packets;
use crate::io::seqpacket::SeqPacket;
use crate::patience::patient;
use crate::sys::passed;
use crate::sys::polled::register;
use crate::witness::peer;
use nix::sys::socket::{SockType, getsockopt, sockopt};
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::DeviceKey;
use remps_proto::admin::module::is_name;
use remps_proto::join::{ToNode, ToThin, VERSION};
use remps_proto::mps::handshake::Role;
use remps_proto::shim::ProgramDefaults;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

/// Thin daemons at a time, twice as many as there may be namespaces.
const MOST: usize = 512;
/// Command lines of one of them that have not said their role.
const MOST_VISITORS: usize = 64;
/// How long one may take to say what it wants, and to take a packet.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nobody is accepted when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// Accepts thin daemons for ever.
pub(super) async fn accept(listener: OwnedFd, events: Events, owner: Uid, may_be_apart: bool) {
    let Ok(listener) = register(listener, Interest::READABLE) else { return };
    let room = Arc::new(Semaphore::new(MOST));
    let mut next = 0;
    loop {
        match listener.async_io(Interest::READABLE, |fd| Ok(packets::accept(fd.as_fd())?)).await {
            Ok(fd) => {
                // Who finds no room is closed, and comes again.
                let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
                next += 1;
                let conversation = converse(JoinId(next), fd, events.clone(), owner, may_be_apart);
                tokio::spawn(async move {
                    conversation.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a daemon that wants to join can't be accepted");
                sleep_until(Instant::now() + PAUSE).await;
            }
        }
    }
}

/// Why whoever has connected may not join.
fn refusal(fd: &OwnedFd, owner: Uid, may_be_apart: bool) -> Option<String> {
    let Ok(connected) = peer::look(fd) else {
        return Some("the process that connected can't be looked at".to_owned());
    };
    let (uid, place) = (connected.peer.uid, connected.found.place);
    if uid != 0 && uid != owner {
        return Some(format!("only root and user {owner} may join, not user {uid}"));
    }
    if place.user != Namespace::Own {
        return Some("it is in another user namespace than the daemon".to_owned());
    }
    let is_beside = place.is_the_daemons() || may_be_apart;
    (!is_beside).then(|| "it is in another container than the daemon, whose [join] containers is false".to_owned())
}

/// What a thin daemon has to say first.
async fn asked(link: &JoinLink) -> Result<Asked, String> {
    let first =
        timeout(patient(PATIENCE), link.receive()).await.map_err(|_| "it has not said what it wants in time")?;
    let Ok(Some(Parcel { bytes, descriptor: Some(directory) })) = first else {
        return Err("it has not handed over a directory".to_owned());
    };
    let (version, name, devices, limits, replay) = match ToNode::decode(&bytes) {
        Ok(ToNode::Hello { version, name, devices, limits, replay }) => (version, name, devices, limits, replay),
        Ok(_) => return Err("it does not say who it is".to_owned()),
        Err(error) => return Err(format!("its first packet is not understood: {error}")),
    };
    if version != VERSION {
        return Err(format!("it speaks version {version} of this wire, and the daemon {VERSION}"));
    }
    if !is_name(&name) {
        return Err("a name is 1 to 64 lower-case letters, digits and underscores".to_owned());
    }
    let limits = Some(limits).filter(|limits| !limits.is_empty());
    let limits = limits.map(|limits| Defaults::parse(&limits).ok_or("what it says of limits is not understood"));
    let limits = limits.transpose()?;
    let replay = Some(replay).filter(|replay| !replay.is_empty());
    let replay = replay.map(|words| ProgramDefaults::parse(&words).ok_or("what its [replay] says is not understood"));
    let replay = replay.transpose()?;
    let uuid = |word: &str| match DeviceKey::parse(word.as_bytes()) {
        Ok(key @ DeviceKey::Uuid(_)) => Ok(key),
        // Its numbers may be others than the daemon's.
        _ => Err(format!("CUDA_VISIBLE_DEVICES: {word:?} is no GPU's UUID, and numbers differ between containers")),
    };
    let words = devices.split(',').map(str::trim).filter(|word| !word.is_empty());
    let devices = words.map(uuid).collect::<Result<Vec<_>, _>>()?;
    let looked = JOINED_PLACES.run(0, patient(FILE_PATIENCE), move || JoinedPlace::new(directory)).await;
    let place = said(looked)?.map_err(|error| error.to_string())?;
    Ok(Asked { name, devices, limits, replay, place: Arc::new(place) })
}

async fn converse(join: JoinId, fd: OwnedFd, events: Events, owner: Uid, may_be_apart: bool) {
    let refusal = refusal(&fd, owner, may_be_apart);
    let Ok(link) = JoinLink::new(fd) else { return };
    let asked = match refusal {
        Some(reason) => Err(reason),
        None => asked(&link).await,
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(reason) => {
            tracing::warn!(%reason, "a daemon may not join");
            let refused = ToThin::Refused(reason).encode();
            let _ = timeout(patient(PATIENCE), link.send(&refused, None)).await;
            return;
        }
    };
    // driver --messages--> this task
    let (tell, told) = mpsc::unbounded_channel();
    events.send(Event::JoinAsked { join, asked: Box::new(asked), tell }).await;
    hear(join, &link, &events, told).await;
    events.send(Event::JoinGone { join }).await;
}

/// Goes on until one of both has no more to say.
async fn hear(join: JoinId, link: &JoinLink, events: &Events, mut told: mpsc::UnboundedReceiver<ToThin>) {
    let visitors = Arc::new(Semaphore::new(MOST_VISITORS));
    loop {
        tokio::select! {
            message = told.recv() => {
                let Some(message) = message else { return };
                let sent = timeout(patient(PATIENCE), link.send(&message.encode(), None)).await;
                let is_last = matches!(message, ToThin::Refused(_));
                if is_last || !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
            parcel = link.receive() => {
                let Ok(Some(Parcel { bytes, descriptor })) = parcel else { return };
                match ToNode::decode(&bytes) {
                    Ok(ToNode::Visitor { is_owner }) => {
                        let place = Arc::clone(&visitors).try_acquire_owned();
                        if let (Some(fd), Ok(place)) = (descriptor, place) {
                            let visit = visit(join, fd, is_owner, events.clone());
                            tokio::spawn(async move {
                                visit.await;
                                drop(place);
                            });
                        }
                    }
                    Ok(ToNode::Leave) => events.send(Event::JoinLeaves { join }).await,
                    Ok(ToNode::Hello { .. } | ToNode::Unknown(_)) => {}
                    Err(_) => return,
                }
            }
        }
    }
}

/// A connection that a thin daemon has handed over: it may be anything, and is taken if it is a command line's.
async fn visit(join: JoinId, fd: OwnedFd, is_owner: bool, events: Events) {
    if getsockopt(&fd, sockopt::SockType) != Ok(SockType::SeqPacket) {
        return;
    }
    let _ = passed::allow(&fd, false);
    let Ok(socket) = SeqPacket::new(fd) else { return };
    let Ok(connected) = socket.connected_peer() else { return };
    let socket = Arc::new(socket);
    match handshake::role(&socket).await {
        Ok((Role::UI, peer)) => {
            let _: io::Result<()> = socket.discard();
            let is_owner = is_owner && (connected.uid == 0 || connected.uid == peer.uid);
            events.send(Event::JoinVisited { join, socket, peer, is_owner }).await;
        }
        Ok(_) | Err(_) => socket.refuse_the_rest(),
    }
}
