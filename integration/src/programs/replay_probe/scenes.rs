//! `--scene NAME`: work that is lost in a certain way, and what each thread hears of it afterwards.
//!
//! A scene gives work that takes long, has others wait for what is not that work, says `pending`, and makes no call until
//! it was recovered. Then it says in a line `scene` what each call answered.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

mod arrays;
mod attributes;
mod beside;
mod captures;
mod contexts;
mod counted;
mod edits;
mod evidence;
mod functions;
mod graphs;
mod memory;
mod named;
mod ordered;
mod stacks;
mod telling;
mod told;
mod unheard;
mod unheld;

use super::count as count_of;
use super::failed;
use super::last;
use crate::programs::gpu::{Argument, Gpu, GpuError, Kernel, Stream};
use crate::programs::memory_probe::{allocate, check};
use crate::programs::report::Report;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// How long lost work takes, in nanoseconds: the fault comes meanwhile. Words that it counts up.
const A_WHILE: u64 = 3_000_000_000;
const WORDS: u32 = 256;
/// Between two looks whether it was recovered, and how long it looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(600);

/// A scene with what its calls answered.
type Scene = fn(&Stage) -> Result<Value, GpuError>;

/// All scenes by name.
const SCENES: &[(&str, Scene)] = &[
    ("threads", evidence::threads),
    ("event-again", evidence::event_again),
    ("event-elsewhere", evidence::event_elsewhere),
    ("event-of-a-graph", evidence::event_of_a_graph),
    ("other-context", evidence::other_context),
    ("stream-again", evidence::stream_again),
    ("pushed-context", evidence::pushed_context),
    ("ended-contexts", evidence::ended_contexts),
    ("empty-copy", evidence::empty_copy),
    ("many-streams", evidence::many_streams),
    ("too-many-streams", evidence::too_many_streams),
    ("capture", evidence::capture),
    ("consumers", telling::consumers),
    ("children-of-threads", telling::children),
    ("ignored", telling::ignored),
    ("unheard-records", unheard::records),
    ("seldom-records", unheard::seldom),
    ("records-by-launches", unheard::launches),
    ("lost-functions", functions::lost),
    ("lost-functions-beside-a-capture", functions::lost_beside_a_capture),
    ("callbacks", functions::callbacks),
    ("constants", memory::constants),
    ("untouched-constants", memory::untouched_constants),
    ("variables", memory::variables),
    ("variables-watched", memory::variables_watched),
    ("variables-unread", memory::variables_unread),
    ("unloaded-while-read", memory::unloaded_while_read),
    ("handle-again", memory::handle_again),
    ("asked-at-rest", evidence::asked_at_rest),
    ("host-memory", memory::host_memory),
    ("module-of-a-file", memory::module_of_a_file),
    ("deep-kernel-later", stacks::later),
    ("deep-kernel-before", stacks::before),
    ("stack-limit", stacks::set),
    ("finished", evidence::finished),
    ("finished-and-asking", evidence::finished_and_asking),
    ("other-gpu", beside::other_gpu),
    ("named-contexts", named::named_contexts),
    ("private-current", named::private_current),
    ("compiling", beside::compiling),
    ("staying", beside::staying),
    ("foreign-files", beside::foreign_files),
    ("children", beside::children),
    ("memory-beside-a-capture", beside::memory_beside_a_capture),
    ("capture-of-a-reset-context", captures::reset),
    ("capture-of-a-destroyed-context", captures::context),
    ("capture-of-an-ended-thread", captures::thread),
    ("modes-of-captures", captures::modes),
    ("capture-that-goes-on", captures::goes_on),
    ("capture-that-was-broken", captures::broken),
    ("capture-that-is-none", captures::none),
    ("arrays-of-two-devices", arrays::two_devices),
    ("textures-without-arrays", arrays::without_arrays),
    ("limits-of-arrays", arrays::limits),
    ("lost-copies-to-arrays", arrays::lost),
    ("array-in-a-graph", arrays::in_a_graph),
    ("arrays-after-a-reset", arrays::after_a_reset),
    ("texture-of-unmapped-memory", arrays::of_unmapped),
    ("array-that-ends", arrays::that_ends),
    ("twins-of-arrays", arrays::twins),
    ("attributes-of-nodes", attributes::of_nodes),
    ("belongings-of-pointers", told::pointers),
    ("operations-on-variables", told::operations),
    ("nowhere", told::nowhere),
    ("pools-with-one-handle", told::pools_with_one_handle),
    ("reserved-of-a-pool", told::reserved),
    ("numbers-of-objects", told::ids),
    ("peers", told::peers),
    ("freed-elsewhere", told::freed_elsewhere),
    ("pieces-in-order", ordered::pieces),
    ("not-held-by-a-stream", unheld::by_a_stream),
    ("newer-attributes-of-nodes", attributes::newer),
    ("domains-of-nodes", attributes::domains),
    ("places-of-nodes", graphs::places),
    ("places-of-executables", graphs::places_of_executables),
    ("wrong-nodes", graphs::wrong_nodes),
    ("last-nodes", graphs::last_nodes),
    ("nodes-again", graphs::nodes_again),
    ("edits-of-graphs", edits::of_graphs),
    ("with-graphics", counted::with_resources),
    ("after-graphics", counted::after_resources),
    ("with-gl-buffer", counted::with_buffer),
    ("with-vdpau-video", counted::with_video),
    ("with-vdpau-output", counted::with_output),
    ("with-gl-image", counted::with_image),
    ("with-egl-image", counted::with_image_of_egl),
    ("after-registrations", counted::after_registrations),
    ("with-user-object", counted::with_user_object),
    ("after-user-object", counted::after_user_object),
    ("with-multicast", counted::with_multicast),
    ("after-multicast", counted::after_multicast),
    ("with-imported-multicast", counted::with_imported_multicast),
    ("after-imported-multicast", counted::after_imported_multicast),
    ("detached-once", contexts::detached_once),
    ("detached-twice", contexts::detached_twice),
    ("green-context", contexts::green),
    ("with-retained-multicast", counted::with_retained_multicast),
    ("after-retained-multicast", counted::after_retained_multicast),
    ("with-texture-reference", counted::with_texture),
    ("after-texture-reference", counted::after_texture),
];

