//! A fault of the program's own beside what has nothing to do with it: another GPU, a thread that is long in the driver,
//! files of the program's, children, a capture.
#![expect(unsafe_code, reason = "the driver's functions are unsafe, and so are those of the system")]

use super::{Actor, Given, GpuError, Stage, check, code, count_of, current, enter, module, second_context, stream};
use crate::programs::gpu::{Argument, KERNELS, Kernel, Stream};
use crate::programs::memory_probe::allocate;
use crate::programs::replay_probe::failed;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{CStr, c_int};
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// `SOCK_DGRAM` as `/proc/net/unix` has it.
const DATAGRAM: &str = "0002";

/// How long the other GPU has work, in nanoseconds, and its words.
const MEANWHILE: u64 = 1_500_000_000;
const WORDS: u32 = 256;
/// Between two looks whether there was a recovery, and how long they may take.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(20);
/// Pipes that another thread makes at most while a context is made, and the time between two.
const MOST_PIPES: usize = 400;
const BETWEEN_PIPES: Duration = Duration::from_millis(1);

/// Does wrong on the current context's GPU: what the call answers that finds out, and the next one.
pub(super) fn fault(stage: &Stage) -> Result<[u32; 2], GpuError> {
    stage.gpu.launch(stage.trap, 1, &[])?;
    Ok(found())
}

/// What the call answers that finds out what was done wrong, and the next one.
pub(super) fn found() -> [u32; 2] {
    // SAFETY: a context is current.
    let ask = || code(unsafe { sys::cuCtxSynchronize() });
    [ask(), ask()]
}

fn kernel(of: sys::CUmodule, name: &CStr) -> Result<Kernel, GpuError> {
    let mut function = null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&raw mut function, of, name.as_ptr()) })?;
    Ok(Kernel(function))
}

/// One GPU has a fault while another one of the program's works.
pub(super) fn other_gpu(stage: &Stage) -> Result<Value, GpuError> {
    let (first, other) = (current()?, second_context()?);
    enter(other)?;
    let (module, size) = (module(KERNELS)?, WORDS as usize * 4);
    let (spin, increment) = (kernel(module, c"spin")?, kernel(module, c"increment")?);
    let (theirs, words) = (stream(1)?, allocate(size)?);
    stage.gpu.clear(words, size)?;
    stage.gpu.synchronize()?;
    stage.gpu.launch_in(Stream(theirs), spin, 1, &[Argument::U64(MEANWHILE)])?;
    stage.gpu.launch_in(Stream(theirs), increment, WORDS, &[Argument::U64(words), Argument::U32(WORDS)])?;
    enter(first)?;
    let found = fault(stage)?;
    enter(other)?;
    // SAFETY: it is ours.
    let waited = code(unsafe { sys::cuStreamSynchronize(theirs) });
    let is_done = stage.gpu.read(words, WORDS as usize)?.iter().all(|word| *word == 1);
    Ok(json!({ "found": found, "other": waited, "is_done": is_done }))
}

