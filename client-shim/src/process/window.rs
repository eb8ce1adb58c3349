//! Moments in which a descriptor of this library's is open and in no list yet, or no longer: nobody forks in them.
//!
//! A forked child closes what is in the list of [`descriptors`](super::descriptors). Between the system call that makes a
//! descriptor and its place there a child would get it and keep it. So whoever makes, moves or closes one does it in a
//! window, and a thread that forks waits until there is none.
//!
//! A window is some system calls that wait for nothing: no lock is taken in one, the driver is not called, nobody is
//! connected to. A thread that has one may begin another one, which ends with the first: a signal's handler that forks in
//! a window does not wait for itself. A child that another thread's window was copied into, since it was not forked by
//! `fork`, takes it for over after [`PATIENCE`].
#![expect(unsafe_code, reason = "asks for the thread's number and pauses")]

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicI32, Ordering},
    time::{Duration, Instant},
};

/// How long a window may last.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two looks, in nanoseconds.
const PAUSE: i64 = 50_000;
const NOBODY: c_int = 0;

/// The thread that has the window.
static HOLDER: AtomicI32 = AtomicI32::new(NOBODY);
/// The same, if it has it to fork.
static FORKING: AtomicI32 = AtomicI32::new(NOBODY);

/// As long as this lives, no other thread forks.
#[derive(Debug)]
pub(crate) struct Window {
    /// Nobody in one that lies in another one.
    holder: c_int,
}

/// Begins one, as soon as no other thread has one.
pub(crate) fn begin() -> Window {
    // SAFETY: asks for this thread's number.
    let own = c_int::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(NOBODY);
    let mut until = None;
    loop {
        match HOLDER.compare_exchange(NOBODY, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Window { holder: own },
            Err(holder) if holder == own => return Window { holder: NOBODY },
            Err(holder) => {
                let is_over = *until.get_or_insert_with(|| Instant::now() + PATIENCE) <= Instant::now();
                if is_over && HOLDER.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Window { holder: own };
                }
            }
        }
        pause();
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.holder != NOBODY {
            // Not one that was taken for over.
            let _another = HOLDER.compare_exchange(self.holder, NOBODY, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// Gives way to other threads, whatever their priority.
fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: PAUSE };
    // SAFETY: the time is there; an interrupted pause is a shorter one.
    unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
}

/// Before a fork. All three may be called more than once for it.
pub(super) extern "C" fn before_a_fork() {
    let window = begin();
    if window.holder != NOBODY {
        FORKING.store(window.holder, Ordering::Relaxed);
        // It ends after the fork.
        std::mem::forget(window);
    }
}

/// After a fork, in the process that has forked.
pub(super) extern "C" fn after_a_fork() {
    // SAFETY: asks for this thread's number.
    let own = c_int::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(NOBODY);
    if own != NOBODY && FORKING.compare_exchange(own, NOBODY, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        drop(Window { holder: own });
    }
}

/// After a fork, in the child: its one thread has another number than in its parent.
pub(super) fn in_a_child() {
    drop(Window { holder: FORKING.swap(NOBODY, Ordering::Relaxed) });
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread};

    use super::{NOBODY, begin};

    #[test]
    fn a_window_in_a_window_ends_with_it_and_keeps_others_out_until_then() {
        let first = begin();
        let second = begin();
        assert!(first.holder != NOBODY && second.holder == NOBODY);
        drop(second);
        let (tell, told) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _later = begin();
                tell.send("the other thread").expect("somebody listens");
            });
            // Whoever is let in too early says so first, or is not seen: the other way round it never fails.
            (0..10).for_each(|_| super::pause());
            tell.send("this thread").expect("somebody listens");
            drop(first);
        });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), ["this thread", "the other thread"]);
    }

    #[test]
    fn what_a_thread_has_left_behind_is_over_after_a_while() {
        thread::spawn(|| std::mem::forget(begin())).join().expect("it does not panic");
        assert_ne!(begin().holder, NOBODY);
    }
}
