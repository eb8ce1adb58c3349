//! How the simulated driver library tells the simulated tools device of a fatal memory fault.
//!
//! Whoever pretends to have `/dev/nvidia-uvm-tools` listens on a datagram socket `PID.tools` in the directory that
//! `MPS_SIM_UVM_DIR` names; the library sends each fault to all of them. On real hardware the kernel does this, and has
//! written every queue before any program hears of the fault: so the library waits until each listener says the same.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The variable that names the directory; without it nobody is told.
pub const DIRECTORY: &str = "MPS_SIM_UVM_DIR";
/// Ends the name of a listener's socket.
const SUFFIX: &str = "tools";
/// Bytes of an event.
const LENGTH: usize = 32;
/// How often it is looked whether the listeners that have not answered still can.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A fatal fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number of the address space.
    pub space: u64,
    /// Virtual address.
    pub address: u64,
    /// When, by [`super::uvm::event_time`].
    pub time: u64,
    /// `UvmEventFaultType`.
    pub fault_type: u8,
    /// `UvmEventMemoryAccessType`.
    pub access_type: u8,
    /// `UvmEventFatalReason`.
    pub reason: u8,
    /// Index of the processor: 0 is the CPU, then the GPUs by ordinal.
    pub processor: u16,
}

impl Event {
    fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        for (index, word) in [self.space, self.address, self.time].iter().enumerate() {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let [low, high] = self.processor.to_le_bytes();
        bytes[24..29].copy_from_slice(&[self.fault_type, self.access_type, self.reason, low, high]);
        bytes
    }

    fn decode(bytes: [u8; LENGTH]) -> Self {
        let word = |index: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[index * 8 + byte]));
        Self {
            space: word(0),
            address: word(1),
            time: word(2),
            fault_type: bytes[24],
            access_type: bytes[25],
            reason: bytes[26],
            processor: u16::from_le_bytes([bytes[27], bytes[28]]),
        }
    }

    /// Sends it to all who listen in the directory, and waits for nobody. A listener that has gone, or whose queue is
    /// full, misses it.
    ///
    /// # Errors
    /// When the directory can't be read or no socket be had.
    pub fn send(&self, directory: &Path) -> io::Result<()> {
        self.send_from(&UnixDatagram::unbound()?, directory).map(drop)
    }

    /// The same, and waits until those who got it have written their queues, however long that takes. One that is
    /// stopped gets the event later, and one that has ended never.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_and_wait(&self, directory: &Path) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("sim-{SUFFIX}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        let told = self.send_from(&socket, directory)?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(LOOK_AGAIN))?;
        let mut awaited = told;
        while !awaited.is_empty() {
            match socket.recv_from(&mut [0]) {
                Ok((_, from)) => awaited.retain(|path| from.as_pathname() != Some(path)),
                Err(_) => awaited.retain(|path| is_running(path)),
            }
        }
        Ok(())
    }

    /// Who got it.
    fn send_from(&self, socket: &UnixDatagram, directory: &Path) -> io::Result<Vec<PathBuf>> {
        socket.set_nonblocking(true)?;
        let listens = |path: &PathBuf| path.extension().is_some_and(|extension| extension == SUFFIX);
        let listeners = directory.read_dir()?.flatten().map(|entry| entry.path()).filter(listens);
        Ok(listeners.filter(|path| socket.send_to(&self.encode(), path).is_ok()).collect())
    }
}

/// Whether the process that listens at a path can answer: it lives and is not stopped.
fn is_running(path: &Path) -> bool {
    let stat = path.file_stem().and_then(|pid| std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).ok());
    // The state comes after the name, which may hold anything.
    let state = stat.as_deref().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    state.is_some_and(|state| !['T', 't', 'Z', 'X'].contains(&state))
}

/// A tools device that listens.
#[derive(Debug)]
pub struct Listener(UnixDatagram);

impl Listener {
    /// Listens in the directory, in the place of an earlier process of the same pid.
    ///
    /// # Errors
    /// The system call's.
    pub fn bind(directory: &Path) -> io::Result<Self> {
        let path = socket_of(directory, std::process::id());
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixDatagram::bind(path).map(Self)
    }

    /// Waits for the next event, has it written, and says so to who waits for that.
    ///
    /// # Errors
    /// The system call's; `InvalidData` for a datagram that is none.
    pub fn next(&self, write: impl FnOnce(&Event)) -> io::Result<()> {
        let mut bytes = [0; LENGTH];
        let (length, from) = self.0.recv_from(&mut bytes)?;
        if length != LENGTH {
            return Err(io::ErrorKind::InvalidData.into());
        }
        write(&Event::decode(bytes));
        if !from.is_unnamed() {
            // Who has gone meanwhile need not know.
            let _ = self.0.send_to_addr(&[1], &from);
        }
        Ok(())
    }
}

/// The socket of a process that listens.
#[must_use]
pub fn socket_of(directory: &Path, pid: u32) -> PathBuf {
    directory.join(pid.to_string()).with_extension(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_arrives_as_it_was_sent_and_the_absent_are_no_error() {
        let directory = std::env::temp_dir().join(format!("sim-wire-tools-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let event =
            Event { space: 1, address: 0x10, time: 3, fault_type: 2, access_type: 2, reason: 1, processor: 0x102 };
        event.send(&directory).unwrap();
        drop(UnixDatagram::bind(directory.join("1.tools")).unwrap());
        let listener = Listener::bind(&directory).unwrap();
        event.send(&directory).unwrap();
        let told = std::thread::scope(|scope| {
            let directory = &directory;
            let waits = scope.spawn(move || event.send_and_wait(directory));
            let mut told = Vec::new();
            (0..2).for_each(|_| listener.next(|event| told.push(*event)).unwrap());
            waits.join().unwrap().unwrap();
            told
        });
        assert_eq!(told, [event, event]);
        drop(Listener::bind(&directory).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
