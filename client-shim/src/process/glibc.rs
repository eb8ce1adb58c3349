//! The floor of glibc 2.17: functions of libc under their oldest version.
//!
//! Built on a machine with a newer glibc, the library would ask for `dlopen@GLIBC_2.34` and the like and could not be
//! loaded into a container with an older one. Each function below is a hidden symbol of ours that jumps to the oldest
//! version, which every glibc for x86-64 still has. A jump, and not a call, because the functions of the
//! loader look at the address they were called from. The first list serves this library, the second one std, whose
//! references resolve to a symbol of the same name here before they reach libc; for `pthread_create` that is the one that
//! programs reach (`hooks::threads`). What std refers to weakly is handled in
//! `build.rs`; the test `nothing_newer_than_glibc_2_17_is_asked_for` keeps all of it true.
#![expect(unsafe_code, reason = "declares functions of libc, and names them for the assembler")]

use std::ffi::{c_char, c_int, c_void};

/// Emits the hidden symbol `$ours` that jumps to `$theirs@$version`.
macro_rules! under_oldest_version {
    ($($ours:literal => $theirs:literal @ $version:literal;)+) => {
        $(
            std::arch::global_asm!(
                concat!(".symver mps_shim_oldest_", $theirs, ", ", $theirs, "@", $version),
                concat!(".pushsection .text.", $ours, ",\"ax\",@progbits"),
                concat!(".globl ", $ours),
                concat!(".hidden ", $ours),
                concat!(".type ", $ours, ", @function"),
                concat!($ours, ":"),
                concat!("jmp *mps_shim_oldest_", $theirs, "@GOTPCREL(%rip)"),
                concat!(".size ", $ours, ", . - ", $ours),
                ".popsection",
                options(att_syntax)
            );
        )+
    };
}

under_oldest_version! {
    "mps_shim_dlclose" => "dlclose" @ "GLIBC_2.2.5";
    "mps_shim_dladdr" => "dladdr" @ "GLIBC_2.2.5";
    "mps_shim_dlinfo" => "dlinfo" @ "GLIBC_2.3.3";
    "mps_shim_dlopen" => "dlopen" @ "GLIBC_2.2.5";
    "mps_shim_dlvsym" => "dlvsym" @ "GLIBC_2.2.5";
    "mps_shim_pthread_attr_getdetachstate" => "pthread_attr_getdetachstate" @ "GLIBC_2.2.5";
    "mps_shim_pthread_create" => "pthread_create" @ "GLIBC_2.2.5";
    "mps_shim_pthread_detach" => "pthread_detach" @ "GLIBC_2.2.5";
    "mps_shim_pthread_join" => "pthread_join" @ "GLIBC_2.2.5";
    "mps_shim_pthread_key_create" => "pthread_key_create" @ "GLIBC_2.2.5";
    "mps_shim_pthread_key_delete" => "pthread_key_delete" @ "GLIBC_2.2.5";
}

// The unit tests run on the machine they were built on, and std's own references serve them as they are.
#[cfg(not(test))]
under_oldest_version! {
    "dlerror" => "dlerror" @ "GLIBC_2.2.5";
    "pthread_attr_getguardsize" => "pthread_attr_getguardsize" @ "GLIBC_2.2.5";
    "pthread_attr_getstack" => "pthread_attr_getstack" @ "GLIBC_2.2.5";
    "pthread_attr_setstacksize" => "pthread_attr_setstacksize" @ "GLIBC_2.2.5";
    "pthread_detach" => "pthread_detach" @ "GLIBC_2.2.5";
    "pthread_getattr_np" => "pthread_getattr_np" @ "GLIBC_2.2.5";
    "pthread_key_create" => "pthread_key_create" @ "GLIBC_2.2.5";
    "pthread_key_delete" => "pthread_key_delete" @ "GLIBC_2.2.5";
    "pthread_setname_np" => "pthread_setname_np" @ "GLIBC_2.12";
    "pthread_setspecific" => "pthread_setspecific" @ "GLIBC_2.2.5";
}

