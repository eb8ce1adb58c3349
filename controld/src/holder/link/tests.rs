//! A link to holders of earlier releases and to one that says nothing.

use super::*;
use crate::io::packets::send;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use proto::FromHolder as Says;
use remps_proto::holder::ANSWERS_BARRIERS;

/// A link to a holder of these abilities, and the holder's end.
async fn attached(abilities: u32) -> (HolderLink, OwnedFd) {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (socket, holder) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
    let done = AttachDone { version: VERSION, pid: 1, accept_pauses: 0, malformed: 0, abilities };
    say(&holder, Says::AttachDone(done));
    let mut link = HolderLink::new(Contact { socket, pid: Pid::this(), child: None }).unwrap();
    assert!(link.take_over().await.unwrap().is_empty());
    (link, holder)
}

fn say(holder: &OwnedFd, news: Says) {
    send(holder.as_fd(), &news.encode().unwrap(), &[]).unwrap();
}

fn heard(holder: &OwnedFd) -> ToHolder {
    let mut buffer = [0; 64];
    let got = receive(holder.as_fd(), &mut buffer).unwrap();
    ToHolder::decode(&buffer[..got.bytes]).unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn a_holder_of_an_earlier_release_passes_a_barrier_by_a_refusal() {
    let (mut link, holder) = attached(proto::RESTORES_MODES).await;
    link.barrier(7).unwrap();
    let ToHolder::Hold { key, kind: Kind::LOG_BACKLOG, state } = heard(&holder) else { panic!("not a request") };
    assert!(state.is_empty() && key == (1 << 59) + 7, "{key}");
    say(&holder, Says::Failed { key: 8, reason: Failure::TOO_MANY });
    say(&holder, Says::Failed { key, reason: Failure::WRONG_DESCRIPTORS });
    let failed = link.next().await.unwrap();
    assert!(matches!(failed, FromHolder::Failed { key: 8, reason: Failure::TOO_MANY }), "{failed:?}");
    let passed = link.next().await.unwrap();
    assert!(matches!(passed, FromHolder::Passed { number: 7 }), "{passed:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_holder_that_answers_barriers_is_asked_for_one() {
    let (mut link, holder) = attached(ANSWERS_BARRIERS).await;
    link.barrier(7).unwrap();
    assert_eq!(heard(&holder), ToHolder::Barrier { number: 7 });
    say(&holder, Says::Passed { number: 7 });
    let passed = link.next().await.unwrap();
    assert!(matches!(passed, FromHolder::Passed { number: 7 }), "{passed:?}");
}
