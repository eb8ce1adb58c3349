//! A link to holders of earlier releases and to one that says nothing.

use super::*;
use crate::io::packets::send;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use proto::FromHolder as Says;
use remps_proto::holder::{ADDS_PATHS, ANSWERS_BARRIERS, Settings};

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
    let mut buffer = [0; 4096];
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

#[tokio::test(flavor = "current_thread")]
async fn a_holder_of_an_earlier_release_is_told_as_many_paths_as_it_takes() {
    let unlink: Vec<Vec<u8>> = (0_u8..20).map(|number| format!("/{number}").into_bytes()).collect();
    let settings = Settings { successor_wait_ms: 7, unlink, ..Settings::default() };
    let (link, holder) = attached(ANSWERS_BARRIERS).await;
    link.settings(&settings).unwrap();
    link.release(1).unwrap();
    let ToHolder::Settings(told) = heard(&holder) else { panic!("not settings") };
    assert_eq!((told.successor_wait_ms, told.unlink.as_slice()), (7, &settings.unlink[..16]));
    assert_eq!(heard(&holder), ToHolder::Release { key: 1 });

    let (link, holder) = attached(ADDS_PATHS).await;
    link.settings(&settings).unwrap();
    assert_eq!(heard(&holder), ToHolder::Settings(settings));
}
