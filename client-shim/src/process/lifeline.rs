//! Whether another process lives: a pipe of which it alone has the end for writing.
//!
//! Who is given the end for reading hears a hang-up when that process has ended, however it did, or has become another
//! program: then the kernel closes the other end. Nobody sends anything. It needs no process number, so it holds across
//! containers. A forked child closes its copy at once ([`descriptors`](super::descriptors)), so it does not stand for its
//! parent.
#![expect(unsafe_code, reason = "makes a pipe and waits for hang-ups")]

use std::{
    ffi::c_int,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, PoisonError},
};

use nix::{
    sys::eventfd::{EfdFlags, EventFd},
    unistd,
};

use super::{
    descriptors::{Held, nobody_forks},
    packets::borrowed,
};

#[derive(Debug)]
struct Ends {
    read: Held,
    /// Nobody writes there.
    write: Held,
}

/// This process's own, once somebody has asked for it.
static OWN: Mutex<Option<Ends>> = Mutex::new(None);

impl Ends {
    fn new() -> io::Result<Self> {
        let mut ends: [c_int; 2] = [-1; 2];
        let _window = nobody_forks();
        // SAFETY: there is room for two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let [read, write] = ends.map(Held::for_the_vault);
        Ok(Self { read: read.map_err(io::Error::other)?, write: write.map_err(io::Error::other)? })
    }
}

/// What others are given: a copy of the end for reading.
pub(crate) fn own() -> io::Result<Held> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let ends = match &mut *own {
        // One that the program has closed says nothing any more.
        Some(ends) if ends.read.number().is_some() && ends.write.number().is_some() => ends,
        other => other.insert(Ends::new()?),
    };
    ends.read.copy_for_the_vault().ok_or_else(|| io::Error::other("the process may have no more descriptors"))
}

/// What another process has given as its own: a pipe of which there is an end for writing.
///
/// Whatever else was given is asked nothing: a file system that a process serves itself can keep waiting whoever asks.
pub(crate) fn of_another(given: Held) -> io::Result<Held> {
    let number = given.number().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: asks of a descriptor of ours.
    let is_pipe = unsafe { libc::fcntl(number, libc::F_GETPIPE_SZ) } >= 0;
    if !is_pipe {
        return Err(io::Error::other("what the other process gives is no pipe"));
    }
    let is_over = !wait(&[number], -1, 0).is_empty();
    if is_over { Err(io::Error::other("it has ended")) } else { Ok(given) }
}

/// Something by which a thread that waits is woken.
#[derive(Debug)]
pub(crate) struct Bell(Held);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Held::made(|| EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map(OwnedFd::from))?))
    }

    /// Wakes who waits, or who waits next.
    pub(crate) fn ring(&self) {
        // One that the program has closed wakes nobody, who looks again by himself.
        let _unheard = self.0.number().map(|number| unistd::write(borrowed(number), &1_u64.to_ne_bytes()));
    }

    /// Its descriptor, still while nobody has rung again.
    pub(crate) fn quiet(&self) -> c_int {
        let number = self.0.number().unwrap_or(-1);
        if number >= 0 {
            let _was_quiet = unistd::read(borrowed(number), &mut [0; 8]);
        }
        number
    }
}

/// Waits until one of these hangs up, or `woken` can be read, for so many milliseconds, or without end below 0; which
/// ones have hung up, by their places.
pub(crate) fn wait(lifelines: &[c_int], woken: c_int, milliseconds: c_int) -> Vec<usize> {
    let look = |fd, events| libc::pollfd { fd, events, revents: 0 };
    let mut all: Vec<_> = lifelines.iter().map(|fd| look(*fd, 0)).collect();
    all.push(look(woken, libc::POLLIN));
    let count = libc::nfds_t::try_from(all.len()).unwrap_or(0);
    // SAFETY: the list has so many.
    if unsafe { libc::poll(all.as_mut_ptr(), count, milliseconds) } <= 0 {
        return Vec::new();
    }
    let is_over = |of: &libc::pollfd| of.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
    all.pop();
    all.iter().enumerate().filter(|(_, of)| is_over(of)).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::{Bell, Ends, of_another, own, wait};

    #[test]
    fn an_end_hangs_up_when_its_process_has_let_go_of_the_other() {
        let [short, long] = [(); 2].map(|()| Ends::new().expect("a pipe"));
        let [first, second] = [&short, &long].map(|ends| ends.read.copy_for_the_vault().expect("a copy"));
        let numbers = [&first, &second].map(|held| held.number().expect("it is there"));
        assert_eq!(wait(&numbers, -1, 0), [] as [usize; 0]);
        drop(short);
        assert_eq!(wait(&numbers, -1, -1), [0]);
        drop(long);
        assert_eq!(wait(&numbers, -1, -1), [0, 1]);
    }

    #[test]
    fn what_another_process_gives_is_a_pipe_that_somebody_holds() {
        let given = own().expect("a pipe");
        assert!(of_another(given).is_ok());
        let short = Ends::new().expect("a pipe");
        let left = short.read.copy_for_the_vault().expect("a copy");
        drop(short);
        assert_eq!(of_another(left).unwrap_err().to_string(), "it has ended");
        let bell = Bell::new().expect("a bell");
        assert!(of_another(bell.0).is_err(), "what is no pipe never ends");
        let folder = std::fs::File::open("/").expect("a folder");
        let folder = super::Held::for_the_vault(std::os::fd::IntoRawFd::into_raw_fd(folder)).expect("a place");
        assert!(of_another(folder).is_err());
    }

    #[test]
    fn a_bell_wakes_who_waits_until_it_is_quiet() {
        let bell = Bell::new().expect("a bell");
        bell.ring();
        let number = bell.0.number().expect("it is there");
        assert_eq!(wait(&[], number, -1), [] as [usize; 0]);
        assert_eq!(bell.quiet(), number);
        assert_eq!(wait(&[], number, 0), [] as [usize; 0]);
    }

    #[test]
    fn a_process_has_one_and_it_lasts() {
        let given = own().expect("a pipe");
        let again = own().expect("the same");
        let numbers = [&given, &again].map(|held| held.number().expect("it is there"));
        assert_eq!(wait(&numbers, -1, 0), [] as [usize; 0]);
    }
}