// Before glibc 2.33 `stat64` and `fstat64` were no symbols of the shared library but two lines of a static one, around
// these functions, which take the version of the structure first. std uses them when it prints a backtrace.
#[cfg(not(test))]
std::arch::global_asm!(
    ".symver mps_shim_oldest_xstat64, __xstat64@GLIBC_2.2.5",
    ".symver mps_shim_oldest_fxstat64, __fxstat64@GLIBC_2.2.5",
    ".pushsection .text.mps_shim_stat64,\"ax\",@progbits",
    ".globl stat64",
    ".hidden stat64",
    ".type stat64, @function",
    "stat64:",
    "movq %rsi, %rdx",
    "movq %rdi, %rsi",
    "movl $1, %edi",
    "jmp *mps_shim_oldest_xstat64@GOTPCREL(%rip)",
    ".size stat64, . - stat64",
    ".globl fstat64",
    ".hidden fstat64",
    ".type fstat64, @function",
    "fstat64:",
    "movq %rsi, %rdx",
    "movl %edi, %esi",
    "movl $1, %edi",
    "jmp *mps_shim_oldest_fxstat64@GOTPCREL(%rip)",
    ".size fstat64, . - fstat64",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    /// `dlclose(3)`.
    #[link_name = "mps_shim_dlclose"]
    pub(crate) fn dlclose(handle: *mut c_void) -> c_int;
    /// `dladdr(3)`.
    #[link_name = "mps_shim_dladdr"]
    pub(crate) fn dladdr(address: *const c_void, info: *mut libc::Dl_info) -> c_int;
    /// `dlinfo(3)`.
    #[link_name = "mps_shim_dlinfo"]
    pub(crate) fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
    /// `dlopen(3)`.
    #[link_name = "mps_shim_dlopen"]
    pub(crate) fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    /// `dlvsym(3)`.
    #[link_name = "mps_shim_dlvsym"]
    pub(crate) fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    /// `pthread_attr_getdetachstate(3)`.
    #[link_name = "mps_shim_pthread_attr_getdetachstate"]
    pub(crate) fn pthread_attr_getdetachstate(attributes: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
    /// `pthread_create(3)`.
    #[link_name = "mps_shim_pthread_create"]
    pub(crate) fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    /// `pthread_detach(3)`.
    #[link_name = "mps_shim_pthread_detach"]
    pub(crate) fn pthread_detach(thread: libc::pthread_t) -> c_int;
    /// `pthread_join(3)`.
    #[link_name = "mps_shim_pthread_join"]
    pub(crate) fn pthread_join(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int;
    /// `pthread_key_create(3)`.
    #[link_name = "mps_shim_pthread_key_create"]
    pub(crate) fn pthread_key_create(
        key: *mut libc::pthread_key_t,
        destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    /// `pthread_key_delete(3)`.
    #[link_name = "mps_shim_pthread_key_delete"]
    pub(crate) fn pthread_key_delete(key: libc::pthread_key_t) -> c_int;
}

/// What a thread does.
type Work = Box<dyn FnOnce() + Send>;

extern "C" fn begin(argument: *mut c_void) -> *mut c_void {
    // SAFETY: made by `detached_thread` from a box, for this thread alone.
    let work = unsafe { Box::from_raw(argument.cast::<Work>()) };
    work();
    std::ptr::null_mut()
}

/// Starts a thread that nobody joins and that takes none of the program's signals; whether there is one.
///
/// std's own way asks for functions newer than glibc 2.17.
pub(crate) fn detached_thread(work: Work) -> bool {
    let argument = Box::into_raw(Box::new(work)).cast::<c_void>();
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: writes the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // The new thread inherits the mask of this one, to which on Linux alone it applies.
    // SAFETY: both sets are there, and zeroes are a set.
    let is_masked = unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let mut thread = 0;
    // SAFETY: the argument is what `begin` expects, and is given away.
    let failed = unsafe { pthread_create(&raw mut thread, std::ptr::null(), begin, argument) } != 0;
    if is_masked {
        // SAFETY: the set was written above.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    if failed {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(argument.cast::<Work>()) });
        return false;
    }
    // SAFETY: the thread was just made and nobody has joined it.
    unsafe { pthread_detach(thread) };
    true
}
