//! What stands in the place of a dead driver's descriptors: a file that is never ready.
//!
//! The dead copy's threads go on until they are ended, and one may close a number meanwhile, which the program gets for a
//! file of its own then. So the file has a mark by which it is known again: the signal of `F_SETSIG`, which is never sent,
//! since nobody asks for signals of it. An open file has that for itself, and its copies have it with it.
#![expect(unsafe_code, reason = "descriptors are exchanged and closed by number")]

use std::{
    ffi::c_int,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// `F_SETSIG` and `F_GETSIG` of `fcntl(2)`.
const SET_SIGNAL: c_int = 10;
const GET_SIGNAL: c_int = 11;
/// The last signal there is, which nobody sets by chance.
const MARK: c_int = 64;

/// The file.
#[derive(Debug)]
pub(crate) struct Silent(OwnedFd);

impl Silent {
    /// One that is ready for nothing; `None` if the process may have no more descriptors.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: makes a descriptor.
        let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if number < 0 {
            return None;
        }
        // SAFETY: the kernel has just made it for us.
        let silent = unsafe { OwnedFd::from_raw_fd(number) };
        // SAFETY: sets a number of this file's.
        let is_marked = unsafe { libc::fcntl(number, SET_SIGNAL, MARK) } == 0;
        is_marked.then_some(Self(silent))
    }

    /// Puts it in the place of a descriptor that is the dead copy's; whether it stands there.
    pub(crate) fn takes_the_place(&self, number: c_int) -> bool {
        // SAFETY: by what the caller knows.
        unsafe { libc::dup3(self.0.as_raw_fd(), number, libc::O_CLOEXEC) == number }
    }
}

/// Closes a number, if such a file is still there.
pub(crate) fn close(number: c_int) {
    // SAFETY: asks for a number of the file's, whatever it is.
    if unsafe { libc::fcntl(number, GET_SIGNAL) } == MARK {
        // SAFETY: it is nobody's but the dead copy's.
        unsafe { libc::close(number) };
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd as _};

    use super::{Silent, close};

    fn is_open(number: i32) -> bool {
        // SAFETY: asks for flags.
        unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
    }

    #[test]
    fn what_stands_in_a_place_is_closed_and_a_file_that_has_got_the_number_is_not() {
        let silent = Silent::new().expect("a descriptor");
        let (first, second) = (File::open("/").expect("a file"), File::open("/").expect("a file"));
        let numbers = [first.as_raw_fd(), second.as_raw_fd()];
        assert!(silent.takes_the_place(numbers[0]));
        close(numbers[0]);
        close(numbers[1]);
        assert!(!is_open(numbers[0]) && is_open(numbers[1]));
        // It is closed already.
        std::mem::forget(first);
    }
}
