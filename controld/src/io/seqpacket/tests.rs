//! What arrives of a packet, whose it is, and that nobody can hold up who sends or receives.

use super::*;
use crate::io::ends::wait_for_hangup;
use crate::sys::other_proc::OtherProc;
use nix::sys::socket::{ControlMessage, UnixAddr, sendmsg};
use std::io::IoSlice;
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
async fn descriptors_that_nobody_asked_for_are_closed_elsewhere_and_the_packet_comes_in() {
    const MOST: usize = 253;
    let (near, far) = ends();
    let (reader, writer) = io::pipe().expect("descriptors");
    let raw = vec![reader.as_raw_fd(); MOST];
    for packet in [b"one", b"two"] {
        let rights = [ControlMessage::ScmRights(&raw)];
        let raw_socket = near.as_fd().as_raw_fd();
        sendmsg::<UnixAddr>(raw_socket, &[IoSlice::new(packet)], &rights, MsgFlags::empty(), None).expect("room");
    }
    drop(reader);
    let peeked = far.peek(16).await.expect("readable").expect("a packet");
    assert_eq!(peeked.sender.map(|peer| peer.pid), Some(std::process::id()));
    assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"one");
    far.discard().expect("a packet");
    wait_for_hangup(&writer);
}

#[tokio::test(flavor = "current_thread")]
async fn a_file_whose_closing_takes_an_hour_holds_up_nobody_who_takes_or_refuses_its_packet() {
    let (near, far) = ends();
    let (lingering, _reader) = crate::io::ends::lingering();
    for _ in 0..3 {
        near.send(b"x", Some(lingering.as_fd())).expect("room");
    }
    // The last copies are those in the packets.
    drop(lingering);
    assert_eq!(far.receive(16).await.expect("readable").expect("a packet").bytes, b"x");
    far.discard().expect("a packet");
    far.refuse_the_rest();
    assert!(far.peek(16).await.expect("readable").is_none());
    assert!(near.send(b"x", None).is_err(), "nothing more comes in");
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
