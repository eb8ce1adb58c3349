//! Sessions with a daemon that is a thread of the test.

use super::*;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv, send, socket,
};
use std::io::Seek;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;

const MAX_PACKET: usize = 70_000;

fn listener(dir: &Path, name: &str) -> OwnedFd {
    let listener = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&dir.join(name)).unwrap()).unwrap();
    listen(&listener, Backlog::new(8).unwrap()).unwrap();
    listener
}

struct Peer(OwnedFd);

impl Peer {
    #[expect(unsafe_code, reason = "accept hands out a bare number")]
    fn accepted(listener: &OwnedFd) -> Self {
        let number = accept(listener.as_raw_fd()).unwrap();
        // SAFETY: accept just returned this descriptor and nothing else owns it.
        Self(unsafe { OwnedFd::from_raw_fd(number) })
    }

    fn receive(&self) -> Vec<u8> {
        let mut packet = vec![0; MAX_PACKET];
        let length = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty()).unwrap();
        packet.truncate(length);
        packet
    }

    fn send(&self, packet: &[u8]) {
        send(self.0.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL).unwrap();
    }

    fn greeted(listener: &OwnedFd) -> Self {
        let peer = Self::accepted(listener);
        peer.send(b"OUTBHELL\0");
        assert_eq!(peer.receive(), b"OUTBCRED\0");
        assert_eq!(peer.receive(), [4, 0, 0, 0]);
        peer
    }

    fn command(&self) -> Option<Vec<u8>> {
        let length = u64::from_le_bytes(self.receive().try_into().unwrap());
        if length == 0 {
            return None;
        }
        let command = self.receive();
        assert_eq!(command.len() as u64, length);
        Some(command)
    }

    fn answer(&self, text: &str) {
        self.send(&[&[0, 0, 0, 0], text.as_bytes()].concat());
    }

    fn end(&self, status: u32) {
        self.send(&[1_u32.to_le_bytes(), status.to_le_bytes()].concat());
    }
}

/// Runs a session on `input` against a daemon that does `script` on `name`; what it printed, and how it ended.
fn talk<F: FnOnce(&OwnedFd) + Send + 'static>(name: &str, input: &[u8], script: F) -> (String, Result<u8, Broken>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = listener(dir.path(), name);
    let daemon = thread::spawn(move || script(&listener));
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut streams = session::Streams { out: &mut out, err: &mut err };
    let ended = session(dir.path(), &Commands::Stdin, file.as_fd(), Personality::V580, false, &mut streams);
    daemon.join().unwrap();
    assert!(err.is_empty(), "{}", String::from_utf8_lossy(&err));
    (String::from_utf8(out).unwrap(), ended)
}

/// Sends one command to a daemon that does `script`; what was said on standard error, and how it ended.
fn send_one<F: FnOnce(&Peer) + Send + 'static>(
    command: &str,
    out: &mut dyn Write,
    script: F,
) -> (String, Result<u8, Broken>) {
    let dir = tempfile::tempdir().unwrap();
    let listener = listener(dir.path(), "control");
    let daemon = thread::spawn(move || {
        let peer = Peer::greeted(&listener);
        assert!(peer.command().is_some());
        script(&peer);
    });
    let mut err = Vec::new();
    let mut streams = session::Streams { out, err: &mut err };
    let command = Commands::One(command.as_bytes().to_vec());
    let ended = session(dir.path(), &command, io::stdin().as_fd(), Personality::V580, true, &mut streams);
    daemon.join().unwrap();
    (String::from_utf8(err).unwrap(), ended)
}

/// How a session with this command ends when nobody serves `dir`.
fn nobody_answers(dir: &Path, commands: &Commands) -> Result<u8, Broken> {
    let (mut out, mut err) = (io::sink(), io::sink());
    let mut streams = session::Streams { out: &mut out, err: &mut err };
    session(dir, commands, io::stdin().as_fd(), Personality::V580, false, &mut streams)
}

#[test]
fn a_command_that_fails_says_why_on_standard_error_and_fails() {
    let mut out = Vec::new();
    let (said, ended) = send_one("metrics", &mut out, |peer| {
        peer.send(&[2_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat());
        peer.answer("Insufficient privileges");
        peer.answer("for you");
        peer.answer("something else");
        peer.end(0);
    });
    assert_eq!((said.as_str(), ended.unwrap()), ("Insufficient privileges\nfor you\n", 1));
    assert_eq!(out, b"something else\n");
}

/// An output whose disk is full.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_answer_of_ours_that_cannot_be_written_is_a_failure_and_the_vendors_is_as_with_the_vendor() {
    let script = |peer: &Peer| {
        peer.answer("an answer");
        peer.end(0);
    };
    let (said, ended) = send_one("status", &mut Full, script);
    assert!(said.starts_with("The answer can't be written: "), "{said}");
    assert_eq!(ended.unwrap(), 1);
    let (said, ended) = send_one("get_server_list", &mut Full, script);
    assert_eq!((said.as_str(), ended.unwrap()), ("", 0));
    let (said, ended) = send_one("status", &mut Unread, script);
    assert_eq!((said.as_str(), ended.unwrap()), ("", 0), "whoever closes a pipe has read enough");
}

