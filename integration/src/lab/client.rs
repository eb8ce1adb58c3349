//! A peer of the daemon that is no CUDA program: connects, greets, and can play a client up to its first context.

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, UnixCredentials, bind,
    connect, recvmsg, send, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR, GREETING, Role};
use remps_proto::shim::SpareName;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// How long a peer waits for a packet, or for room for one, before it gives up, in seconds.
const PACKET_LIMIT_S: i64 = 60;

/// Whether the daemon's socket takes a connection.
#[must_use]
pub fn can_connect(pipe_dir: &Path) -> bool {
    Connection::open(&pipe_dir.join("control")).is_ok()
}

/// A connection of packets with credentials on.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A packet and the descriptors that came with it.
#[derive(Debug)]
pub struct Packet {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn open(path: &Path) -> io::Result<Self> {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        Self::adopt(socket).and_then(|connection| {
            connect(connection.0.as_raw_fd(), &UnixAddr::new(path)?)?;
            Ok(connection)
        })
    }

    /// Connects with a socket that is bound to this name of the abstract namespace.
    ///
    /// # Errors
    /// When nobody listens, or another socket has the name.
    pub fn named(path: &Path, name: &str) -> io::Result<Self> {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        bind(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        let connection = Self::adopt(socket)?;
        connect(connection.0.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(connection)
    }

    fn adopt(socket: OwnedFd) -> io::Result<Self> {
        setsockopt(&socket, sockopt::PassCred, &true)?;
        let limit = TimeVal::new(PACKET_LIMIT_S, 0);
        setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
        // For connecting too: without a daemon that accepts, a full backlog lets nobody in.
        setsockopt(&socket, sockopt::SendTimeout, &limit)?;
        Ok(Self(socket))
    }

    /// A connection that another process has made, which has ended since.
    ///
    /// # Errors
    /// When nobody listens.
    #[expect(unsafe_code, reason = "the other process connects between fork and exec")]
    pub fn of_one_that_has_ended(path: &Path) -> io::Result<Self> {
        let connection = Self::adopt(socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?)?;
        let (number, address) = (connection.0.as_raw_fd(), UnixAddr::new(path)?);
        let mut other = Command::new("true");
        // SAFETY: the child makes one system call with what it has, and allocates nothing.
        unsafe { other.pre_exec(move || Ok(connect(number, &address)?)) };
        other.status()?;
        Ok(connection)
    }

    /// Connects and does what every peer does, with this role.
    ///
    /// # Errors
    /// When the daemon does not greet.
    pub fn greeted(path: &Path, role: Role) -> io::Result<Self> {
        Self::open(path)?.greets(role)
    }

    /// Does what every peer does when it has connected.
    ///
    /// # Errors
    /// When the daemon does not greet.
    pub fn greets(self, role: Role) -> io::Result<Self> {
        let greeting = self.receive()?;
        if greeting.bytes != GREETING {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("greeted with {:?}", greeting.bytes)));
        }
        self.send_credentials()?;
        self.send(&role.encode())?;
        Ok(self)
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// Sends a packet with descriptors.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn send_with(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control = if raw.is_empty() { &[][..] } else { &rights[..] };
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(packet)], control, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Sends the credentials packet.
    ///
    /// # Errors
    /// When the peer is gone.
    pub fn send_credentials(&self) -> io::Result<()> {
        let own = UnixCredentials::new();
        let control = [ControlMessage::ScmCredentials(&own)];
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(CREDENTIALS)], &control, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Receives a packet; an empty one is the peer's end.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn receive(&self) -> io::Result<Packet> {
        const ROOM: usize = 4096;
        let mut bytes = vec![0; ROOM];
        let mut control = nix::cmsg_space!([RawFd; 4], UnixCredentials);
        let mut room = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg::<()>(self.0.as_raw_fd(), &mut room, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = message {
                descriptors.extend(numbers.into_iter().map(owned));
            }
        }
        let length = received.bytes;
        bytes.truncate(length);
        Ok(Packet { bytes, descriptors })
    }

    fn receive_descriptor(&self) -> io::Result<OwnedFd> {
        let mut packet = self.receive()?;
        match packet.descriptors.pop() {
            Some(descriptor) if packet.bytes == DESCRIPTOR => Ok(descriptor),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("no descriptor in {:?}", packet.bytes))),
        }
    }
}

#[expect(unsafe_code, reason = "descriptors arrive as bare numbers")]
fn owned(number: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us and nothing else knows it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// A client with one context, as far as daemon and server can tell. It leaves when it is dropped.
#[derive(Debug)]
pub struct Client {
    /// Each CUDA context is a connection of its own, beside the one of the process.
    _contexts: Vec<Context>,
}

#[derive(Debug)]
struct Context {
    _server: Connection,
    _pipes: Vec<OwnedFd>,
}

impl Client {
    /// Attaches to the daemon's server for this user: the process, as `cuInit` does, and one context.
    ///
    /// # Errors
    /// When the daemon or the server refuses.
    pub fn attach(pipe_dir: &Path) -> io::Result<Self> {
        // The process's connection has no priority of its own.
        const PROCESS: [u32; 2] = [0, 0xff];
        const FIRST_CONTEXT: [u32; 2] = [1, 0];
        let contexts = [PROCESS, FIRST_CONTEXT].map(|[id, priority]| {
            let daemon = Connection::greeted(&pipe_dir.join("control"), Role::CLIENT)?;
            Context::attach(&daemon, id, priority)
        });
        Ok(Self { _contexts: contexts.into_iter().collect::<io::Result<_>>()? })
    }

    /// The same with connections that show that they are a spare copy's; the first of them has this number.
    ///
    /// # Errors
    /// When the daemon or the server refuses.
    pub fn attach_spare(pipe_dir: &Path, token: u64, number: u32) -> io::Result<Self> {
        let contexts = [[0, 0xff], [1, 0]].into_iter().zip(number..).map(|([id, priority], number)| {
            let name = SpareName { token, number }.to_string();
            let daemon = Connection::named(&pipe_dir.join("control"), &name)?.greets(Role::CLIENT)?;
            Context::attach(&daemon, id, priority)
        });
        Ok(Self { _contexts: contexts.collect::<io::Result<_>>()? })
    }
}

impl Context {
    fn attach(daemon: &Connection, id: u32, priority: u32) -> io::Result<Self> {
        const PIPES: usize = 4;
        let server = Connection::adopt(daemon.receive_descriptor()?)?;
        let pipes = (0..PIPES).map(|_| server.receive_descriptor()).collect::<io::Result<Vec<_>>>()?;
        server.receive()?;
        server.send_credentials()?;
        server.send(&id.to_le_bytes())?;
        server.send(&priority.to_le_bytes())?;
        let status = server.receive()?.bytes;
        daemon.send(&status)?;
        if status == [0; 4] {
            Ok(Self { _server: server, _pipes: pipes })
        } else {
            Err(io::Error::other(format!("the server's status is {status:?}")))
        }
    }
}
