//! One client connection: its handshake over the handed-out socket, and its pipes afterwards.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use remps_proto::mps::client::{PIPES_DONE, Status};
use remps_proto::mps::decode_u32;
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR, expect_fixed};
use sim_wire::rpc::{Message, Notice};
use sim_wire::seqpacket::Seqpacket;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long a client may keep the server waiting in its handshake, during which nobody else is served.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who a connection is for, printed as the vendor's log does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: i32,
    pub(super) context: u32,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{PID: {}, Context ID: {}}}", self.pid, self.context)
    }
}

/// Why a handshake came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("socket")]
    Socket(#[from] Errno),
    #[error("packet")]
    Packet(#[from] remps_proto::mps::DecodeError),
    #[error("no credentials")]
    NoCredentials,
}

/// A client that has said who it is and has not been answered.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) identity: Identity,
    connection: Connection,
}

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) identity: Identity,
    /// Device of its context, once attached.
    pub(super) device: Option<u32>,
    /// Its device was lost while it was on it.
    pub(super) is_affected: bool,
    /// Its own kernel trapped or failed an assertion: the one honest word in the log about who did it.
    pub(super) is_in_reset: bool,
    /// The socket stays open as long as the connection; the client's UVM descriptor comes over it.
    pub(super) socket: Seqpacket,
    /// What the client writes.
    pub(super) commands: File,
    replies: File,
    notices: File,
    /// Nothing is expected on it; the vendor's client has four pipe ends.
    _acknowledgements: OwnedFd,
    buffer: Vec<u8>,
    /// The client is NVIDIA's library, whose messages are not known: it is left waiting for its first answer.
    is_foreign: bool,
}

/// First bytes of the 272 that NVIDIA's library sends on its command pipe after the handshake (seen with 535.309.01);
/// no operation of ours has this number.
const FOREIGN: [u8; 8] = [0; 8];

/// Sends the four pipe ends, does what is to be done in between, and reads who is there.
pub(super) fn greet(socket: Seqpacket, greeted: impl FnOnce()) -> Result<Greeted, HandshakeError> {
    socket.set_receive_timeout(PATIENCE)?;
    let pipe = || pipe2(OFlag::O_CLOEXEC);
    let (client_replies, replies) = pipe()?;
    let (commands, client_commands) = pipe()?;
    let (client_notices, notices) = pipe()?;
    let (acknowledgements, client_acknowledgements) = pipe()?;
    for end in [&client_replies, &client_commands, &client_notices, &client_acknowledgements] {
        socket.send_with_descriptor(DESCRIPTOR, end.as_fd())?;
    }
    socket.send(&PIPES_DONE)?;
    greeted();
    let credentials = socket.receive_some()?;
    expect_fixed("credentials", &credentials.bytes, CREDENTIALS)?;
    let sender = credentials.sender.ok_or(HandshakeError::NoCredentials)?;
    let context = decode_u32("context id", &socket.receive_some()?.bytes)?;
    decode_u32("priority", &socket.receive_some()?.bytes)?;
    // A client that does not read its notices must not stop the server.
    nix::fcntl::fcntl(&notices, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let identity = Identity { pid: sender.pid(), context };
    let connection = Connection {
        identity,
        device: None,
        is_affected: false,
        is_in_reset: false,
        socket,
        commands: File::from(commands),
        replies: File::from(replies),
        notices: File::from(notices),
        _acknowledgements: acknowledgements,
        buffer: Vec::new(),
        is_foreign: false,
    };
    Ok(Greeted { identity, connection })
}

impl Greeted {
    /// Tells the client that it may stay.
    pub(super) fn accept(self) -> Connection {
        // A client that has gone in the meantime is noticed by its pipes.
        let _ = self.connection.socket.send(&Status::SUCCESS.encode());
        self.connection
    }

    /// Tells the client why it may not stay.
    pub(super) fn refuse(self, status: Status) {
        // A client that has gone needs no answer.
        let _ = self.connection.socket.send(&status.encode());
    }
}

impl Connection {
    /// Reads what is there; the whole commands in it, or `None` when the client has closed or talks nonsense.
    pub(super) fn read_commands(&mut self) -> Option<Vec<Message>> {
        let mut bytes = [0; 4096];
        let count = self.commands.read(&mut bytes).ok().filter(|&count| count > 0)?;
        self.is_foreign |= self.buffer.is_empty() && bytes[..count].starts_with(&FOREIGN);
        if self.is_foreign {
            return Some(Vec::new());
        }
        self.buffer.extend_from_slice(&bytes[..count]);
        let mut messages = Vec::new();
        while let Some(message) = Message::take(&mut self.buffer).ok()? {
            messages.push(message);
        }
        Some(messages)
    }

    /// Answers a command.
    pub(super) fn reply(&self, message: &Message) {
        // A client that has gone is noticed by its pipes.
        let _ = message.write(&self.replies);
    }

    /// Tells the client something unasked.
    pub(super) fn notify(&self, notice: Notice) {
        // A client that has gone is noticed by its pipes.
        let _ = Message::from(notice).write(&self.notices);
    }
}
