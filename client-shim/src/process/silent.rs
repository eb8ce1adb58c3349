//! What stands in the place of a dead driver's descriptors: a file that is never ready, whatever is written there.
//!
//! All of them are one file, and the dead copy's threads still wake each other by some: with an event counter there one
//! that was woken found its listening socket ready, too, accepted nothing, and opened pipes without end (seen with
//! 580.159.04 on an H100: 20,000 within two seconds, in two of eight programs). So it is a socket that is connected to
//! itself, with a filter that lets nothing through: what is sent is taken and thrown away. A thread that was woken just before the
//! exchange opens pipes all the same, and is stopped where it asks for them ([`resources`](crate::cuda::resources)).
//!
//! The dead copy's threads go on until they are ended, and one may close a number meanwhile, which the program gets for a
//! file of its own then. So the file has a mark by which it is known again: the signal of `F_SETSIG`, which is never sent,
//! since nobody asks for signals of it. An open file has that for itself, and its copies have it with it. Each dead copy has
//! such a file for itself, and closes that alone: a number that it has closed may be the next dead copy's.
#![expect(unsafe_code, reason = "descriptors are exchanged and closed by number")]

use std::{
    ffi::c_int,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use super::descriptors::identity_of;

/// `F_SETSIG` and `F_GETSIG` of `fcntl(2)`.
const SET_SIGNAL: c_int = 10;
const GET_SIGNAL: c_int = 11;
/// The last signal there is, which nobody sets by chance.
const MARK: c_int = 64;

/// `BPF_RET | BPF_K`: so many bytes are let through.
const RETURN: u16 = 0x06;

/// The file.
#[derive(Debug)]
pub(crate) struct Silent(OwnedFd);

impl Silent {
    /// One that is ready for nothing; `None` if the process may have no more descriptors.
    pub(crate) fn new() -> Option<Self> {
        // Who may have no sockets has the next best.
        let silent = swallowing().or_else(|| {
            // SAFETY: makes a descriptor.
            owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
        })?;
        // SAFETY: sets a number of this file's.
        let is_marked = unsafe { libc::fcntl(silent.as_raw_fd(), SET_SIGNAL, MARK) } == 0;
        is_marked.then_some(Self(silent))
    }

    /// Puts it in the place of a descriptor that is the dead copy's; `None` if it does not stand there.
    pub(crate) fn takes_the_place(&self, number: c_int) -> Option<Place> {
        let identity = identity_of(self.0.as_raw_fd())?;
        // SAFETY: by what the caller knows.
        let stands = unsafe { libc::dup3(self.0.as_raw_fd(), number, libc::O_CLOEXEC) == number };
        stands.then_some(Place { number, identity })
    }
}

/// Where such a file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    number: c_int,
    /// Which of these files: device and inode.
    identity: (u64, u64),
}

impl Place {
    /// Closes the number, if that very file is still there.
    pub(crate) fn close(self) {
        if is_in_the_place(self.number) && identity_of(self.number) == Some(self.identity) {
            // SAFETY: it is nobody's but the dead copy's.
            unsafe { libc::close(self.number) };
        }
    }
}

fn owned(number: c_int) -> Option<OwnedFd> {
    // SAFETY: the kernel has just made it for us.
    (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// A socket that takes everything and has nothing.
fn swallowing() -> Option<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: makes a descriptor.
    let socket = owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    let number = socket.as_raw_fd();
    let mut nothing = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    let (place, size) = ((&raw const filter).cast(), length_of(&filter)?);
    // SAFETY: the kernel reads the filter.
    if unsafe { libc::setsockopt(number, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, place, size) } != 0 {
        return None;
    }
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
    let (of_family, mut length) = (length_of(&address.sun_family)?, length_of(&address)?);
    let place = (&raw mut address).cast::<libc::sockaddr>();
    // With nothing behind the family the kernel chooses a name.
    // SAFETY: it reads so much.
    if unsafe { libc::bind(number, place, of_family) } != 0 {
        return None;
    }
    // SAFETY: there is room for any address.
    if unsafe { libc::getsockname(number, place, &raw mut length) } != 0 {
        return None;
    }
    // SAFETY: the kernel reads what it has just written.
    let is_connected = unsafe { libc::connect(number, place, length) } == 0;
    is_connected.then_some(socket)
}

fn length_of<T>(of: &T) -> Option<libc::socklen_t> {
    libc::socklen_t::try_from(size_of_val(of)).ok()
}

/// Whether a number is such a file.
pub(crate) fn is_in_the_place(number: c_int) -> bool {
    // SAFETY: asks for a number of the file's, whatever it is.
    unsafe { libc::fcntl(number, GET_SIGNAL) == MARK }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd as _};

    use super::Silent;

    fn is_open(number: i32) -> bool {
        // SAFETY: asks for flags.
        unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
    }

    #[test]
    fn what_stands_in_a_place_is_closed_and_a_file_that_has_got_the_number_is_not() {
        let silent = Silent::new().expect("a descriptor");
        let (first, second) = (File::open("/").expect("a file"), File::open("/").expect("a file"));
        let numbers = [first.as_raw_fd(), second.as_raw_fd()];
        let place = silent.takes_the_place(numbers[0]).expect("it stands there");
        // It is closed already.
        std::mem::forget(first);
        place.close();
        assert!(!is_open(numbers[0]) && is_open(numbers[1]));
        // SAFETY: two numbers of this test's.
        assert_eq!(unsafe { libc::dup2(numbers[1], numbers[0]) }, numbers[0]);
        place.close();
        assert!(is_open(numbers[0]), "it is a file of the program's");
        // What has closed its number itself is no longer there, and another dead copy has the number.
        let other = Silent::new().expect("a descriptor").takes_the_place(numbers[0]).expect("it stands there");
        place.close();
        assert!(is_open(numbers[0]), "it is another one's");
        other.close();
        assert!(!is_open(numbers[0]));
    }

    #[test]
    fn what_is_written_is_taken_and_makes_nothing_ready() {
        let silent = Silent::new().expect("a descriptor");
        let files = [File::open("/").expect("a file"), File::open("/").expect("a file")];
        for file in &files {
            assert!(silent.takes_the_place(file.as_raw_fd()).is_some());
        }
        let one = 1_u64.to_ne_bytes();
        for round in 0..100_000 {
            let (into, other) = (files[round % 2].as_raw_fd(), files[(round + 1) % 2].as_raw_fd());
            // SAFETY: writes eight bytes.
            assert_eq!(unsafe { libc::write(into, one.as_ptr().cast(), one.len()) }, 8);
            if round % 1000 == 0 {
                let mut asked = [into, other].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
                // SAFETY: two structures.
                assert_eq!(unsafe { libc::poll(asked.as_mut_ptr(), 2, 0) }, 0);
                let mut read = [0_u8; 8];
                // SAFETY: there is room for eight bytes.
                assert_eq!(unsafe { libc::read(other, read.as_mut_ptr().cast(), 8) }, -1);
                assert_eq!(std::io::Error::last_os_error().kind(), std::io::ErrorKind::WouldBlock);
            }
        }
    }
}
