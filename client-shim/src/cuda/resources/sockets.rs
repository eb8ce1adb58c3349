//! The names of a spare copy's sockets.
//!
//! Every copy of the driver binds the name `cuda-uvmfd-…` of the process and answers 304 where it is taken, so a spare one
//! is led to another name of the same length. And what it connects to the daemon is bound, before, to a name by which the
//! daemon knows it as the spare's ([`SpareName`]).

use std::{
    ffi::c_int,
    mem,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use remps_proto::shim::SpareName;

use super::{Lead, PLACES};
use crate::process::failpoint::reached;

/// How the name that each copy binds begins.
const PREFIX: &[u8] = b"cuda-uvmfd-";
/// Where another number stands in a spare one's, and how many digits.
const NUMBER: std::ops::Range<usize> = 7..10;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// The last part of the path at which the daemon listens for the driver.
const CONTROL: &[u8] = b"/control";

/// What a copy's sockets are called.
#[derive(Debug)]
struct Names {
    /// Of the name that it binds, 0 for its own.
    number: AtomicU32,
    /// Of the grant, 0 for none.
    token: AtomicU64,
}

static NAMES: [Names; PLACES] = [const { Names { number: AtomicU32::new(0), token: AtomicU64::new(0) } }; PLACES];

pub(super) fn name(owner: usize, token: u64) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) % (36 * 36 * 36 - 1) + 1;
    NAMES[owner].number.store(number, Ordering::Relaxed);
    NAMES[owner].token.store(token, Ordering::Release);
}

pub(super) fn unname(owner: usize) {
    NAMES[owner].token.store(0, Ordering::Release);
}

pub(super) fn forget(owner: usize) {
    unname(owner);
    NAMES[owner].number.store(0, Ordering::Relaxed);
}

/// The address that a caller gives, if it is a local one.
///
/// # Safety
/// The caller gives as many bytes as it says.
unsafe fn local(address: *const libc::sockaddr, length: libc::socklen_t) -> Option<libc::sockaddr_un> {
    let size = usize::try_from(length).ok()?;
    if address.is_null() || size <= size_of::<libc::sa_family_t>() || size > size_of::<libc::sockaddr_un>() {
        return None;
    }
    // SAFETY: zeros are an address.
    let mut copy: libc::sockaddr_un = unsafe { mem::zeroed() };
    // SAFETY: by the contract, and there is room.
    unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut copy).cast(), size) };
    (c_int::from(copy.sun_family) == libc::AF_UNIX).then_some(copy)
}

/// An address in the abstract namespace, with its length.
fn abstract_address(name: &[u8]) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    let room = address.sun_path.iter_mut().skip(1);
    room.zip(name).for_each(|(place, byte)| *place = byte.cast_signed());
    let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    (address, libc::socklen_t::try_from(length).unwrap_or_default())
}

/// Puts a number of three digits into the driver's name.
fn renumbered(address: &mut libc::sockaddr_un, number: u32) {
    let path = &mut address.sun_path;
    let is_drivers = path[0] == 0 && path[1..].iter().zip(PREFIX).all(|(byte, own)| byte.cast_unsigned() == *own);
    if !is_drivers {
        return;
    }
    let mut rest = usize::try_from(number).unwrap_or_default();
    for at in NUMBER.rev() {
        path[1 + at] = DIGITS[rest % DIGITS.len()].cast_signed();
        rest /= DIGITS.len();
    }
}

/// Whether bytes after the NUL of an abstract name are the driver's, or those of a spare copy.
pub(crate) fn is_drivers_name(name: &[u8]) -> bool {
    name.len() >= PREFIX.len() && name[..NUMBER.start] == PREFIX[..NUMBER.start] && name[NUMBER.end] == b'-'
}

unsafe extern "C" fn bind<const OWNER: usize>(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    let number = NAMES[OWNER].number.load(Ordering::Relaxed);
    // SAFETY: as the caller asks.
    let own = if number == 0 { None } else { unsafe { local(address, length) } };
    let Some(mut own) = own else {
        // SAFETY: as above.
        return unsafe { libc::bind(socket, address, length) };
    };
    renumbered(&mut own, number);
    // SAFETY: the same address with other digits.
    let failed = unsafe { libc::bind(socket, (&raw const own).cast(), length) };
    reached("spare-bound");
    failed
}

unsafe extern "C" fn connect<const OWNER: usize>(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
    let token = NAMES[OWNER].token.load(Ordering::Acquire);
    // SAFETY: as the caller asks.
    let to = if token == 0 { None } else { unsafe { local(address, length) } };
    let is_the_daemons = to.is_some_and(|to| {
        let path = to.sun_path.map(i8::cast_unsigned);
        let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
        path[..end].ends_with(CONTROL)
    });
    if is_the_daemons {
        #[cfg(debug_assertions)]
        if let Some((address, length)) = elsewhere() {
            // SAFETY: an address of our own.
            return unsafe { libc::connect(socket, (&raw const address).cast(), length) };
        }
        let name = SpareName { token, number: CONNECTIONS.fetch_add(1, Ordering::Relaxed) };
        let (own, length) = abstract_address(name.to_string().as_bytes());
        // One that has a name already, since it is connected a second time, keeps it.
        // SAFETY: an address of our own.
        let _named = unsafe { libc::bind(socket, (&raw const own).cast(), length) };
    }
    // SAFETY: as the caller asks.
    unsafe { libc::connect(socket, address, length) }
}

/// For tests with a daemon that knows no spares: the folder of another one, on whose server a spare copy stands.
#[cfg(debug_assertions)]
fn elsewhere() -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = crate::process::settings::variable(c"MPS_SHIM_TEST_SPARE")?;
    // SAFETY: zeros are an address.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    let path = folder.as_bytes().iter().chain(CONTROL);
    address.sun_path.iter_mut().zip(path).for_each(|(place, byte)| *place = byte.cast_signed());
    Some((address, libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).ok()?))
}

/// What stands in the place of which function.
pub(super) fn leads<const OWNER: usize>() -> [Lead; 2] {
    [(c"bind", bind::<OWNER> as *const std::ffi::c_void), (c"connect", connect::<OWNER> as *const std::ffi::c_void)]
}

#[cfg(test)]
mod tests {
    use super::{abstract_address, is_drivers_name, renumbered};

    #[test]
    fn a_spare_copys_name_is_as_long_and_another_one_and_still_the_drivers() {
        let name = |number| {
            let (mut address, length) = abstract_address(b"cuda-uvmfd-4026531836-17");
            renumbered(&mut address, number);
            let bytes = address.sun_path.map(i8::cast_unsigned);
            assert_eq!(usize::try_from(length).unwrap(), 2 + 1 + 24);
            String::from_utf8(bytes[1..25].to_vec()).unwrap()
        };
        assert_eq!((name(1), name(37)), ("cuda-uv001-4026531836-17".into(), "cuda-uv011-4026531836-17".into()));
        assert!(is_drivers_name(name(5).as_bytes()) && is_drivers_name(b"cuda-uvmfd-1-2"));
        assert!(!is_drivers_name(b"cuda-uvm") && !is_drivers_name(b"remps-spare-00000000000000ab-7"));
        let (mut other, _) = abstract_address(b"another-name-of-somebody");
        let before = other.sun_path;
        renumbered(&mut other, 1);
        assert_eq!(other.sun_path, before, "a name that is not the driver's stays");
    }
}