#[test]
fn a_command_that_nobody_knows_gets_a_hint_beside_the_answer() {
    let mut out = Vec::new();
    let (said, ended) = send_one("staus", &mut out, |peer| {
        peer.answer("Unknown command \"staus\"");
        peer.end(0);
    });
    assert_eq!((said.as_str(), ended.unwrap()), ("Did you mean \"status\"?\n", 0));
    assert_eq!(out, b"Unknown command \"staus\"\n");
}

#[test]
fn where_no_daemon_answers_and_what_to_do_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let broken = nobody_answers(dir.path(), &Commands::One(b"status".to_vec())).unwrap_err();
    let said = broken.explained(dir.path());
    for part in [dir.path().to_str().unwrap(), "no socket takes the connection", "-d", "CUDA_MPS_PIPE_DIRECTORY"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn commands_are_sent_with_their_line_ends_and_answers_printed_in_order() {
    let (printed, ended) = talk("control_privileged", b"ps\nget_server_list", |listener| {
        let peer = Peer::greeted(listener);
        assert_eq!(peer.command().unwrap(), b"ps\n\0");
        assert_eq!(peer.command().unwrap(), b"get_server_list\0");
        assert_eq!(peer.command(), None);
        peer.answer("Server not found");
        peer.send(&[9, 0, 0, 0, 1]);
        peer.answer("two\nlines");
        peer.end(7);
    });
    assert_eq!(printed, "Server not found\ntwo\nlines\n");
    assert!(matches!(ended, Ok(7)));
}

#[test]
fn the_open_socket_is_used_when_the_privileged_one_is_not_there() {
    let (_, ended) = talk("control", b"", |listener| {
        let peer = Peer::greeted(listener);
        assert_eq!(peer.command(), None);
        peer.end(0);
    });
    assert!(matches!(ended, Ok(0)));
}

#[test]
fn a_daemon_that_ends_the_session_early_is_obeyed() {
    let (printed, ended) = talk("control", b"quit\nps\nps\n", |listener| {
        let peer = Peer::greeted(listener);
        assert_eq!(peer.command().unwrap(), b"quit\n\0");
        peer.end(8);
    });
    assert_eq!(printed, "");
    assert!(matches!(ended, Ok(8)));
}

#[test]
fn a_daemon_that_vanishes_is_an_error_and_not_a_success() {
    let (printed, ended) = talk("control", b"ps\n", |listener| {
        let peer = Peer::greeted(listener);
        peer.command().unwrap();
        peer.answer("half");
    });
    assert_eq!(printed, "half\n");
    assert_eq!(ended.unwrap_err().message(), "Cannot send command to MPS control daemon process");

    let (_, ended) = talk("control", b"ps\n", |listener| drop(Peer::accepted(listener)));
    assert_eq!(ended.unwrap_err().message(), "Cannot find MPS control daemon process");

    let (_, ended) = talk("control", b"ps\n", |listener| Peer::accepted(listener).send(b"WRONGHELL"));
    assert!(matches!(ended, Err(Broken::NotFound(_))));
}

/// An output whose reader has gone.
struct Unread;

impl Write for Unread {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn following_events_ends_when_nobody_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let listener = listener(dir.path(), "control");
    let daemon = thread::spawn(move || {
        let peer = Peer::greeted(&listener);
        assert_eq!(peer.command().unwrap(), b"events --follow\0");
        peer.answer("an event");
        // The session ends without a word from here; the end of its commands comes before that or not at all.
        let last = peer.receive();
        assert!(last.is_empty() || last == 0u64.to_le_bytes(), "{last:?}");
    });
    let command = Commands::One(b"events --follow".to_vec());
    let mut streams = session::Streams { out: &mut Unread, err: &mut io::sink() };
    let ended = session(dir.path(), &command, io::stdin().as_fd(), Personality::V580, false, &mut streams);
    assert_eq!(ended.unwrap(), 0);
    daemon.join().unwrap();
}

#[test]
fn many_commands_with_long_answers_never_block_both_ends() {
    const COMMANDS: usize = 2000;
    let input = "get_default_client_priority\n".repeat(COMMANDS);
    let (printed, ended) = talk("control", input.as_bytes(), |listener| {
        let peer = Peer::greeted(listener);
        while peer.command().is_some() {
            peer.answer(&"x".repeat(4000));
        }
        peer.end(0);
    });
    assert_eq!(printed.lines().count(), COMMANDS);
    assert!(matches!(ended, Ok(0)));
}

#[test]
fn a_listening_socket_without_a_daemon_behind_it_is_no_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let _kept = listener(dir.path(), "control");
    std::fs::write(dir.path().join("control_lock"), "").unwrap();
    assert_eq!(connect::lock(dir.path()), connect::Lock::Free);
    let ended = nobody_answers(dir.path(), &Commands::One(b"ps".to_vec()));
    assert!(matches!(ended, Err(Broken::NotFound(_))));
}

#[test]
fn a_socket_that_never_greets_is_given_up_when_the_lock_cannot_be_seen() {
    let dir = tempfile::tempdir().unwrap();
    let _kept = listener(dir.path(), "control");
    assert_eq!(connect::lock(dir.path()), connect::Lock::Unknown);
    let ended = nobody_answers(dir.path(), &Commands::Stdin);
    assert!(matches!(ended, Err(Broken::NotFound("no greeting in time"))));
}

#[test]
fn nothing_at_all_is_no_daemon() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("x".repeat(120)), dir.path().join("absent")] {
        let ended = nobody_answers(&path, &Commands::Stdin);
        assert!(matches!(ended, Err(Broken::NotFound(_))), "{}", path.display());
    }
}
