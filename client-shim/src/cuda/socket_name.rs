//! The driver's socket `cuda-uvmfd-…`, of which a process can have one.
//!
//! Each copy of the driver binds it in `cuInit` and answers 304 if the name is taken. The dead copy has a thread that
//! waits on its own. So another file is put in that descriptor's place: a pipe that can be read, so that the thread,
//! woken by one last connection, finds nothing to accept; once it sleeps again on the pipe the name is free, and the
//! pipe is emptied (`recovery-findings` 4). A spare copy has bound another name of that kind.
#![expect(unsafe_code, reason = "a descriptor of the driver's is exchanged by number")]

use std::{
    ffi::c_int,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use super::resources::is_drivers_name;
use crate::process::descriptors::{Held, identity_of};

/// How long it may take to become free.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const EVERY: Duration = Duration::from_micros(100);

/// An abstract address with its length.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    address: libc::sockaddr_un,
    length: libc::socklen_t,
}

/// The name that a descriptor is bound to, if it is the driver's.
pub(crate) fn of(number: c_int) -> Option<Name> {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).ok()?;
    // SAFETY: there is room for as much as is said.
    if unsafe { libc::getsockname(number, (&raw mut address).cast(), &raw mut length) } != 0 {
        return None;
    }
    let bytes = address.sun_path.map(i8::cast_unsigned);
    let is_drivers = c_int::from(address.sun_family) == libc::AF_UNIX && bytes[0] == 0 && is_drivers_name(&bytes[1..]);
    is_drivers.then_some(Name { address, length })
}

/// A listener that is a pipe now.
#[derive(Debug)]
pub(crate) struct Exchanged {
    /// Its number.
    listener: c_int,
    /// The pipe: device and inode.
    identity: (u64, u64),
    /// The pipe's other end. As long as it is open the dead copy's thread sleeps on the pipe.
    _writer: File,
}

impl Exchanged {
    /// The listener's number, if nothing else has it by now.
    pub(crate) fn number(&self) -> Option<c_int> {
        (identity_of(self.listener) == Some(self.identity)).then_some(self.listener)
    }
}

/// Frees the name, if this process has it.
///
/// # Errors
/// The system's, or a name that does not become free.
pub(crate) fn free() -> io::Result<Vec<Exchanged>> {
    let all = fs::read_dir("/proc/self/fd")?.flatten();
    free_of(all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Frees the names that any of these descriptors has.
///
/// # Errors
/// As of [`free`].
pub(crate) fn free_of(numbers: Vec<c_int>) -> io::Result<Vec<Exchanged>> {
    let mut exchanged = Vec::new();
    for number in numbers {
        if let Some(name) = of(number) {
            exchanged.push(exchange(number, name)?);
        }
    }
    Ok(exchanged)
}

fn exchange(listener: c_int, name: Name) -> io::Result<Exchanged> {
    let kind = super::belongings::option(listener, libc::SO_TYPE).unwrap_or(libc::SOCK_SEQPACKET);
    let mut ends = [0; 2];
    checked(
        // SAFETY: there is room for two.
        unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) },
    )?;
    // SAFETY: the kernel has just made them for us.
    let mut reader = unsafe { File::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let mut writer = unsafe { File::from_raw_fd(ends[1]) };
    writer.write_all(&[0])?;
    // A socket made before: its connection wakes whoever waits on the old listener.
    let waker = socket(kind)?;
    let number = waker.number().ok_or(io::ErrorKind::NotFound)?;
    checked(
        // SAFETY: the listener is the dead driver's, and both are open.
        unsafe { libc::dup3(reader.as_raw_fd(), listener, libc::O_CLOEXEC) },
    )?;
    super::belongings::is_exchanged(listener);
    let identity = identity_of(listener).ok_or(io::ErrorKind::NotFound)?;
    // Refused if nobody waited: then the name is free already.
    // SAFETY: the address is as long as the kernel has said.
    let _refused = unsafe { libc::connect(number, (&raw const name.address).cast(), name.length) };
    drop(waker);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let probe = socket(kind)?;
        let number = probe.number().ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: as above.
        if unsafe { libc::bind(number, (&raw const name.address).cast(), name.length) } == 0 {
            break;
        }
        if Instant::now() > deadline {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        thread::park_timeout(EVERY);
    }
    // Emptied, it lets the old thread sleep.
    let _empty = reader.read(&mut [0; 8]);
    Ok(Exchanged { listener, identity, _writer: writer })
}

/// A socket that no forked child has: a child would keep the name as long as it lives.
fn socket(kind: c_int) -> io::Result<Held> {
    Held::made(|| {
        // SAFETY: makes a socket.
        let number = unsafe { libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        checked(number)?;
        // SAFETY: the kernel has just made it for us.
        Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(number) })
    })
}

fn checked(answer: c_int) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::{
        os::{
            fd::AsRawFd as _,
            linux::net::SocketAddrExt as _,
            unix::net::{SocketAddr, UnixListener},
        },
        thread,
    };

    use super::{free, of};

    #[test]
    fn a_name_that_a_thread_waits_on_becomes_free() {
        let name = format!("cuda-uvmfd-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        assert!(of(listener.as_raw_fd()).is_some());
        let number = listener.as_raw_fd();
        let waiter = thread::spawn(move || {
            // The last connection, or what is left of it.
            let _connection = listener.accept();
            std::mem::forget(listener);
        });
        let exchanged = free().unwrap();
        assert_eq!(exchanged.iter().map(|of| of.listener).collect::<Vec<_>>(), [number]);
        waiter.join().unwrap();
        assert!(of(number).is_none());
        drop(UnixListener::bind_addr(&address).expect("it is free"));
        assert!(free().unwrap().is_empty());
    }
}
