//! The process's own memory by addresses that may be none: looked at by a system call, which says so where there is
//! nothing, in place of an access that would end the program.
#![expect(unsafe_code, reason = "system calls that take addresses")]

use std::{ffi::c_void, io, ptr};

/// Addresses below are never mapped, and those above are the kernel's.
const LOWEST: u64 = 1 << 16;
const HIGHEST: u64 = 1 << 47;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

fn own_pid() -> libc::pid_t {
    // SAFETY: asks for a number.
    unsafe { libc::getpid() }
}

fn piece(address: u64, words: usize) -> libc::iovec {
    let start = usize::try_from(address).unwrap_or_default();
    libc::iovec { iov_base: ptr::with_exposed_provenance_mut::<c_void>(start), iov_len: words * WORD }
}

/// Reads words from an address on; how many there were before the mapping's end, 0 where there is none.
///
/// # Errors
/// The system's, if it lets nobody look at all.
pub(crate) fn read(address: u64, words: &mut [u64]) -> io::Result<usize> {
    if !(LOWEST..HIGHEST).contains(&address) {
        return Ok(0);
    }
    let own = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(words) };
    let there = piece(address, words.len());
    // SAFETY: writes into `words`, as many bytes as it has at most.
    let read = unsafe { libc::process_vm_readv(own_pid(), &raw const own, 1, &raw const there, 1, 0) };
    outcome(read)
}

/// The bytes at an address, if all of them are there and the system lets us look.
pub(crate) fn bytes(address: u64, length: usize) -> Option<Vec<u8>> {
    let end = address.checked_add(u64::try_from(length).ok()?)?;
    if address < LOWEST || end > HIGHEST {
        return None;
    }
    let mut found = vec![0_u8; length];
    let own = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: length };
    let there = libc::iovec { iov_len: length, ..piece(address, 0) };
    // SAFETY: writes into `found`, as many bytes as it has at most.
    let read = unsafe { libc::process_vm_readv(own_pid(), &raw const own, 1, &raw const there, 1, 0) };
    (usize::try_from(read) == Ok(length)).then_some(found)
}

/// Writes a word of this process; whether it is there now.
pub(crate) fn write(address: u64, word: u64) -> bool {
    let own = libc::iovec { iov_base: ptr::from_ref(&word).cast_mut().cast(), iov_len: WORD };
    let there = piece(address, 1);
    // SAFETY: the caller says that the word may be changed; where it cannot, nothing is.
    let written = unsafe { libc::process_vm_writev(own_pid(), &raw const own, 1, &raw const there, 1, 0) };
    matches!(outcome(written), Ok(1))
}

/// Words that were moved.
fn outcome(bytes: isize) -> io::Result<usize> {
    match usize::try_from(bytes) {
        Ok(bytes) => Ok(bytes / WORD),
        Err(_) => {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::EFAULT) { Ok(0) } else { Err(error) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, read, write};

    #[test]
    fn what_is_mapped_is_read_and_what_is_not_is_said() {
        let words = [1_u64, 2, 3];
        let address = words.as_ptr().expose_provenance() as u64;
        let mut found = [0; 3];
        assert_eq!((read(address, &mut found).unwrap(), found), (3, words));
        assert_eq!(read(8, &mut found).unwrap(), 0);
        assert_eq!(read(0x7fff_ffff_f000, &mut found).unwrap(), 0, "nothing is mapped at the end of the addresses");
        assert_eq!(read(u64::MAX - 64, &mut found).unwrap(), 0);
    }

    #[test]
    fn bytes_are_read_whole_or_not_at_all() {
        let text = *b"thirteen long";
        let address = text.as_ptr().expose_provenance() as u64;
        assert_eq!(bytes(address, text.len()).as_deref(), Some(&text[..]));
        assert_eq!(bytes(address, 0).as_deref(), Some(&[][..]));
        assert_eq!(bytes(8, 4), None);
        assert_eq!(bytes(0x7fff_ffff_e000, 0x1000), None, "nothing is mapped at the end of the addresses");
        assert_eq!(bytes(u64::MAX - 4, 16), None);
    }

    #[test]
    fn a_word_is_written_where_that_is_allowed() {
        let mut word = 7_u64;
        assert!(write((&raw mut word).expose_provenance() as u64, 8));
        assert_eq!(word, 8);
        assert!(!write((read as *const ()).expose_provenance() as u64, 8), "code");
    }
}
