//! Where a process dies: a program of the driver's that follows an address to nowhere ends by a signal, on a machine
//! without a debugger, in a process of which only the end is seen. The handler writes one line, `crash`, to standard
//! output or error: the signal, the address, the registers, what is mapped around that address, the calls of the thread, and the
//! operation that was under way.
//!
//! It allocates nothing, takes no lock, and then lets the signal do what it does.
#![expect(unsafe_code, reason = "a handler of a signal, and what it is told")]

use std::ffi::{c_int, c_void};
use std::fmt::{self, Write as _};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Calls of a stack that are told at most.
const DEPTH: usize = 48;
/// Bytes of a line, and of the table of mappings.
const LINE: usize = 8 << 10;
const MAPS: usize = 4 << 20;
/// How many registers the kernel tells that are numbers: from r8 to rip.
const REGISTERS: usize = 17;
/// Signals by which a process dies that follows an address to nowhere, or that gives up.
const SIGNALS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

static SEED: AtomicU64 = AtomicU64::new(0);
/// The operation under way, and in which [`Part`].
static OPERATION: AtomicUsize = AtomicUsize::new(0);
static PART: AtomicUsize = AtomicUsize::new(Part::Before as usize);
/// Where the line goes.
static TO: AtomicI32 = AtomicI32::new(libc::STDOUT_FILENO);
/// Where there is room for the table of mappings.
static ROOM: AtomicUsize = AtomicUsize::new(0);

/// The program of this seed is run now.
pub(super) fn seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// What a process is doing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// No operation of any program yet.
    Before,
    Undisturbed,
    Disturbed,
    /// All that a run has left is ended, and settled.
    Tidying,
    /// It has said all that it has to say, and ends.
    End,
}

impl Part {
    const ALL: [Self; 5] = [Self::Before, Self::Undisturbed, Self::Disturbed, Self::Tidying, Self::End];
}

/// From now on it does this.
pub(super) fn part(part: Part) {
    PART.store(part as usize, Ordering::Relaxed);
}

/// This operation of its program begins.
pub(super) fn operation(at: usize) {
    OPERATION.store(at, Ordering::Relaxed);
}

/// A line of bounded length, in which no sign needs to be escaped.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let place = self.bytes.get_mut(self.length).ok_or(fmt::Error)?;
            *place = byte;
            self.length += 1;
        }
        Ok(())
    }
}

/// The table of mappings, read into the room that there is.
fn mappings() -> &'static [u8] {
    let room = std::ptr::with_exposed_provenance_mut::<u8>(ROOM.load(Ordering::Relaxed));
    if room.is_null() {
        return &[];
    }
    // SAFETY: opens a file by a constant name.
    let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut length = 0;
    while length < MAPS {
        // SAFETY: so much room is left there.
        let read = unsafe { libc::read(file, room.wrapping_add(length).cast(), MAPS - length) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => length += read,
            _ => break,
        }
    }
    // SAFETY: so many bytes were read there, and nobody else does.
    unsafe { std::slice::from_raw_parts(room, length) }
}

/// A mapping: its bounds, what may be done there, where in its file it begins, and the file.
struct Mapping<'a> {
    start: usize,
    end: usize,
    access: &'a str,
    offset: usize,
    name: &'a str,
}

fn parsed(line: &[u8]) -> Option<Mapping<'_>> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (access, offset) = (words.next()?, number(words.next()?)?);
    let name = words.nth(2).unwrap_or("");
    // A line of JSON is made of it.
    let name = if name.contains(['"', '\\']) { "?" } else { name };
    Some(Mapping { start: number(start)?, end: number(end)?, access, offset, name })
}

fn table(maps: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    maps.split(|byte| *byte == b'\n').filter_map(parsed)
}

/// An address as its file and the place there.
fn named(line: &mut Line, maps: &[u8], address: usize) -> fmt::Result {
    match table(maps).find(|mapping| (mapping.start..mapping.end).contains(&address)) {
        Some(found) => write!(line, "\"{}+{:#x} {}\"", found.name, address - found.start + found.offset, found.access),
        None => write!(line, "\"{address:#x} is not mapped\""),
    }
}

