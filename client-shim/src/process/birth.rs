//! When threads began, in ticks of the kernel since the machine started: coarse, and the same clock for all of them.
#![expect(unsafe_code, reason = "asks the kernel for its clock")]

use std::{fs, mem::MaybeUninit};

/// The field of `/proc/…/stat` with the time at which a thread began, behind the name in brackets.
const STARTED: usize = 19;

/// Now.
pub(crate) fn now() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: fills the structure, or fails.
    if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, time.as_mut_ptr()) } != 0 {
        return u64::MAX;
    }
    // SAFETY: it has just been filled.
    let time = unsafe { time.assume_init() };
    // SAFETY: asks for a constant of the system.
    let ticks = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100);
    let part = u64::try_from(time.tv_nsec).unwrap_or(0) * ticks / 1_000_000_000;
    u64::try_from(time.tv_sec).unwrap_or(0) * ticks + part
}

/// When this thread began; 0 if the kernel does not say.
pub(crate) fn of_this_thread() -> u64 {
    // SAFETY: asks for a number.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    started(&text).unwrap_or(0)
}

fn started(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(STARTED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{now, of_this_thread, started};

    #[test]
    fn a_thread_began_after_whatever_was_before_it_and_not_later_than_now() {
        let before = now();
        let (born, then) = std::thread::spawn(|| (of_this_thread(), now())).join().unwrap();
        assert!(before > 0 && (before..=then).contains(&born), "{before} {born} {then}");
        assert_eq!(started("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20"), Some(4242));
        assert_eq!(started(""), None);
    }
}