/// Plays a scene.
pub(super) fn play(report: Report, name: &str) -> Result<Value, GpuError> {
    let (_, scene) = SCENES.iter().find(|(of, _)| *of == name).ok_or_else(|| failed("--scene", name))?;
    let stage = Stage::new(report)?;
    let heard = scene(&stage)?;
    let recovery = last::get().map(|last| last.when_cut_off().describe());
    report.say("scene", json!({ "heard": heard, "recovery": recovery }));
    Ok(json!({}))
}

/// What every scene has.
struct Stage {
    report: Report,
    gpu: Gpu,
    increment: Kernel,
    spin: Kernel,
    trap: Kernel,
    /// Words that lost work counts up, and others.
    words: u64,
    others: u64,
}

/// What a call answered.
fn code(answer: sys::CUresult) -> u32 {
    answer as u32
}

/// A function of the driver by its name: those of `_ptsz` have no declaration.
fn function(name: &CStr) -> Result<*mut c_void, GpuError> {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() { Err(failed("dlsym", name.to_string_lossy())) } else { Ok(found) }
}

fn stream(flags: c_uint) -> Result<sys::CUstream, GpuError> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
    Ok(stream)
}

fn event() -> Result<sys::CUevent, GpuError> {
    let mut event = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 2) })?;
    Ok(event)
}

fn current() -> Result<sys::CUcontext, GpuError> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
    Ok(context)
}

fn enter(context: sys::CUcontext) -> Result<(), GpuError> {
    // SAFETY: it is retained until the process ends.
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })
}

/// Something of the driver's that another thread is given.
#[derive(Clone, Copy)]
struct Given<T>(T);

// SAFETY: handles are for all threads.
unsafe impl<T> Send for Given<T> {}

impl<T> Given<T> {
    fn get(self) -> T {
        self.0
    }
}

impl Stage {
    fn new(report: Report) -> Result<Self, GpuError> {
        let mut gpu = Gpu::open(0)?;
        let (increment, spin, trap) = (gpu.kernel("increment")?, gpu.kernel("spin")?, gpu.kernel("trap")?);
        let (words, others) = (allocate(WORDS as usize * 4)?, allocate(WORDS as usize * 4)?);
        gpu.clear(words, WORDS as usize * 4)?;
        gpu.clear(others, WORDS as usize * 4)?;
        gpu.synchronize()?;
        Ok(Self { report, gpu, increment, spin, trap, words, others })
    }

    /// Gives a stream work that will be lost: a kernel that takes a while, and one that counts up.
    fn leave(&self, stream: sys::CUstream) -> Result<(), GpuError> {
        self.gpu.launch_in(Stream(stream), self.spin, 1, &[Argument::U64(A_WHILE)])?;
        self.count(stream, self.words)
    }

    fn count(&self, stream: sys::CUstream, words: u64) -> Result<(), GpuError> {
        self.gpu.launch_in(Stream(stream), self.increment, WORDS, &[Argument::U64(words), Argument::U32(WORDS)])
    }

