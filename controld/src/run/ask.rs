//! What the wrapper asks at the preload library's door. Without a daemon, or with one that does not know, nothing is
//! learnt.

use crate::io::listener_owner::may_be_the_daemon;
use crate::io::packets::{receive, send};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use remps_proto::shim::{
    Answer, Ask, Capabilities, Failure, FromShim, MAX_MESSAGE_BYTES, SOCKET_NAME, ServerState, ToShim, VERSION,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the daemon may take to notice a program's end and to hear how its server is.
const NOTICE: Duration = Duration::from_secs(2);
/// Between two questions whether it has.
const EVERY: Duration = Duration::from_millis(20);
/// Addresses of all GPUs, those of a lane of each, and behind them those that programs reserve themselves, lane by lane:
/// `client-shim/src/kept/memory/arena.rs` chooses them.
const ADDRESSES: u64 = 0x1100_0000_0000;
const ADDRESSES_OF_A_LANE: u64 = 1 << 40;
const PROGRAMS_ADDRESSES: u64 = 0x4900_0000_0000;
const PROGRAMS_ADDRESSES_OF_A_LANE: u64 = 1 << 41;
const LANES: u64 = 4;

struct Door {
    socket: OwnedFd,
    requests: u64,
}

impl Door {
    fn open(pipe_dir: &Path) -> Option<Self> {
        let address = UnixAddr::new(&pipe_dir.join(SOCKET_NAME)).ok()?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).ok()?;
        connect(socket.as_raw_fd(), &address).ok()?;
        if !may_be_the_daemon(&socket, pipe_dir) {
            return None;
        }
        let mut door = Self { socket, requests: 0 };
        let hello = Ask::Hello { version: VERSION, capabilities: Capabilities::STATE };
        let Answer::Welcome(welcome) = door.ask(hello)?.pop()? else { return None };
        welcome.capabilities.has(Capabilities::STATE).then_some(door)
    }

    fn ask(&mut self, ask: Ask) -> Option<Vec<Answer>> {
        self.requests += 1;
        let packet = FromShim { request: self.requests, ask }.encode().ok()?;
        send(self.socket.as_fd(), &packet, &[]).ok()?;
        let (mut all, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if poll(&mut polled, timeout).is_ok_and(|ready| ready == 0) {
                return None;
            }
            let mut buffer = vec![0; MAX_MESSAGE_BYTES];
            let got = match receive(self.socket.as_fd(), &mut buffer) {
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
                got => got.ok().filter(|got| got.bytes > 0)?,
            };
            let ToShim { request, answer } = ToShim::decode(&buffer[..got.bytes]).ok()?;
            if request != self.requests {
                return None;
            }
            let is_last = answer.is_last();
            all.push(answer);
            if is_last {
                return Some(all);
            }
        }
    }
}

/// Whether the server of a process that has ended had met a fault.
pub(super) fn was_tainted(pipe_dir: &Path, pid: u32) -> bool {
    let deadline = Instant::now() + NOTICE;
    let Some(mut door) = Door::open(pipe_dir) else { return false };
    while let Some(answer) = door.ask(Ask::Fate { pid }).and_then(|mut all| all.pop()) {
        if answer != Answer::Failed(Failure::NOT_YET) || Instant::now() >= deadline {
            return matches!(answer, Answer::Epoch { state: ServerState::TAINTED, .. });
        }
        let _nothing = poll(&mut [], PollTimeout::try_from(EVERY).unwrap_or(PollTimeout::ZERO));
    }
    false
}

/// The lane that memory at this address was allocated in.
fn lane_of(address: u64) -> Option<u64> {
    let programs = address.checked_sub(PROGRAMS_ADDRESSES).map(|inside| inside / PROGRAMS_ADDRESSES_OF_A_LANE);
    let lane = programs.or_else(|| Some(address.checked_sub(ADDRESSES)? / ADDRESSES_OF_A_LANE % LANES));
    lane.filter(|lane| *lane < LANES)
}

/// A lane for a standby, in which the name has no memory; the library has as many.
pub(super) fn free_lane(pipe_dir: &Path, name: &str) -> u32 {
    let told = Door::open(pipe_dir).and_then(|mut door| door.ask(Ask::List { name: name.to_owned() }));
    let lanes: Vec<u64> = told
        .unwrap_or_default()
        .into_iter()
        .filter_map(|answer| {
            let Answer::Region(region) = answer else { return None };
            lane_of(region.address)
        })
        .collect();
    let free = (1..LANES).find(|lane| !lanes.contains(lane)).unwrap_or(1);
    u32::try_from(free).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::lane_of;

    #[test]
    fn the_lane_of_memory_is_told_by_its_address() {
        let tebibyte = 1 << 40;
        for (address, lane) in [
            (0x1100_0000_0000, Some(0)),
            (0x1100_0000_0000 + tebibyte - 1, Some(0)),
            (0x1100_0000_0000 + tebibyte, Some(1)),
            (0x1100_0000_0000 + 7 * tebibyte, Some(3)),
            (0x4900_0000_0000, Some(0)),
            (0x4900_0000_0000 + 3 * tebibyte, Some(1)),
            (0x5100_0000_0000 - 1, Some(3)),
            (0x5100_0000_0000, None),
            (0x7f00_0000_0000, None),
            (0, None),
        ] {
            assert_eq!(lane_of(address), lane, "{address:#x}");
        }
    }
}
