//! The C library's allocator, told to stay small.
//!
//! glibc gives threads arenas of their own, up to eight for each core, and each keeps what was freed in it for later. The
//! daemon's threads are short-lived and do little; with an arena each they cost more than all that the daemon remembers,
//! and the more the more cores a machine has.
#![expect(unsafe_code, reason = "mallopt has no safe wrapper")]

/// Arenas of the whole process.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 1;

/// Makes all threads share one arena. To be called before there are threads; a C library without the setting needs none.
pub(crate) fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: two integers; it returns 0 for a setting that it does not have, and then everything is as before.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
}
