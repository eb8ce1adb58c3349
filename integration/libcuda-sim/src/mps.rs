//! The client's side of MPS: finding the daemon, the handshakes, the pipes.
//!
//! As the real library does it: one probe connection that reads the greeting and closes, then one connection for the
//! process and one for each context, each through the daemon. When nothing listens on the socket the process runs
//! without MPS, silently.

use crate::codes::{Code, Outcome};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use remps_proto::mps::client::{PIPE_ENDS, PROCESS_CONTEXT, Status, expect_pipes_done};
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR, GREETING, Role, expect_fixed};
use sim_wire::rpc::{Attached, Command, Message, Notice};
use sim_wire::seqpacket::Seqpacket;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where the daemon is looked for when the environment does not say.
const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";
/// What this library lacks of a connection's priority: the default, on context connections.
const DEFAULT_PRIORITY: u32 = 0;

/// The daemon's socket.
pub(crate) fn control_path() -> PathBuf {
    std::env::var_os("CUDA_MPS_PIPE_DIRECTORY")
        .filter(|directory| !directory.is_empty())
        .map_or_else(|| PathBuf::from(DEFAULT_PIPE_DIRECTORY), PathBuf::from)
        .join("control")
}

fn unreachable<E>(_: E) -> Code {
    Code::MPS_CONNECTION_FAILED
}

fn greet(path: &Path) -> Outcome<Option<Seqpacket>> {
    let socket = match Seqpacket::connect(path) {
        Ok(socket) => socket,
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ECONNREFUSED) => return Ok(None),
        Err(errno) => return Err(unreachable(errno)),
    };
    expect_fixed("greeting", &socket.receive_some().map_err(unreachable)?.bytes, GREETING).map_err(unreachable)?;
    Ok(Some(socket))
}

/// Whether a daemon listens.
pub(crate) fn probe(path: &Path) -> Outcome<bool> {
    greet(path).map(|socket| socket.is_some())
}

/// One connection to a server.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Seqpacket,
    replies: File,
    commands: File,
    notices: Option<File>,
    /// The real client has it too; nothing is ever sent on it.
    _acknowledgements: OwnedFd,
}

impl Link {
    /// Goes through the daemon to a server; waits as long as the daemon makes it wait.
    pub(crate) fn connect(path: &Path, context: u32) -> Outcome<Self> {
        let daemon = greet(path)?.ok_or(Code::MPS_CONNECTION_FAILED)?;
        daemon.send_with_credentials(CREDENTIALS).map_err(unreachable)?;
        daemon.send(&Role::CLIENT.encode()).map_err(unreachable)?;
        let socket = Seqpacket::from(descriptor(&daemon)?);
        let mut ends = Vec::with_capacity(PIPE_ENDS);
        for _ in 0..PIPE_ENDS {
            ends.push(descriptor(&socket)?);
        }
        expect_pipes_done(&socket.receive_some().map_err(unreachable)?.bytes).map_err(unreachable)?;
        let priority =
            if context == PROCESS_CONTEXT { remps_proto::mps::client::NO_PRIORITY } else { DEFAULT_PRIORITY };
        socket.send_with_credentials(CREDENTIALS).map_err(unreachable)?;
        socket.send(&context.to_le_bytes()).map_err(unreachable)?;
        socket.send(&priority.to_le_bytes()).map_err(unreachable)?;
        let status = Status::decode(&socket.receive_some().map_err(unreachable)?.bytes).map_err(unreachable)?;
        // The daemon may have gone; the connection to the server stands all the same.
        let _ = daemon.send(&status.encode());
        if status != Status::SUCCESS {
            return Err(Code(status.0));
        }
        let [replies, commands, notices, acknowledgements] =
            <[OwnedFd; PIPE_ENDS]>::try_from(ends).expect("as many as were received");
        Ok(Self {
            socket,
            replies: File::from(replies),
            commands: File::from(commands),
            notices: Some(File::from(notices)),
            _acknowledgements: acknowledgements,
        })
    }

    /// Gives the server a descriptor to watch.
    pub(crate) fn lend(&self, file: &File) -> Outcome {
        self.socket.send_with_descriptor(DESCRIPTOR, file.as_fd()).map_err(|_| Code::MPS_RPC_FAILURE)
    }

    /// Associates the connection with a device.
    pub(crate) fn attach(&self, device: u32) -> Outcome<Attached> {
        self.tell(Command::Attach(device))?;
        let reply = Message::read(&self.replies).ok().flatten().and_then(|message| message.attached());
        reply.ok_or(Code::MPS_RPC_FAILURE)
    }

    /// Which devices the server has.
    pub(crate) fn devices(&self) -> Outcome<Vec<u32>> {
        self.tell(Command::Devices)?;
        let reply = Message::read(&self.replies).ok().flatten().and_then(|message| message.devices());
        reply.ok_or(Code::MPS_RPC_FAILURE)
    }

    /// Sends a command.
    pub(crate) fn tell(&self, command: Command) -> Outcome {
        Message::from(command).write(&self.commands).map_err(|_| Code::MPS_RPC_FAILURE)
    }

    /// Tells a server that is no more that this connection ends: the write ends a process in which a broken pipe does, as
    /// NVIDIA's does when it tears a context down. One that lives is told by the closed pipes.
    pub(crate) fn leave(&self) {
        let mut of = [PollFd::new(self.commands.as_fd(), PollFlags::empty())];
        let _nothing_to_read = poll(&mut of, PollTimeout::ZERO);
        if of[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR)) {
            let _nobody_reads = nix::unistd::write(&self.commands, &[0]);
        }
    }

    /// Hears notices on a thread of its own until the server closes: then, once, `hear(None)`.
    pub(crate) fn listen(&mut self, mut hear: impl FnMut(Option<Notice>) + Send + 'static) -> Outcome {
        let notices = self.notices.take().ok_or(Code::UNKNOWN)?;
        let run = move || {
            while let Ok(Some(message)) = Message::read(&notices) {
                if let Some(notice) = message.notice() {
                    hear(Some(notice));
                }
            }
            hear(None);
        };
        std::thread::Builder::new().name("cuda-mps".into()).spawn(run).map(drop).map_err(|_| Code::OPERATING_SYSTEM)
    }
}

fn descriptor(socket: &Seqpacket) -> Outcome<OwnedFd> {
    let packet = socket.receive_some().map_err(unreachable)?;
    expect_fixed("descriptor", &packet.bytes, DESCRIPTOR).map_err(unreachable)?;
    packet.descriptor.ok_or(Code::MPS_CONNECTION_FAILED)
}
