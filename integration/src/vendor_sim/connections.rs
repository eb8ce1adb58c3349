//! What becomes of a connection: the server's is kept, a client's leads to the server.

use super::logs::Log;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use nix::unistd::getuid;
use remps_proto::mps::handshake::{CREDENTIALS, DESCRIPTOR, GREETING, Role, expect_fixed};
use remps_proto::mps::server::{Configuration, Hello, Request};
use sim_wire::seqpacket::Seqpacket;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Where the one server is.
#[derive(Debug)]
enum Server {
    Absent,
    /// Started, and not ready.
    Starting(u32),
    Ready {
        pid: u32,
        link: Seqpacket,
    },
}

/// The one server, and who waits for it.
#[derive(Debug)]
pub(super) struct Servers {
    log: Arc<Log>,
    server: Mutex<Server>,
    changed: Condvar,
}

fn protocol(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Servers {
    pub(super) const fn new(log: Arc<Log>) -> Self {
        Self { log, server: Mutex::new(Server::Absent), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, Server> {
        self.server.lock().expect("nobody panics with it")
    }

    /// Greets a peer and does what its role asks for.
    pub(super) fn meet(self: &Arc<Self>, peer: Seqpacket) -> io::Result<()> {
        peer.send(GREETING)?;
        let credentials = peer.receive_some()?;
        expect_fixed("credentials", &credentials.bytes, CREDENTIALS).map_err(protocol)?;
        let pid = credentials.sender.ok_or(Errno::EACCES)?.pid();
        match Role::decode(&peer.receive_some()?.bytes).map_err(protocol)? {
            Role::SERVER => self.keep(peer, pid.unsigned_abs()),
            Role::CLIENT => self.pass_on(&peer, pid),
            _ => Ok(()),
        }
    }

    /// A server is ready: its connection lasts as long as it does.
    fn keep(&self, link: Seqpacket, pid: u32) -> io::Result<()> {
        Hello::decode(&link.receive_some()?.bytes).map_err(protocol)?;
        let configuration = Configuration { thread_percentage: 100.0, pinned_limits: Vec::new(), priority: 0 };
        for packet in configuration.packets() {
            link.send(&packet)?;
        }
        self.log.say(&format!("NEW SERVER {pid}: Ready"));
        *self.state() = Server::Ready { pid, link };
        self.changed.notify_all();
        Ok(())
    }

    /// A client is told to the server as soon as there is one, and waits for nothing else.
    fn pass_on(self: &Arc<Self>, client: &Seqpacket, pid: i32) -> io::Result<()> {
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // Both ends say who they are to each other.
        for end in [&pair.0, &pair.1] {
            setsockopt(end, sockopt::PassCred, &true)?;
        }
        let mut state = self.state();
        loop {
            match &*state {
                Server::Ready { link, .. } => {
                    self.log.say(&format!("NEW CLIENT {pid} from user {}: Server already exists", getuid()));
                    // The descriptor goes with the second of the two packets, and nobody else's come in between.
                    for (index, packet) in Request::NewClient.packets().iter().enumerate() {
                        if index == Request::NEW_CLIENT_DESCRIPTOR {
                            link.send_with_descriptor(packet, pair.0.as_fd())?;
                        } else {
                            link.send(packet)?;
                        }
                    }
                    break;
                }
                Server::Absent => {
                    *state = Server::Starting(self.start()?);
                }
                Server::Starting(_) => {
                    state = self.changed.wait(state).expect("nobody panics with it");
                }
            }
        }
        drop(state);
        client.send_with_descriptor(DESCRIPTOR, pair.1.as_fd())?;
        drop(pair);
        // Its status, or its end: either way the daemon is done with it.
        client.receive()?;
        Ok(())
    }

    /// Starts the server; its end is noted whenever it comes.
    fn start(self: &Arc<Self>) -> io::Result<u32> {
        let mut child = super::server().spawn()?;
        let started = child.id();
        self.log.say(&format!("Starting new server {started} for user {}", getuid()));
        let servers = Arc::clone(self);
        std::thread::spawn(move || {
            let status = child.wait().ok().and_then(|status| status.code());
            servers.log.say(&format!("Server {started} exited with status {}", status.unwrap_or_default()));
            let mut state = servers.state();
            let is_it = matches!(&*state, Server::Starting(pid) | Server::Ready { pid, .. } if *pid == started);
            if is_it {
                *state = Server::Absent;
            }
            drop(state);
            servers.changed.notify_all();
        });
        Ok(started)
    }
}
