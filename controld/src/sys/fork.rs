//! `fork` for a process that has one thread.
#![expect(unsafe_code, reason = "fork is unsafe in a process with threads; this module proves there are none")]

use std::io;

use nix::unistd::{ForkResult, Pid};

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that forked, with the pid of the other.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Forks a process that has one thread, so that the child may go on as an ordinary program.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] when the process has another thread, whose locks the child could never release;
/// else what the kernel says.
pub fn single_threaded() -> io::Result<Side> {
    let threads = std::fs::read_dir(super::proc::OWN_THREADS).map(Iterator::count);
    // Without /proc the count is unknown; the only caller runs first thing in `main`.
    if threads.is_ok_and(|count| count > 1) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the process has several threads"));
    }
    // SAFETY: there is one thread, so no lock is held by a thread that the child lacks.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Side::Parent(child)),
        ForkResult::Child => Ok(Side::Child),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_refused() {
        // The test harness runs this on a thread beside the main one; another one makes sure.
        let (ready_tx, ready_rx) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ready_rx.recv());
        assert_eq!(single_threaded().unwrap_err().kind(), io::ErrorKind::Unsupported);
        drop(ready_tx);
        other.join().unwrap().unwrap_err();
    }
}
