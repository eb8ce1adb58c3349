//! A process that is dead and has not ended: as the kernel has one for milliseconds that closes its files, for as long as a
//! test needs.
//!
//! A thread that is traced stays until its tracer has heard of its end, and with it the process: nothing of it runs any
//! more, its files are closed, and nobody is told of its end.
#![expect(unsafe_code, reason = "traces a thread")]

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::ptr;

/// A thread of a child that is traced by the thread that has made this, which must be the one that lets it go.
#[derive(Debug)]
pub struct HalfDead {
    thread: Pid,
    // Only the thread that traces may wait.
    _here: std::marker::PhantomData<*const ()>,
}

impl HalfDead {
    /// Keeps the process from ending, whatever becomes of it, until this is dropped. It must have a second thread.
    ///
    /// # Panics
    /// When it has none, or may not be traced.
    #[must_use]
    pub fn keep(process: Pid) -> Self {
        let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it lives").flatten();
        let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        let thread = numbers.map(Pid::from_raw).find(|thread| *thread != process).expect("a second thread");
        // SAFETY: the kernel is given two numbers.
        let answer = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread.as_raw(), ptr::null_mut::<u8>(), 0_usize) };
        assert_eq!(answer, 0, "{thread} can't be traced: {}", std::io::Error::last_os_error());
        Self { thread, _here: std::marker::PhantomData }
    }
}

impl Drop for HalfDead {
    fn drop(&mut self) {
        // One that lives is let go with the tracer's own end.
        let _ = waitpid(self.thread, Some(WaitPidFlag::__WALL));
    }
}
