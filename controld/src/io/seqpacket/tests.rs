//! What arrives of a packet, whose it is, and that nobody can hold up who sends or receives.

use super::*;
use crate::io::ends::wait_for_hangup;
use crate::sys::other_proc::OtherProc;
use std::path::Path;
use std::process::Command;

fn ends() -> (SeqPacket, SeqPacket) {
    let (first, second) = pair().expect("descriptors");
    (SeqPacket::new(first).expect("a socket"), SeqPacket::new(second).expect("a socket"))
}

#[tokio::test(flavor = "current_thread")]
async fn packets_carry_their_senders_credentials() {
    let (near, far) = ends();
    near.send(b"hello", None).expect("room");
    let packet = far.receive(16).await.expect("readable").expect("a packet");
    assert_eq!(packet.bytes, b"hello");
    let sender = packet.sender.expect("credentials pass");
    assert_eq!((sender.pid, sender.uid), (std::process::id(), nix::unistd::getuid().as_raw()));
}

#[tokio::test(flavor = "current_thread")]
async fn an_empty_packet_is_not_the_end() {
    let (near, far) = ends();
    near.send(b"", None).expect("room");
    drop(near);
    assert!(far.receive(16).await.expect("readable").is_some_and(|packet| packet.bytes.is_empty()));
    assert!(far.receive(16).await.expect("readable").is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn a_packet_longer_than_the_buffer_is_marked() {
    let (near, far) = ends();
    near.send(&[7; 40], None).expect("room");
    let packet = far.receive(16).await.expect("readable").expect("a packet");
    assert!(packet.bytes.len() == 16);
}

#[tokio::test(flavor = "current_thread")]
async fn peeking_leaves_the_packet_until_it_is_discarded() {
    let (near, far) = ends();
    near.send(b"one", None).expect("room");
    near.send(b"two", None).expect("room");
    assert_eq!(far.peek(16).await.expect("readable").expect("a packet").bytes, b"one");
    assert_eq!(far.peek(16).await.expect("readable").expect("a packet").bytes, b"one");
    far.discard().expect("a packet");
    assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"two");
}

#[tokio::test(flavor = "current_thread")]
async fn a_batch_arrives_as_packets_with_the_descriptor_where_it_belongs() {
    let (near, far) = ends();
    let (passed, _kept) = pair().expect("descriptors");
    let sent = near.send_batch(&[(b"op", None), (b"fd", Some(passed.as_fd())), (b"", None)]).expect("room");
    assert_eq!(sent, 3);
    let mut got = Vec::new();
    for _ in 0..3 {
        let mut buffer = [0; 16];
        let packet = crate::io::packets::receive(far.as_fd(), &mut buffer).expect("a packet");
        got.push((buffer[..packet.bytes].to_vec(), packet.fds.len()));
    }
    assert_eq!(got, [(b"op".to_vec(), 0), (b"fd".to_vec(), 1), (Vec::new(), 0)]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_whose_closing_takes_an_hour_holds_up_nobody_who_looks_at_or_refuses_its_packet() {
    let (near, far) = ends();
    let (lingering, _reader) = crate::io::ends::lingering();
    for _ in 0..3 {
        near.send(b"x", Some(lingering.as_fd())).expect("room");
    }
    // The last copies are those in the packets.
    drop(lingering);
    assert_eq!(far.peek(16).await.expect("readable").expect("a packet").bytes, b"x");
    assert_eq!(far.discard().expect_err("it would be let go of here").kind(), io::ErrorKind::InvalidData);
    assert_eq!(far.receive(16).await.expect_err("the same").kind(), io::ErrorKind::InvalidData);
    assert!(near.send(b"x", None).is_err(), "nothing more comes in");
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_server_sends_on_a_pair_comes_in_without_its_descriptors() {
    let (near, far) = pair().expect("descriptors");
    let far = SeqPacket::of_pair(far).expect("an end");
    let (reader, writer) = crate::io::ends::pipe();
    send(near.as_fd(), b"status", &[reader.as_fd(); 8]).expect("room");
    drop(reader);
    assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"status");
    wait_for_hangup(&writer);
}

#[tokio::test(flavor = "current_thread")]
async fn descriptors_that_nobody_wants_never_come_in_and_are_let_go_of() {
    let (near, far) = ends();
    let (reader, writer) = crate::io::ends::pipe();
    near.send(b"plain", None).expect("room");
    for _ in 0..3 {
        send(near.as_fd(), b"x", &[reader.as_fd(); 8]).expect("room");
    }
    drop(reader);
    assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"plain");
    assert_eq!(far.receive(16).await.expect_err("they stay there").kind(), io::ErrorKind::InvalidData);
    wait_for_hangup(&writer);
}

#[tokio::test(flavor = "current_thread")]
async fn the_sender_of_a_packet_is_named_and_not_who_connected() {
    let (near, far) = ends();
    let there = OtherProc::open(Path::new(crate::sys::proc::FOLDER)).expect("it is the machine's");
    let of =
        |far: &SeqPacket| far.sender_pidfd().map(|pidfd| there.find(&pidfd.expect("it lives")).expect("it lives").pid);
    near.send(b"own", None).expect("room");
    match of(&far) {
        Ok(own) => assert_eq!(own, std::process::id()),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            println!("Skipped(this kernel names no senders)");
            return;
        }
        Err(error) => panic!("{error}"),
    }
    far.discard().expect("a packet");
    assert_eq!(far.sender_pidfd().expect_err("nothing is there").kind(), io::ErrorKind::WouldBlock);
    // A child says something by this process's end.
    let end = near.as_fd().try_clone_to_owned().expect("there are descriptors");
    let mut child = Command::new("sh");
    child.args(["-c", "printf his >&0; exec tail -f /dev/null"]).stdin(end);
    let mut child = child.spawn().expect("there is a shell");
    assert_eq!(far.peek(16).await.expect("readable").expect("a packet").bytes, b"his");
    assert_eq!(of(&far).expect("it is named"), child.id());
    child.kill().expect("it waits");
    child.wait().expect("it is ours");
}

#[tokio::test(flavor = "current_thread")]
async fn a_peer_that_does_not_read_makes_sending_fail_and_not_wait() {
    let (near, _far) = ends();
    let error = (0..1_000_000).find_map(|_| near.send(&[0; 512], None).err()).expect("the buffer is finite");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}
