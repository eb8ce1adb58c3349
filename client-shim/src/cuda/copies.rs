//! Copies of the driver's library in one process: a private copy of its file is loaded beside the dead one, and every
//! function is looked up in it.
//!
//! The linker knows a library by its file and by the name it was opened under, so each copy is a file of its own without
//! a name in any folder, opened by a path that no other copy had. `RTLD_DEEPBIND` makes it use its own functions and the
//! C library's, and not the ones that this library exports. Making the file takes longer than anything else here, so one
//! is made in advance, by a thread that ends when it has.
//!
//! When a copy is dead and another one has taken its place, that thread gives back what it had ([`resources`]), whole: a
//! process recovers as often as it must. One with a thread that does not wait yet, as on a slow machine, is tried again after
//! the next one, and some more times in the background. It stays if that never comes, or if the program has an address
//! in it ([`is_shown`]): a function that is not hooked, a private table. The first one stays in any case.
#![expect(unsafe_code, reason = "loads a library and blocks a thread's signals")]

use std::{
    ffi::{CStr, CString, OsStr, c_int, c_void},
    fs::{File, OpenOptions},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::{ffi::OsStrExt as _, fs::OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    ptr::{self, NonNull},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    cuda::{
        functions::{self, lookup::cuInit},
        library,
        resources::{self, Known, Owner},
        second,
    },
    process::{glibc, imports, silent},
};

/// The file of the copy that the program has loaded.
static ORIGINAL: OnceLock<PathBuf> = OnceLock::new();
/// A file for the next copy.
static NEXT: Mutex<Option<File>> = Mutex::new(None);

fn next() -> MutexGuard<'static, Option<File>> {
    NEXT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes the file of the driver that is loaded; whether there is one.
pub(crate) fn learn() -> bool {
    let Some(address) = cuInit::FUNCTION.driver() else { return false };
    let Some(path) = library::library_of(address) else { return false };
    // The first one stays.
    let _known = ORIGINAL.set(Path::new(OsStr::from_bytes(path.to_bytes())).to_owned());
    true
}

/// Has what a dead copy had given back, and a file for the next copy made.
pub(crate) fn prepare(dead: Option<Dead>) {
    on_a_thread(move || {
        if let Some(dead) = dead {
            dead.give_back();
        }
    });
}

/// The same for one that is not cut off yet: `amputate` does so, and says which descriptors are there still. `dead` is
/// `None` for one that stays.
pub(crate) fn bury(dead: Option<Dead>, amputate: impl FnOnce() -> Vec<c_int> + Send + 'static) {
    on_a_thread(move || {
        let descriptors = {
            let _others_wait = locked(&GIVING_BACK);
            amputate()
        };
        if let Some(dead) = dead {
            Dead { descriptors, ..dead }.give_back();
        }
    });
}

/// Does this, and makes a file for the next copy, by a thread that takes none of the program's signals.
fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // The program's signals are for the program's threads.
    // SAFETY: the set was filled, and there is room for the other.
    let is_blocked = unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let made = thread::Builder::new().name("mps-shim-copy".into()).spawn(move || {
        work();
        try_again();
        let is_there = next().is_some();
        if !is_there && let Ok(file) = make() {
            *next() = Some(file);
        }
        keep_trying();
    });
    // Without it the file is made when it is needed.
    drop(made);
    if is_blocked {
        // SAFETY: what was there before.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
}

/// A private copy of the driver's file: in a folder for temporary files, where its pages can be written out when memory
/// is short, or in memory where programs may not be run from there.
fn make() -> io::Result<File> {
    let original = ORIGINAL.get().ok_or(io::ErrorKind::NotFound)?;
    let folder = std::env::temp_dir();
    let on_disk = OpenOptions::new().read(true).write(true).mode(0o700).custom_flags(libc::O_TMPFILE).open(folder);
    let mut copy = match on_disk {
        Ok(file) if can_be_run(&file) => file,
        _ => in_memory()?,
    };
    io::copy(&mut File::open(original)?, &mut copy)?;
    Ok(copy)
}

fn in_memory() -> io::Result<File> {
    // SAFETY: the name is a C string. By number, since glibc has the function since 2.27 only.
    let number = unsafe { libc::syscall(libc::SYS_memfd_create, c"libcuda".as_ptr(), libc::MFD_CLOEXEC) };
    match c_int::try_from(number) {
        // SAFETY: the kernel has just made it for us.
        Ok(number) if number >= 0 => Ok(unsafe { File::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether code can be mapped from a file.
fn can_be_run(file: &File) -> bool {
    const PAGE: usize = 4096;
    if file.set_len(4096).is_err() {
        return false;
    }
    let access = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a new mapping of our own file, wherever the kernel puts it.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping just made.
    unsafe { libc::munmap(page, PAGE) };
    true
}

/// A loaded copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    handle: *mut c_void,
    /// From 1.
    number: u64,
    /// What it has, if that is known.
    owner: Option<Owner>,
}

// SAFETY: the linker's handle, which any thread may use.
unsafe impl Send for Copy {}

/// The first copy stays loaded when it is closed, and does something at the end of the process that it has asked for
/// before it could be led (seen with 580.159.04): it stays as it is, cut off.
const LAST_TO_STAY: u64 = 1;

/// The copy that lives, but for the one that the program has loaded itself.
static LIVING: Mutex<Option<Copy>> = Mutex::new(None);
/// The program has an address in it.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// What the program knew by its address at the last recovery: what comes since is of the copy that lives, and what is no
/// more by then may be found again.
static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
/// A dead copy is given back as long as somebody has it.
static GIVING_BACK: Mutex<()> = Mutex::new(());
/// How many wait for that: nothing is tried again then.
static WANTED: AtomicUsize = AtomicUsize::new(0);
/// Dead copies with a thread that has not ended, each with how often that was tried.
static NOT_ENDED: Mutex<Vec<(Dead, u32)>> = Mutex::new(Vec::new());
/// How often one is tried at most, and the time between two tries, at first and at most.
const MOST_TRIES: u32 = 12;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// Somebody tries again in the background.
static IS_TRYING: AtomicBool = AtomicBool::new(false);

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program is given an address in the copy that lives, which is never unloaded then.
pub(crate) fn is_shown() {
    IS_SHOWN.store(true, Ordering::Release);
}

/// Waits until no dead copy is being given back, and keeps any from it.
pub(crate) fn none_is_given_back() -> MutexGuard<'static, ()> {
    WANTED.fetch_add(1, Ordering::AcqRel);
    let guard = locked(&GIVING_BACK);
    WANTED.fetch_sub(1, Ordering::AcqRel);
    guard
}

/// Whether a dead copy is being given back now.
pub(crate) fn is_one_given_back() -> bool {
    matches!(GIVING_BACK.try_lock(), Err(TryLockError::WouldBlock))
}

/// Gives back what could not be given back before, each once; nothing while a recovery waits for that.
fn try_again() {
    let mut left = std::mem::take(&mut *locked(&NOT_ENDED)).into_iter();
    while WANTED.load(Ordering::Acquire) == 0
        && let Some((dead, tries)) = left.next()
    {
        dead.try_to_give_back(tries);
    }
    locked(&NOT_ENDED).extend(left);
}

/// The same until nothing is left, or has been tried too often. One thread does so at a time.
fn keep_trying() {
    let is_left = || !locked(&NOT_ENDED).is_empty();
    while is_left() && !IS_TRYING.swap(true, Ordering::AcqRel) {
        let mut pause = FIRST_PAUSE;
        while is_left() {
            let until = Instant::now() + pause;
            while Instant::now() < until {
                thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
            try_again();
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // Whoever comes between this and the look has gone on without.
        IS_TRYING.store(false, Ordering::Release);
    }
}

/// A dead copy and what is still its own.
#[derive(Debug)]
pub(crate) struct Dead {
    copy: Copy,
    is_shown: bool,
    /// Descriptors that nothing comes from any more.
    descriptors: Vec<c_int>,
}

impl Dead {
    /// The copy that has lived until now; `None` if it is the program's own, or nobody knows what it has. `descriptors`
    /// are those that were cut off, `known` where nothing else may be found, of this copy and of all before.
    pub(crate) fn take(descriptors: Vec<c_int>, known: Known) -> Option<Self> {
        *locked(&KNOWN) = known;
        let copy = locked(&LIVING).take()?;
        copy.owner?.forget_exits();
        Some(Self { copy, is_shown: IS_SHOWN.load(Ordering::Acquire), descriptors })
    }

    fn give_back(self) {
        self.try_to_give_back(0);
    }

    /// Gives it back, which was tried so often before.
    fn try_to_give_back(self, tries: u32) {
        let _others_wait = locked(&GIVING_BACK);
        let is_to_go = !self.is_shown && self.copy.number > LAST_TO_STAY;
        let Some(owner) = self.copy.owner.filter(|_| is_to_go) else { return };
        let Some(code) = library::find(self.copy.handle, cuInit::FUNCTION.name) else { return };
        // One that goes on may touch all that the copy had.
        if owner.end_threads(code.as_ptr()).is_err() {
            let tries = tries + 1;
            if tries < MOST_TRIES {
                locked(&NOT_ENDED).push((self, tries));
            }
            return;
        }
        self.descriptors.into_iter().for_each(silent::close);
        owner.delete_keys();
        // SAFETY: the handle is open.
        if let Some(library) = unsafe { imports::Library::of(self.copy.handle) } {
            // SAFETY: a dead copy has nothing to do any more.
            unsafe { library.end_in_silence() };
        }
        // SAFETY: nobody is in it and nobody will be: its threads have ended, the program has no address in it.
        unsafe { glibc::dlclose(self.copy.handle) };
        if library::library_of(code).is_some() {
            // It is needed by somebody, and may be called at the process's end.
            return;
        }
        // SAFETY: as above.
        unsafe { owner.release(&locked(&KNOWN)) };
    }
}

/// A file for a copy, and whether it was made in advance.
pub(crate) fn file() -> io::Result<(File, bool)> {
    let made = next().take();
    match made {
        Some(file) => Ok((file, true)),
        None => Ok((make()?, false)),
    }
}

/// Loads another copy.
pub(crate) fn load(file: &File) -> Result<Copy, String> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let steps = "./".repeat(usize::try_from(number).unwrap_or_default());
    let path = CString::new(format!("/proc/self/{steps}fd/{}", file.as_raw_fd())).map_err(|error| error.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
    // SAFETY: the file is a copy of the library that the program has loaded, whose constructors have run before.
    let handle = unsafe { glibc::dlopen(path.as_ptr(), flags) };
    if !handle.is_null() {
        // SAFETY: it was just loaded, so no thread is in it.
        return Ok(Copy { handle, number, owner: unsafe { Owner::of(handle) } });
    }
    // SAFETY: the last call of the linker on this thread has failed.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("the copy cannot be loaded".to_owned());
    }
    // SAFETY: the linker gives a C string.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Where the functions were found.
#[derive(Debug)]
pub(crate) struct Before {
    addresses: Vec<*mut c_void>,
    library: *mut c_void,
    noted: Option<Owner>,
}

impl Copy {
    /// Has every function found in this copy. The gate is closed and nobody is inside.
    pub(crate) fn take_over(self) -> Before {
        let (library, noted) = (library::exchange_library(self.handle), resources::note(self.owner));
        let addresses =
            functions::all().map(|function| function.exchange(|| library::find(self.handle, function.name))).collect();
        Before { addresses, library, noted }
    }

    /// Has the spare copy's functions found by threads that choose them, and what it opens noted as its own.
    pub(crate) fn is_spare(self) {
        resources::note_spare(self.owner);
        let find = |name| library::find(self.handle, name).map_or(ptr::null_mut(), NonNull::as_ptr);
        functions::all().for_each(|function| function.set_spare(find(function.name)));
    }

    /// Has every function found in this copy, which was spare until now. The gate is closed and nobody is inside.
    pub(crate) fn takes_the_place(self) -> Before {
        let (library, noted) = (library::exchange_library(self.handle), resources::note(self.owner));
        let addresses = functions::all().map(|function| function.exchange(|| function.spare())).collect();
        Before { addresses, library, noted }
    }

    /// It is spare no more.
    pub(crate) fn is_spare_no_more(self) {
        resources::note_spare(None);
        second::forget();
    }

    /// What it has, if that is known.
    pub(crate) fn owner(self) -> Option<Owner> {
        self.owner
    }

    /// It has everything that the one before had.
    pub(crate) fn lives(self) {
        IS_SHOWN.store(false, Ordering::Release);
        *locked(&LIVING) = Some(self);
    }

    /// It is not needed: nobody has got anything from it. Its descriptors are cut off.
    pub(crate) fn discarded(self, descriptors: Vec<c_int>) -> Dead {
        if let Some(owner) = self.owner {
            owner.forget_exits();
        }
        Dead { copy: self, is_shown: false, descriptors }
    }
}

impl Before {
    /// Has every function found in the copy of before. The gate is closed and nobody is inside.
    pub(crate) fn restore(self) {
        library::exchange_library(self.library);
        resources::note(self.noted);
        for (function, address) in functions::all().zip(self.addresses) {
            function.restore(address);
        }
    }
}
