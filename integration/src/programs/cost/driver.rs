//! The calls of the driver itself, found by `dlsym` as cudart finds them.
#![expect(unsafe_code, reason = "takes addresses for the driver's functions")]

use super::beside::Pair;
use super::library::{Library, function};
use super::{Call, Calls, checked};
use crate::programs::gpu::{GpuError, KERNELS};
use crate::programs::memory_probe::tables::storage;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// Bytes of a copy, and of an allocation.
const COPIED: usize = 4;
const ALLOCATED: usize = 512;
/// `CU_STREAM_NON_BLOCKING`, `CU_EVENT_DISABLE_TIMING`.
const NON_BLOCKING: c_uint = 1;
const WITHOUT_TIMING: c_uint = 2;
/// Under which a value is kept with the context.
const KEY: usize = 0xc057;

/// Makes an event for other processes, in the current context, and gives it to them or does not.
pub(super) fn event_for_others(is_given: bool) -> Result<(), GpuError> {
    /// `CU_EVENT_INTERPROCESS`.
    const FOR_OTHERS: c_uint = 4;
    let library = Library::open("libcuda.so.1")?;
    let make_event = function!(library, cuEventCreate(*mut usize, c_uint))?;
    let give = function!(library, cuIpcGetEventHandle(*mut [u8; 64], usize))?;
    let (mut event, mut handle) = (0, [0; 64]);
    checked("cuEventCreate", make_event(&raw mut event, WITHOUT_TIMING | FOR_OTHERS))?;
    if is_given { checked("cuIpcGetEventHandle", give(&raw mut handle, event)) } else { Ok(()) }
}

/// A context, and in it all that the calls need. What is made here stays until the process ends.
#[derive(Debug, Clone, Copy)]
struct Made {
    context: usize,
    kernel: usize,
    stream: usize,
    event: usize,
    memory: u64,
    /// Mapped memory of the device.
    mapped: u64,
    pinned: *mut c_void,
    /// Pinned memory of this program's own.
    registered: *mut c_void,
}

impl Made {
    fn by(library: Library) -> Result<Self, GpuError> {
        let context = opened(library)?;
        let make_stream = function!(library, cuStreamCreate(*mut usize, c_uint))?;
        let make_event = function!(library, cuEventCreate(*mut usize, c_uint))?;
        let allocate = function!(library, cuMemAlloc_v2(*mut u64, usize))?;
        let pin = function!(library, cuMemHostAlloc(*mut *mut c_void, usize, c_uint))?;
        let kernel = spin(library)?;
        let (mapped, registered) = (mapped(library)?, registered(library)?);
        let (mut stream, mut event, mut memory, mut pinned) = (0, 0, 0, ptr::null_mut());
        checked("cuStreamCreate", make_stream(&raw mut stream, NON_BLOCKING))?;
        checked("cuEventCreate", make_event(&raw mut event, WITHOUT_TIMING))?;
        checked("cuMemAlloc", allocate(&raw mut memory, ALLOCATED))?;
        checked("cuMemHostAlloc", pin(&raw mut pinned, COPIED, 0))?;
        Ok(Self { context, kernel, stream, event, memory, mapped, pinned, registered })
    }

    /// Calls about these things, by the functions that this library has or shows.
    fn kinds(self, library: Library) -> Result<Vec<(&'static str, Call)>, GpuError> {
        let Self { context, kernel, stream, event, memory, mapped, pinned, registered } = self;
        let allocate = function!(library, cuMemAlloc_v2(*mut u64, usize))?;
        let free = function!(library, cuMemFree_v2(u64))?;
        let launch = function!(
            library,
            cuLaunchKernel(
                usize,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                usize,
                *mut *mut c_void,
                *mut *mut c_void,
            )
        )?;
        let record = function!(library, cuEventRecord(usize, usize))?;
        let has_come = function!(library, cuEventQuery(usize))?;
        let wait = function!(library, cuStreamWaitEvent(usize, usize, c_uint))?;
        let query = function!(library, cuStreamQuery(usize))?;
        let copy = function!(library, cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, usize))?;
        let current = function!(library, cuCtxGetCurrent(*mut usize))?;
        let (arguments, none) = (super::no_time(), ptr::null_mut());
        Ok(vec![
            ("launch", Box::new(move || launch(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, none))),
            ("record", Box::new(move || record(event, stream))),
            ("event query", Box::new(move || has_come(event))),
            ("wait for an event", Box::new(move || wait(stream, event, 0))),
            ("query", Box::new(move || query(stream))),
            ("copy", Box::new(move || copy(memory, pinned, COPIED, stream))),
            // As the library makes of all device memory, and of all pinned memory.
            ("copy to mapped memory", Box::new(move || copy(mapped, pinned, COPIED, stream))),
            ("copy from registered memory", Box::new(move || copy(memory, registered, COPIED, stream))),
            (
                "allocation and free",
                Box::new(move || {
                    let mut memory = 0;
                    let answer = allocate(&raw mut memory, ALLOCATED);
                    if answer == 0 { free(memory) } else { answer }
                }),
            ),
            (
                "current context",
                Box::new(move || {
                    let mut found = 0;
                    let answer = current(&raw mut found);
                    if found == context { answer } else { u32::MAX }
                }),
            ),
        ])
    }
}

fn settle(library: Library) -> Result<Call, GpuError> {
    let synchronize = function!(library, cuCtxSynchronize())?;
    Ok(Box::new(move || synchronize()))
}

