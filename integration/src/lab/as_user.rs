//! Something that a test does as another user.
#![expect(unsafe_code, reason = "only the system call itself changes the user of one thread")]

use std::thread;

/// Does it on a thread that is this user's, by its effective number; the process needs root's rights.
///
/// # Panics
/// When the thread cannot become that user.
pub fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    const AS_IT_IS: libc::uid_t = libc::uid_t::MAX;
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: three numbers; the C library's function would change all threads.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, AS_IT_IS, uid, AS_IT_IS) };
            assert_eq!(changed, 0, "{}", std::io::Error::last_os_error());
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
