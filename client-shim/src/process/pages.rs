//! Pages that several processes map: a file in memory of one page each.
//!
//! Whoever has one may write there, but nobody can make it smaller or larger: who maps it would be ended by a signal. One
//! that came from another process is mapped only if that is so. It is never unmapped, since the GPU may look there.
#![expect(unsafe_code, reason = "makes files in memory and maps them")]

use std::{
    ffi::c_int,
    io,
    os::fd::{FromRawFd as _, OwnedFd},
    ptr,
};

use super::descriptors::Held;

/// Bytes of a page.
pub(crate) const SIZE: usize = 4096;
const LENGTH: libc::off_t = 4096;

/// Of `memfd_create` and `fcntl`; the functions of newer C libraries are not asked for.
const CLOSED_AND_SEALABLE: libc::c_uint = 1 | 2;
const SEALS: c_int = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A new one, zero: its file, and where it is.
pub(crate) fn new() -> io::Result<(Held, usize)> {
    let file = Held::made(|| {
        let name = c"remps-shared-events".as_ptr();
        // SAFETY: the name is a C string.
        let made = unsafe { libc::syscall(libc::SYS_memfd_create, name, CLOSED_AND_SEALABLE) };
        let number = c_int::try_from(made).ok().filter(|number| *number >= 0);
        // SAFETY: it was just made, and nobody else has it.
        number.map(|number| unsafe { OwnedFd::from_raw_fd(number) }).ok_or_else(io::Error::last_os_error)
    })?;
    let number = numbered(&file)?;
    // SAFETY: changes a file that was just made.
    let is_sized = unsafe { libc::ftruncate(number, LENGTH) } == 0;
    // SAFETY: as above.
    if !is_sized || unsafe { libc::fcntl(number, libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let start = mapped(number)?;
    Ok((file, start))
}

/// Maps one of another process's; where it is.
pub(crate) fn map(file: &Held) -> io::Result<usize> {
    let number = numbered(file)?;
    // First: nothing else is asked of a file that some process may serve itself.
    // SAFETY: asks of a descriptor of ours.
    let seals = unsafe { libc::fcntl(number, libc::F_GET_SEALS) };
    let is_lasting =
        seals >= 0 && seals & (libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) == libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    if !is_lasting {
        return Err(not_lasting());
    }
    let mut status = std::mem::MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: the kernel writes to the structure.
    let is_known = unsafe { libc::fstat64(number, status.as_mut_ptr()) } == 0;
    // SAFETY: zeroed is a valid value, filled in or not.
    let size = unsafe { status.assume_init() }.st_size;
    if !is_known || usize::try_from(size) != Ok(SIZE) {
        return Err(not_lasting());
    }
    mapped(number)
}

fn not_lasting() -> io::Error {
    io::Error::other("what the other process gives is no page that lasts")
}

/// A new one that no other process has, zero: where it is.
pub(crate) fn private() -> io::Result<usize> {
    // Not a private mapping: after a fork one would be copied for the process that writes next, and the GPU has the first.
    mapped_as(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
}

/// Gives back one that nobody else knows of.
pub(crate) fn unmap(start: usize) {
    // SAFETY: it was mapped by `new` or `map`, and its only user does not need it.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), SIZE) };
}

fn numbered(file: &Held) -> io::Result<c_int> {
    file.number().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
}

fn mapped(number: c_int) -> io::Result<usize> {
    mapped_as(libc::MAP_SHARED, number)
}

fn mapped_as(how: c_int, number: c_int) -> io::Result<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(ptr::null_mut(), SIZE, access, how, number, 0) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start.expose_provenance()) }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::IntoRawFd as _};

    use super::{Held, LENGTH, SIZE, map, new, unmap};

    #[test]
    fn a_page_is_mapped_twice_and_stays_as_large_as_it_is() {
        let (file, first) = new().expect("a page");
        let second = map(&file).expect("the same one");
        // SAFETY: both are mapped.
        let words = [first, second].map(|start| unsafe { &mut *std::ptr::with_exposed_provenance_mut::<u64>(start) });
        assert_eq!((*words[0], *words[1]), (0, 0));
        *words[0] = 7;
        assert_eq!(*words[1], 7);
        let number = file.number().unwrap();
        // SAFETY: asks for another size, which is refused.
        assert!([0, 2 * LENGTH].iter().all(|size| unsafe { libc::ftruncate(number, *size) } != 0));
        [first, second].into_iter().for_each(unmap);
    }

    #[test]
    fn what_could_become_smaller_is_not_mapped() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[0; SIZE]).unwrap();
        let held = Held::for_the_vault(file.into_raw_fd()).unwrap();
        assert!(map(&held).is_err());
        let pipe = super::super::lifeline::own().expect("a pipe");
        assert!(map(&pipe).is_err());
    }
}
