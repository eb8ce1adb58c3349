//! From the first connection to the moment the server is ready.

use super::behaviour::{Behaviour, Hang, hang};
use super::event_loop::Server;
use super::log::Log;
use super::{Failure, system};
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::getuid;
use remps_proto::mps::handshake::{CREDENTIALS, GREETING, Role, expect_fixed};
use remps_proto::mps::server::{Configuration, Hello};
use sim_wire::seqpacket::Seqpacket;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects, initialises and takes its configuration.
pub(super) fn start(directory: &Path, behaviour: Behaviour, log: Log) -> Result<Server, Failure> {
    log.say("Startup");
    if behaviour.hang == Some(Hang::Start) {
        hang();
    }
    let path = directory.join("control");
    log.say(format!("Connecting to control daemon on socket: {}", path.display()));
    let control = Seqpacket::connect(&path).map_err(system("connect to the daemon"))?;
    expect_fixed("greeting", &receive(&control)?, GREETING)?;
    control.send_with_credentials(CREDENTIALS).map_err(system("send credentials"))?;
    log.say("Initializing server process");
    if behaviour.hang == Some(Hang::Role) {
        hang();
    }
    initialise(&control, behaviour.initialisation)?;
    if let Some(gate) = &behaviour.gate {
        wait_at(&control, gate)?;
    }

    let shared_memory = format!("mps.shm.{}.{}", getuid(), std::process::id());
    log.is_server();
    for device in &behaviour.devices {
        log.say(format!("Creating server context on device {} ({})", device.ordinal, device.name));
    }
    log.say(format!("Created anonymous shared memory region {shared_memory}"));
    log.say(format!("CUDA MPS Server for Linux/Unix. Binary version: {}", behaviour.binary_version));
    control.send(&Role::SERVER.encode()).map_err(system("send the role"))?;
    if behaviour.hang == Some(Hang::Hello) {
        hang();
    }
    control.send(&Hello { shared_memory, flags: 0 }.encode()).map_err(system("send the hello"))?;
    log.say(format!("Display Driver version: {}", behaviour.driver_version));

    let configuration = Configuration::decode(|| receive(&control))?;
    log.say(format!("Active Threads Percentage set to {:.1}", configuration.thread_percentage));
    for (device, bytes) in &configuration.pinned_limits {
        log.say(format!("Device pinned memory limit for device {} set to {bytes:#x} bytes", device.as_str()));
    }
    log.say(format!("Server Priority set to {}", configuration.priority));
    log.say("Server has started");
    Server::new(control, behaviour, log, &configuration)
}

fn receive(control: &Seqpacket) -> Result<Vec<u8>, Failure> {
    let packet = control.receive().map_err(system("receive from the daemon"))?;
    if packet.bytes.is_empty() { Err(Failure::Closed) } else { Ok(packet.bytes) }
}

/// Waits until somebody has opened a FIFO for writing, or the daemon goes away.
fn wait_at(control: &Seqpacket, gate: &Path) -> Result<(), Failure> {
    let gate = open(gate, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(system("open the gate"))?;
    loop {
        let mut set = [PollFd::new(control.as_fd(), PollFlags::empty()), PollFd::new(gate.as_fd(), PollFlags::POLLIN)];
        match poll(&mut set, PollTimeout::NONE) {
            Ok(_) if set[0].any() == Some(true) => return Err(Failure::Closed),
            // There is an end only after a writer.
            Ok(_) if set[1].any() == Some(true) => return Ok(()),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(Failure::System { what: "wait", errno }),
        }
    }
}

/// Takes as long as initialising CUDA would, and ends early only when the daemon goes away.
fn initialise(control: &Seqpacket, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // Rounded up, or the last fraction of a millisecond would be spent spinning.
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        let mut set = [PollFd::new(control.as_fd(), PollFlags::empty())];
        match poll(&mut set, timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Err(Failure::Closed),
            Err(errno) => return Err(Failure::System { what: "wait", errno }),
        }
    }
}