    /// Makes no call until it was recovered once more.
    fn wait(&self) -> Result<(), GpuError> {
        let before = count_of();
        self.report.say("pending", json!({}));
        let deadline = Instant::now() + PATIENCE;
        while count_of() == before {
            if Instant::now() > deadline {
                return Err(failed("--scene", "no fault has come in time"));
            }
            std::thread::park_timeout(BETWEEN_LOOKS);
        }
        Ok(())
    }

    /// Asks whether a stream has anything to do, and gives it nothing, until that has recovered the program.
    fn ask_until_recovered(&self, stream: sys::CUstream) -> Result<(), GpuError> {
        let before = count_of();
        self.report.say("pending", json!({}));
        let deadline = Instant::now() + PATIENCE;
        while count_of() == before {
            // SAFETY: it is ours.
            check("cuStreamQuery", unsafe { sys::cuStreamQuery(stream) })?;
            if Instant::now() > deadline {
                return Err(failed("--scene", "no fault has come in time"));
            }
            std::thread::park_timeout(BETWEEN_LOOKS);
        }
        Ok(())
    }

    /// Makes no call until a thread that begins now has certainly begun later than the recovery ended: the kernel tells
    /// that in hundredths of a second.
    fn wait_for_another_tick(&self) {
        let hundredths = || self.report.start().elapsed().as_millis() / 10;
        let before = hundredths();
        while hundredths() <= before + 2 {
            std::thread::park_timeout(BETWEEN_LOOKS);
        }
    }

    /// Whether a thread that was there hears of lost work, and whether once.
    fn told(&self) -> Value {
        // SAFETY: the default stream.
        let ask = || code(unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) });
        json!([ask(), ask()])
    }
}

/// Kernels' functions as another thread launches them, on its own default stream.
#[derive(Clone, Copy)]
struct Own {
    launch: *mut c_void,
    increment: Kernel,
    spin: Kernel,
    words: u64,
}

impl Own {
    fn new(stage: &Stage) -> Result<Self, GpuError> {
        let launch = function(c"cuLaunchKernel_ptsz")?;
        Ok(Self { launch, increment: stage.increment, spin: stage.spin, words: stage.words })
    }

    /// Gives this thread's default stream work that will be lost; the answers.
    fn leave(&self) -> [u32; 2] {
        type Launch = unsafe extern "C" fn(
            sys::CUfunction,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            sys::CUstream,
            *mut *mut c_void,
            *mut *mut c_void,
        ) -> sys::CUresult;
        // SAFETY: the function of this name has this type.
        let launch = unsafe { std::mem::transmute::<*mut c_void, Launch>(self.launch) };
        let null = std::ptr::null_mut();
        let (time, address, count) = (A_WHILE, self.words, WORDS);
        let mut of_spin = [(&raw const time).cast_mut().cast::<c_void>()];
        let mut of_increment = [(&raw const address).cast_mut().cast::<c_void>(), (&raw const count).cast_mut().cast()];
        // SAFETY: the kernels take these arguments.
        let spun =
            unsafe { launch(self.spin.0, 1, 1, 1, 1, 1, 1, 0, std::ptr::null_mut(), of_spin.as_mut_ptr(), null) };
        let arguments = of_increment.as_mut_ptr();
        // SAFETY: as above.
        let counted =
            unsafe { launch(self.increment.0, 1, 1, 1, WORDS, 1, 1, 0, std::ptr::null_mut(), arguments, null) };
        [code(spun), code(counted)]
    }
}

/// A thread that does what it is told, step by step.
struct Actor {
    tell: Sender<Box<dyn FnOnce() -> Value + Send>>,
    heard: std::sync::mpsc::Receiver<Value>,
}

impl Actor {
    /// A thread that has made no call yet.
    fn new() -> Self {
        let (tell, told) = channel::<Box<dyn FnOnce() -> Value + Send>>();
        let (say, heard) = channel();
        std::thread::spawn(move || {
            for step in told {
                if say.send(step()).is_err() {
                    return;
                }
            }
        });
        Self { tell, heard }
    }

    /// Has it do something, and waits.
    fn perform(&self, step: impl FnOnce() -> Value + Send + 'static) -> Result<Value, GpuError> {
        self.tell.send(Box::new(step)).map_err(|error| failed("thread", error))?;
        self.heard.recv().map_err(|error| failed("thread", error))
    }
}

/// A function of one argument that gives an answer.
type Of<T> = unsafe extern "C" fn(T) -> sys::CUresult;

/// A module of this image.
fn module(image: &str) -> Result<sys::CUmodule, GpuError> {
    let mut module = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours, and the image ends with NUL.
    check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) })?;
    Ok(module)
}

/// The second device's primary context, not current.
fn second_context() -> Result<sys::CUcontext, GpuError> {
    let mut context = std::ptr::null_mut();
    let device: c_int = 1;
    // SAFETY: the result is a variable of ours.
    check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) })?;
    Ok(context)
}
