//! What a new server process, or a program that is run, does between fork and exec.
//!
//! Only plain system calls on numbers prepared before the fork: no allocation, no lock, and the identity calls go
//! straight to the kernel, because the C library's versions try to stop the other threads of a process that, here,
//! has none.
#![expect(unsafe_code, reason = "code between fork and exec, and the system calls it makes")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// First descriptor after standard input, output and error.
const FIRST_OTHER_FD: libc::c_uint = 3;
/// Descriptors that a server may open at most. A higher limit, as containers often have it, makes programs that walk
/// through all possible descriptors take minutes.
const MOST_OPEN_FILES: libc::rlim_t = 1 << 20;

/// User, group and supplementary groups to take on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: libc::uid_t,
    /// Group.
    pub gid: libc::gid_t,
    /// Supplementary groups, all of them.
    pub groups: Vec<libc::gid_t>,
}

/// Makes the child a clean process: its own process group, every signal at its default but one, no descriptor but the
/// standard three, as many open files as its hard limit allows, and the identity if one is given (which needs root).
pub(crate) fn prepare(command: &mut Command, identity: Option<Identity>) {
    let setup = move || {
        own_process_group()?;
        default_signals();
        close_other_descriptors();
        raise_open_files();
        identity.as_ref().map_or(Ok(()), become_identity)
    };
    // SAFETY: the closure makes only system calls that are safe between fork and exec, and neither allocates nor locks.
    unsafe { command.pre_exec(setup) };
}

/// Gives the child the signal mask of a program that nobody has changed it for: this process's own is inherited, and may
/// block signals that it reads by descriptor.
pub(crate) fn unblock_signals(command: &mut Command) {
    let unblock = || {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: writes the set.
        unsafe { libc::sigemptyset(none.as_mut_ptr()) };
        // SAFETY: the set was written, and the one before is not asked for.
        let result = unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
        check(libc::c_long::from(result))
    };
    // SAFETY: the closure makes only system calls that are safe between fork and exec, and neither allocates nor locks.
    unsafe { command.pre_exec(unblock) };
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn own_process_group() -> io::Result<()> {
    // SAFETY: two integers; no memory is touched.
    check(libc::c_long::from(unsafe { libc::setpgid(0, 0) }))
}

/// NVIDIA's server answers clients whose process has ended, and would end by SIGPIPE with all others on it (measured with
/// 580.159.04, after a misaligned access): with that one ignored it goes on.
const IGNORED: libc::c_int = libc::SIGPIPE;

fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // An ignored signal stays ignored through exec. The ones that cannot be set (KILL, STOP and the two of the C
        // library) refuse, which is as well. The signal mask is cleared by the standard library.
        // SAFETY: neither installs a handler.
        unsafe { libc::signal(signal, if signal == IGNORED { libc::SIG_IGN } else { libc::SIG_DFL }) };
    }
}

fn close_other_descriptors() {
    // Close on exec and not at once: the standard library still needs its pipe to report a failing exec. An older
    // kernel refuses; then only what was inherited from outside stays open, everything of ours closes by itself.
    // SAFETY: three integers; descriptors are marked, none is closed under anybody's feet.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER_FD, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local of the right type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(MOST_OPEN_FILES));
        // SAFETY: as above. A refusal leaves the old limit, with which the server works for fewer clients.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

fn become_identity(identity: &Identity) -> io::Result<()> {
    let Identity { uid, gid, groups } = identity;
    // SAFETY: pointer and length belong to one live vector.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: three integers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) })?;
    // SAFETY: three integers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) })
}
