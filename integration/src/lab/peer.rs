//! A client whose every step can be taken alone: stops half-way, goes on later, and proves that its pipes work.
//!
//! [`client::Client`](super::client::Client) plays the client that all goes well for; this one is for tests of what
//! happens in between, and it speaks the simulated server's own messages over the pipes.

use nix::errno::Errno;
use remps_proto::mps::client::{PIPES_DONE, Status};
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR, GREETING, Role};
use sim_wire::rpc::{Command, Message};
use sim_wire::seqpacket::{Packet, Seqpacket};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The context id of the connection that `cuInit` makes, and its priority.
const PROCESS: (u32, u32) = (0, 0xff);
/// The priority of the others.
const CONTEXT_PRIORITY: u32 = 0;
const PIPES: usize = 4;

fn wrong(what: &str, packet: &Packet) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {:?}", packet.bytes))
}

fn closed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("{what}: closed"))
}

fn receive(socket: &Seqpacket, what: &str) -> io::Result<Packet> {
    match socket.receive() {
        Ok(packet) if packet.bytes.is_empty() => Err(closed(what)),
        Ok(packet) => Ok(packet),
        Err(Errno::EAGAIN) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what}: nothing came"))),
        Err(errno) => Err(io::Error::from(errno)),
    }
}

fn receive_descriptor(socket: &Seqpacket, what: &str) -> io::Result<std::os::fd::OwnedFd> {
    let mut packet = receive(socket, what)?;
    match packet.descriptor.take() {
        Some(descriptor) if packet.bytes == DESCRIPTOR => Ok(descriptor),
        _ => Err(wrong(what, &packet)),
    }
}

/// A connection to the daemon that has been greeted and has said its role.
#[derive(Debug)]
pub struct Arriving(Seqpacket);

impl Arriving {
    /// Connects as a client and waits for nothing but the greeting.
    ///
    /// # Errors
    /// When nobody listens or greets within `limit`.
    pub fn connect(pipe_dir: &Path, limit: Duration) -> io::Result<Self> {
        Self::connect_as(pipe_dir, Role::CLIENT, limit)
    }

    /// Connects with any role.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_as(pipe_dir: &Path, role: Role, limit: Duration) -> io::Result<Self> {
        let socket = Seqpacket::connect(&pipe_dir.join("control"))?;
        socket.set_receive_timeout(limit)?;
        let greeting = receive(&socket, "greeting")?;
        if greeting.bytes != GREETING {
            return Err(wrong("greeting", &greeting));
        }
        socket.send_with_credentials(CREDENTIALS)?;
        socket.send(&role.encode())?;
        Ok(Self(socket))
    }

    /// The connection itself.
    #[must_use]
    pub fn socket(&self) -> &Seqpacket {
        &self.0
    }

    /// Waits for the descriptor that leads to the server.
    ///
    /// # Errors
    /// When it does not come in time, or the daemon closes instead.
    pub fn handed_over(self) -> io::Result<HandedOver> {
        let server = Seqpacket::from(receive_descriptor(&self.0, "the server's socket")?);
        Ok(HandedOver { daemon: self.0, server })
    }
}

/// A client that has its end of the socket pair.
#[derive(Debug)]
pub struct HandedOver {
    daemon: Seqpacket,
    server: Seqpacket,
}

impl HandedOver {
    /// Does the handshake with the server and reports its status to the daemon.
    ///
    /// # Errors
    /// When the server refuses or closes.
    pub fn attach(self, id: u32, priority: u32, limit: Duration) -> io::Result<Context> {
        let Self { daemon, server } = self;
        server.set_receive_timeout(limit)?;
        let mut pipes = Vec::with_capacity(PIPES);
        for _ in 0..PIPES {
            pipes.push(receive_descriptor(&server, "a pipe")?);
        }
        let done = receive(&server, "the end of the pipes")?;
        if done.bytes != PIPES_DONE {
            return Err(wrong("the end of the pipes", &done));
        }
        server.send_with_credentials(CREDENTIALS)?;
        server.send(&id.to_le_bytes())?;
        server.send(&priority.to_le_bytes())?;
        let status = receive(&server, "the server's status")?;
        // A daemon that has been killed in the meantime needs no status; its successor sees the end.
        let _ = daemon.send(&status.bytes);
        if status.bytes != Status::SUCCESS.encode() {
            return Err(wrong("the server's status", &status));
        }
        let mut pipes = pipes.into_iter().map(File::from);
        match (pipes.next(), pipes.next(), pipes.next(), pipes.next()) {
            (Some(replies), Some(commands), Some(notices), Some(acknowledgements)) => {
                Ok(Context { _server: server, replies, commands, _rest: [notices, acknowledgements] })
            }
            _ => Err(closed("pipes")),
        }
    }
}

/// One connection to a server: the process's own or a context's.
#[derive(Debug)]
pub struct Context {
    _server: Seqpacket,
    replies: File,
    commands: File,
    _rest: [File; 2],
}

impl Context {
    /// Asks the server for something over the pipes: it is the same server and it serves.
    ///
    /// # Errors
    /// When the server is gone or answers something else.
    pub fn ping(&self) -> io::Result<()> {
        Message::from(Command::Attach(0)).write(&self.commands)?;
        match Message::read(&self.replies)? {
            Some(reply) if reply.attached().is_some() => Ok(()),
            Some(reply) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("answered with {reply:?}"))),
            None => Err(closed("the server's pipe")),
        }
    }
}

/// A client program: the connection of its `cuInit` and one for each context.
#[derive(Debug)]
pub struct Peer {
    pipe_dir: PathBuf,
    limit: Duration,
    process: Context,
    contexts: Vec<Context>,
}

impl Peer {
    /// Does what `cuInit` does. No step may take longer than `limit`.
    ///
    /// # Errors
    /// Whatever a program would see as a failed `cuInit`.
    pub fn init(pipe_dir: &Path, limit: Duration) -> io::Result<Self> {
        let (id, priority) = PROCESS;
        let process = Arriving::connect(pipe_dir, limit)?.handed_over()?.attach(id, priority, limit)?;
        Ok(Self { pipe_dir: pipe_dir.to_owned(), limit, process, contexts: Vec::new() })
    }

    /// `cuInit` and one context that works.
    ///
    /// # Errors
    /// Whatever a program would see as an error.
    pub fn attach(pipe_dir: &Path, limit: Duration) -> io::Result<Self> {
        let mut peer = Self::init(pipe_dir, limit)?;
        peer.add_context()?;
        Ok(peer)
    }

    /// Makes one more context on the device and uses it.
    ///
    /// # Errors
    /// Whatever a program would see as a failed `cuCtxCreate`.
    pub fn add_context(&mut self) -> io::Result<()> {
        let id = u32::try_from(self.contexts.len() + 1).expect("few contexts");
        let arriving = Arriving::connect(&self.pipe_dir, self.limit)?;
        let context = arriving.handed_over()?.attach(id, CONTEXT_PRIORITY, self.limit)?;
        context.ping()?;
        self.contexts.push(context);
        Ok(())
    }

    /// Uses every connection.
    ///
    /// # Errors
    /// When one of them does not work any longer.
    pub fn ping(&self) -> io::Result<()> {
        self.process.ping()?;
        self.contexts.iter().try_for_each(Context::ping)
    }
}