fn tell(line: &mut Line, signal: c_int, address: usize, context: *const libc::ucontext_t) -> fmt::Result {
    let maps = mappings();
    // SAFETY: asks for this thread's number.
    let (pid, thread) = (std::process::id(), unsafe { libc::gettid() });
    write!(
        line,
        "{{\"event\":\"crash\",\"pid\":{pid},\"thread\":{thread},\"signal\":{signal},\"address\":\"{address:#x}\""
    )?;
    let at = OPERATION.load(Ordering::Relaxed);
    let part = Part::ALL.get(PART.load(Ordering::Relaxed)).unwrap_or(&Part::Before);
    let seed = SEED.load(Ordering::Relaxed);
    write!(line, ",\"seed\":{seed},\"at\":{at},\"part\":\"{part:?}\",\"around\":[")?;
    let mut last = None;
    for mapping in table(maps) {
        if mapping.end > address {
            for near in last.iter().chain([&mapping]) {
                let separator = if std::ptr::eq(near, &raw const mapping) && last.is_some() { "," } else { "" };
                write!(line, "{separator}\"{:x}-{:x} {} {}\"", near.start, near.end, near.access, near.name)?;
            }
            break;
        }
        last = Some(mapping);
    }
    // SAFETY: the kernel has given it to the handler, and it lives as long as that.
    let registers = unsafe { (*context).uc_mcontext.gregs };
    write!(line, "],\"registers\":[")?;
    for (index, value) in registers.iter().take(REGISTERS).enumerate() {
        write!(line, "{}\"{:x}\"", if index == 0 { "" } else { "," }, value)?;
    }
    write!(line, "],\"calls\":[")?;
    let place = usize::try_from(registers[libc::REG_RIP as usize].cast_unsigned()).unwrap_or(0);
    named(line, maps, place)?;
    let mut calls = [null_mut::<c_void>(); DEPTH];
    // SAFETY: there is room for as many; the library that it needs was loaded when the handler was set.
    let count = unsafe { libc::backtrace(calls.as_mut_ptr(), c_int::try_from(DEPTH).unwrap_or(0)) };
    for call in calls.iter().take(usize::try_from(count).unwrap_or(0)) {
        write!(line, ",")?;
        named(line, maps, call.addr())?;
    }
    writeln!(line, "]}}")
}

extern "C" fn answer(signal: c_int, about: *mut libc::siginfo_t, context: *mut c_void) {
    let mut line = Line { bytes: [0; LINE], length: 0 };
    // SAFETY: the kernel has given it to the handler.
    let about = unsafe { &*about };
    // SAFETY: it is of a fault of memory, or a number that nobody follows.
    let address = unsafe { about.si_addr() }.addr();
    if tell(&mut line, signal, address, context.cast()).is_err() {
        line.length = line.length.min(LINE - 1);
        line.bytes[line.length] = b'\n';
        line.length += 1;
    }
    // SAFETY: so many bytes are there.
    unsafe { libc::write(TO.load(Ordering::Relaxed), line.bytes.as_ptr().cast(), line.length) };
}

/// From now on a crash is told to this descriptor, and ends the process as before.
pub(super) fn watch(to: c_int) {
    TO.store(to, Ordering::Relaxed);
    ROOM.store(Box::leak(vec![0_u8; MAPS].into_boxed_slice()).as_mut_ptr().expose_provenance(), Ordering::Relaxed);
    let mut one = [null_mut::<c_void>(); 1];
    // SAFETY: there is room for one. The first time it loads a library, which a handler must not.
    unsafe { libc::backtrace(one.as_mut_ptr(), 1) };
    for signal in SIGNALS {
        // SAFETY: zeros are a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = answer as *const c_void as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        // SAFETY: the handler makes system calls and reads what the kernel gives it.
        unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
    }
}