/// Another thread is in the driver for longer than a recovery waits, and comes out then: it compiles a module, or asks for
/// something. The simulated driver can be told to stay there.
fn with_a_thread_in_the_driver(stage: &Stage, ask: fn() -> u32) -> Result<Value, GpuError> {
    let (context, number) = (Given(current()?), Arc::new(AtomicI32::new(0)));
    let own = Arc::clone(&number);
    let other = std::thread::spawn(move || {
        let entered = enter(context.get());
        // SAFETY: asks for this thread's number.
        own.store(unsafe { libc::gettid() }, Ordering::SeqCst);
        entered.map_or(u32::MAX, |()| ask())
    });
    while !is_asleep(number.load(Ordering::SeqCst)) {
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
    let found = fault(stage)?;
    let (deadline, mut tries) = (Instant::now() + PATIENCE, 0);
    // SAFETY: the default stream.
    while count_of() == 0 && Instant::now() < deadline && code(unsafe { sys::cuStreamQuery(null_mut()) }) != 0 {
        tries += 1;
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
    let told = stage.told();
    let answer = other.join().map_err(|_| failed("thread", "it has panicked"))?;
    Ok(json!({ "found": found, "tries": tries, "told": told, "other": answer, "recoveries": count_of() }))
}

/// Whether a thread of this process waits, which it does nowhere but where it was told to stay.
fn is_asleep(number: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{number}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// The other thread compiles.
pub(super) fn compiling(stage: &Stage) -> Result<Value, GpuError> {
    with_a_thread_in_the_driver(stage, || module(KERNELS).map_or_else(|error| error.code, |_| 0))
}

/// The other thread does something else.
pub(super) fn staying(stage: &Stage) -> Result<Value, GpuError> {
    with_a_thread_in_the_driver(stage, || {
        let mut priority = 0;
        // SAFETY: the result is a variable of ours.
        code(unsafe { sys::cuStreamGetPriority(null_mut(), &raw mut priority) })
    })
}

/// A pipe of which this process has one end.
fn half_a_pipe() -> Option<OwnedFd> {
    let mut ends: [c_int; 2] = [0; 2];
    // SAFETY: there is room for two.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return None;
    }
    // SAFETY: the kernel has just made it for us.
    drop(unsafe { OwnedFd::from_raw_fd(ends[1]) });
    // SAFETY: as above.
    Some(unsafe { OwnedFd::from_raw_fd(ends[0]) })
}

/// A file that is called like one of the driver's and is none, mapped; `None` where that is not allowed.
struct Foreign(&'static AtomicBool, File);

impl Foreign {
    fn new() -> Option<Self> {
        let path = format!("/dev/nvidia-of-another-interface-{}", std::process::id());
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).ok()?;
        fs::remove_file(path).ok()?;
        file.set_len(4096).ok()?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file of that length.
        let place = unsafe { libc::mmap(null_mut(), 4096, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        // SAFETY: mapped above, zero, and never unmapped.
        (place != libc::MAP_FAILED).then(|| Self(unsafe { &*place.cast::<AtomicBool>() }, file))
    }

    /// Whether what is written to the memory is in the file.
    fn is_whole(&self) -> bool {
        use std::os::unix::fs::FileExt as _;
        self.0.store(true, Ordering::SeqCst);
        let mut byte = [0];
        self.1.read_exact_at(&mut byte, 0).is_ok() && byte == [1]
    }
}

/// Another thread opens files while a context is made, and something else has mapped the GPU's.
pub(super) fn foreign_files(stage: &Stage) -> Result<Value, GpuError> {
    let foreign = Foreign::new();
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    let opening = std::thread::spawn(move || {
        let mut pipes = Vec::new();
        while pipes.len() < MOST_PIPES && !flag.load(Ordering::SeqCst) {
            pipes.extend(half_a_pipe());
            std::thread::park_timeout(BETWEEN_PIPES);
        }
        pipes
    });
    second_context()?;
    is_over.store(true, Ordering::SeqCst);
    let pipes = opening.join().map_err(|_| failed("thread", "it has panicked"))?;
    let found = fault(stage)?;
    let is_pipe = |of: &OwnedFd| {
        let link = fs::read_link(format!("/proc/self/fd/{}", of.as_raw_fd())).unwrap_or_default();
        link.to_string_lossy().starts_with("pipe:")
    };
    let lost = pipes.iter().filter(|pipe| !is_pipe(pipe)).count();
    Ok(json!({
        "found": found, "pipes": pipes.len(), "lost_pipes": lost, "mapping": foreign.map(|foreign| foreign.is_whole()),
    }))
}

/// A child of the program's, which is ended with this.
struct Child(libc::pid_t);

impl Child {
    /// One that waits, and has begun to.
    fn fork() -> Result<Self, GpuError> {
        let (mut reader, writer) = std::io::pipe().map_err(|error| failed("pipe", error))?;
        // SAFETY: the child makes system calls and no others.
        let child = match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: one byte of a constant.
                unsafe { libc::write(writer.as_raw_fd(), c"!".as_ptr().cast(), 1) };
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
            child if child > 0 => Self(child),
            _ => return Err(failed("fork", std::io::Error::last_os_error())),
        };
        reader.read_exact(&mut [0]).map_err(|error| failed("fork", error))?;
        Ok(child)
    }

    /// What it has of the driver: files and mappings of the address space, and sockets. What stands in the place of a dead
    /// copy's descriptors is a datagram socket, and of these the driver has none.
    fn has(&self) -> Value {
        let unix = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let datagrams: Vec<String> = unix
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| words.get(4) == Some(&DATAGRAM))
            .filter_map(|words| Some(format!("socket:[{}]", words.get(6)?)))
            .collect();
        let entries = fs::read_dir(format!("/proc/{}/fd", self.0)).into_iter().flatten().flatten();
        let links: Vec<String> = entries
            .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
            .collect();
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.0)).unwrap_or_default();
        let of_driver = |text: &&str| text.contains("nvidia-uvm");
        json!({
            "files": links.iter().map(String::as_str).filter(of_driver).count(),
            "sockets": links.iter().filter(|link| link.starts_with("socket:") && !datagrams.contains(link)).count(),
            "mappings": maps.lines().filter(of_driver).count(),
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our child, which nobody waits for: this process ends soon.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

/// Children are forked before the fault and after it.
pub(super) fn children(stage: &Stage) -> Result<Value, GpuError> {
    let before = Child::fork()?;
    let (own, at_once) = (Child(std::process::id().cast_signed()), before.has());
    let parent = own.has();
    std::mem::forget(own);
    let found = fault(stage)?;
    let after = Child::fork()?;
    stage.report.say("forked", json!({}));
    Ok(json!({ "parent": parent, "at_once": at_once, "found": found, "before": before.has(), "after": after.has() }))
}

/// Memory comes and goes in a stream's order while another thread captures a stream in the way that forbids most.
pub(super) fn memory_beside_a_capture(_stage: &Stage) -> Result<Value, GpuError> {
    let (captured, other, context) = (stream(1)?, Given(stream(1)?), Given(current()?));
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: it is ours.
    check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(captured, mode) })?;
    let answers = Actor::new().perform(move || {
        if let Err(error) = enter(context.get()) {
            return json!(error.to_string());
        }
        let answers: Vec<u32> = (0..3)
            .flat_map(|_| {
                let mut address = 0;
                // SAFETY: the result is a variable of ours.
                let made = unsafe { sys::cuMemAllocAsync(&raw mut address, 4096, other.get()) };
                // SAFETY: made above.
                let freed = unsafe { sys::cuMemFreeAsync(address, other.get()) };
                [code(made), code(freed)]
            })
            .collect();
        json!(answers)
    })?;
    let mut graph = null_mut();
    // SAFETY: it is ours, and the result is a variable of ours.
    let ended = code(unsafe { sys::cuStreamEndCapture(captured, &raw mut graph) });
    Ok(json!({ "answers": answers, "ended": ended }))
}