/// What is measured, with a context of its own.
pub(super) fn open() -> Result<Calls, GpuError> {
    let library = Library::open("libcuda.so.1")?;
    let made = Made::by(library)?;
    let context = made.context;
    let make_stream = function!(library, cuStreamCreate(*mut usize, c_uint))?;
    let make_event = function!(library, cuEventCreate(*mut usize, c_uint))?;
    let end_stream = function!(library, cuStreamDestroy_v2(usize))?;
    let end_event = function!(library, cuEventDestroy_v2(usize))?;
    let storage = storage().map_err(|code| GpuError { call: "cuGetExportTable", code, name: "?".to_owned() })?;
    checked("context-local storage", (storage.put)(0, KEY, context, None))?;
    let mut kinds = made.kinds(library)?;
    // By a private function, as cudart does in most of its calls.
    kinds.push((
        "value of a context",
        Box::new(move || {
            let mut found = 0;
            let answer = (storage.get)(&raw mut found, context, KEY);
            if found == context { answer } else { u32::MAX }
        }),
    ));
    Ok(Calls {
        kinds,
        making: vec![
            (
                "event made and ended",
                Box::new(move || {
                    let mut event = 0;
                    let answer = make_event(&raw mut event, WITHOUT_TIMING);
                    if answer == 0 { end_event(event) } else { answer }
                }),
            ),
            (
                "stream made and ended",
                Box::new(move || {
                    let mut stream = 0;
                    let answer = make_stream(&raw mut stream, NON_BLOCKING);
                    if answer == 0 { end_stream(stream) } else { answer }
                }),
            ),
        ],
        settle: settle(library)?,
    })
}

/// Kinds of calls, each as the program finds it and as the driver itself has it, and what waits until nothing is left to
/// be done: the same things in the same process.
pub(super) fn pairs() -> Result<(Vec<Pair>, Call), GpuError> {
    let (shown, own) = (Library::open("libcuda.so.1")?, Library::own("libcuda.so.1")?);
    let made = Made::by(shown)?;
    let kinds = made.kinds(shown)?.into_iter().zip(made.kinds(own)?);
    Ok((kinds.map(|((name, shown), (_, own))| Pair { name, shown, own }).collect(), settle(shown)?))
}

/// The context of the first GPU, current here.
fn opened(library: Library) -> Result<usize, GpuError> {
    let init = function!(library, cuInit(c_uint))?;
    let device = function!(library, cuDeviceGet(*mut c_int, c_int))?;
    let retain = function!(library, cuDevicePrimaryCtxRetain(*mut usize, c_int))?;
    let enter = function!(library, cuCtxSetCurrent(usize))?;
    let (mut ordinal, mut context) = (0, 0);
    checked("cuInit", init(0))?;
    checked("cuDeviceGet", device(&raw mut ordinal, 0))?;
    checked("cuDevicePrimaryCtxRetain", retain(&raw mut context, ordinal))?;
    checked("cuCtxSetCurrent", enter(context))?;
    Ok(context)
}

/// Device memory that is mapped, and can be exported.
fn mapped(library: Library) -> Result<u64, GpuError> {
    /// A granule of every device.
    const SIZE: usize = 2 << 20;
    /// `CUmemLocation` of the first device, and `CUmemAllocationProp` of pinned memory there with a descriptor.
    const DEVICE: [c_int; 2] = [1, 0];
    const PROPERTIES: [c_int; 8] = [1, 1, DEVICE[0], DEVICE[1], 0, 0, 0, 0];
    /// `CUmemAccessDesc`: it may be read and written there.
    const ACCESS: [c_int; 3] = [DEVICE[0], DEVICE[1], 3];
    let create = function!(library, cuMemCreate(*mut u64, usize, *const c_int, u64))?;
    let reserve = function!(library, cuMemAddressReserve(*mut u64, usize, usize, u64, u64))?;
    let map = function!(library, cuMemMap(u64, usize, usize, u64, u64))?;
    let allow = function!(library, cuMemSetAccess(u64, usize, *const c_int, usize))?;
    let (mut handle, mut address) = (0, 0);
    checked("cuMemCreate", create(&raw mut handle, SIZE, PROPERTIES.as_ptr(), 0))?;
    checked("cuMemAddressReserve", reserve(&raw mut address, SIZE, 0, 0, 0))?;
    checked("cuMemMap", map(address, SIZE, 0, handle, 0))?;
    checked("cuMemSetAccess", allow(address, SIZE, ACCESS.as_ptr(), 1))?;
    Ok(address)
}

/// Memory of this program's own that is pinned.
fn registered(library: Library) -> Result<*mut c_void, GpuError> {
    const PAGE: usize = 4096;
    let register = function!(library, cuMemHostRegister_v2(*mut c_void, usize, c_uint))?;
    let pages = vec![0_u8; 2 * PAGE].leak();
    let begin = pages.as_ptr().align_offset(PAGE);
    let page: *mut c_void = pages[begin..begin + PAGE].as_mut_ptr().cast();
    checked("cuMemHostRegister", register(page, PAGE, 0))?;
    Ok(page)
}

/// The kernel that takes as long as it is told.
fn spin(library: Library) -> Result<usize, GpuError> {
    let load = function!(library, cuModuleLoadData(*mut usize, *const c_void))?;
    let find = function!(library, cuModuleGetFunction(*mut usize, usize, *const u8))?;
    let (mut module, mut kernel) = (0, 0);
    checked("cuModuleLoadData", load(&raw mut module, KERNELS.as_ptr().cast()))?;
    checked("cuModuleGetFunction", find(&raw mut kernel, module, c"spin".as_ptr().cast()))?;
    Ok(kernel)
}
