//! The driver's functions by name, those for threads' own default streams among them, and what the preloaded library
//! says of recoveries.
#![expect(unsafe_code, reason = "the driver's functions and the library's are found by name")]
#![expect(clippy::too_many_arguments, reason = "the driver's own")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// A call that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    /// The function.
    pub(super) call: &'static str,
    /// `CUresult`; 0 where there is no such function.
    pub(super) code: u32,
}

/// What a call gives.
pub(super) type Answer<T = ()> = Result<T, Failed>;

/// A function of the host's for the driver.
pub(super) type HostFunction = extern "C" fn(*mut c_void);

macro_rules! functions {
    ($( $name:ident($($argument:ident: $type:ty),*); )+) => {
        /// The functions that were found.
        #[expect(non_snake_case, reason = "the driver's names")]
        #[derive(Debug)]
        pub(super) struct Api { $( $name: Option<unsafe extern "C" fn($($type),*) -> u32>, )+ }

        impl Api {
            fn find(library: *mut c_void) -> Self {
                let look = |name: &CStr| {
                    // SAFETY: looks a name up in a library that is never unloaded.
                    unsafe { libc::dlsym(library, name.as_ptr()) }
                };
                Self { $( $name: {
                    let name = concat!(stringify!($name), "\0");
                    let found = look(CStr::from_bytes_with_nul(name.as_bytes()).expect("the NUL is its last"));
                    // SAFETY: the driver's function of this name has this type.
                    unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($type),*) -> u32>>(found) }
                }, )+ }
            }

            $(
                #[expect(non_snake_case, reason = "the driver's own")]
                pub(super) fn $name(&self, $($argument: $type),*) -> Answer {
                    let failed = |code| Failed { call: stringify!($name), code };
                    let function = self.$name.ok_or(failed(0))?;
                    // SAFETY: addresses are of variables that outlive the call, or of memory that lives as long as the
                    // work on it, which the plan sees to; all else the driver checks.
                    match unsafe { function($($argument),*) } {
                        0 => Ok(()),
                        code => Err(failed(code)),
                    }
                }
            )+
        }
    };
}

functions! {
    cuInit(flags: u32);
    cuDeviceGetCount(count: *mut i32);
    cuDevicePrimaryCtxRetain(context: *mut usize, device: i32);
    cuDevicePrimaryCtxReset_v2(device: i32);
    cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32);
    cuCtxDestroy_v2(context: usize);
    cuCtxPopCurrent_v2(context: *mut usize);
    cuCtxSetCurrent(context: usize);
    cuCtxSynchronize();
    cuCtxSynchronize_v2(context: usize);
    cuCtxRecordEvent(context: usize, event: usize);
    cuCtxWaitEvent(context: usize, event: usize);
    cuModuleLoadData(module: *mut usize, image: *const c_char);
    cuModuleUnload(module: usize);
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    cuModuleGetGlobal_v2(address: *mut usize, size: *mut usize, module: usize, name: *const c_char);
    cuLibraryLoadData(
        library: *mut usize, image: *const c_char, options: usize, values: usize, count: u32, library_options: usize,
        library_values: usize, library_count: u32
    );
    cuLibraryUnload(library: usize);
    cuLibraryGetGlobal(address: *mut usize, size: *mut usize, library: usize, name: *const c_char);
    cuStreamCreate(stream: *mut usize, flags: u32);
    cuStreamDestroy_v2(stream: usize);
    cuStreamSynchronize(stream: usize);
    cuStreamSynchronize_ptsz(stream: usize);
    cuStreamQuery(stream: usize);
    cuStreamQuery_ptsz(stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: u32);
    cuStreamWaitEvent_ptsz(stream: usize, event: usize, flags: u32);
    cuStreamBeginCapture_v2(stream: usize, mode: i32);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuEventCreate(event: *mut usize, flags: u32);
    cuEventDestroy_v2(event: usize);
    cuEventRecord(event: usize, stream: usize);
    cuEventRecord_ptsz(event: usize, stream: usize);
    cuEventQuery(event: usize);
    cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize);
    cuEventSynchronize(event: usize);
    cuMemAlloc_v2(address: *mut usize, size: usize);
    cuMemAllocAsync(address: *mut usize, size: usize, stream: usize);
    cuMemAllocFromPoolAsync(address: *mut usize, size: usize, pool: usize, stream: usize);
    cuMemPoolCreate(pool: *mut usize, properties: *const u32);
    cuMemPoolDestroy(pool: usize);
    cuMemCreate(handle: *mut usize, size: usize, properties: *const u32, flags: u64);
    cuMemRelease(handle: usize);
    cuMemAddressReserve(address: *mut usize, size: usize, alignment: usize, wanted: usize, flags: u64);
    cuMemAddressFree(address: usize, size: usize);
    cuMemMap(address: usize, size: usize, offset: usize, handle: usize, flags: u64);
    cuMemUnmap(address: usize, size: usize);
    cuMemSetAccess(address: usize, size: usize, accesses: *const u32, count: usize);
    cuMemHostRegister_v2(address: usize, size: usize, flags: u32);
    cuMemHostUnregister(address: usize);
    cuMemFree_v2(address: usize);
    cuMemFreeAsync(address: usize, stream: usize);
    cuMemFreeAsync_ptsz(address: usize, stream: usize);
    cuMemHostAlloc(address: *mut usize, size: usize, flags: u32);
    cuMemFreeHost(address: usize);
    cuPointerGetAttribute(value: *mut u32, attribute: u32, address: usize);
    cuArray3DCreate_v2(array: *mut usize, descriptor: *const u64);
    cuArrayDestroy(array: usize);
    cuTexObjectCreate(texture: *mut u64, resource: *const u64, how: *const u64, view: *const u64);
    cuTexObjectDestroy(texture: u64);
    cuSurfObjectCreate(surface: *mut u64, resource: *const u64);
    cuSurfObjectDestroy(surface: u64);
    cuMemcpy2D_v2(copy: *const u64);
    cuMemcpy2D_v2_ptds(copy: *const u64);
    cuMemcpy2DAsync_v2(copy: *const u64, stream: usize);
    cuMemcpy2DAsync_v2_ptsz(copy: *const u64, stream: usize);
    cuMemcpy(to: usize, from: usize, size: usize);
    cuMemcpy_ptds(to: usize, from: usize, size: usize);
    cuMemcpyAsync(to: usize, from: usize, size: usize, stream: usize);
    cuMemcpyAsync_ptsz(to: usize, from: usize, size: usize, stream: usize);
    cuMemcpyBatchAsync_v2(
        to: *const usize, from: *const usize, sizes: *const usize, count: usize, attributes: *const u32,
        first: *const usize, attribute_count: usize, stream: usize
    );
    cuMemcpy3DPeer(copy: *const u64);
    cuMemcpyPeer(to: usize, to_context: usize, from: usize, from_context: usize, size: usize);
    cuMemcpyHtoD_v2(to: usize, from: usize, size: usize);
    cuMemcpyHtoD_v2_ptds(to: usize, from: usize, size: usize);
    cuMemcpyDtoH_v2(to: usize, from: usize, size: usize);
    cuMemcpyDtoH_v2_ptds(to: usize, from: usize, size: usize);
    cuMemcpyDtoD_v2(to: usize, from: usize, size: usize);
    cuMemcpyDtoD_v2_ptds(to: usize, from: usize, size: usize);
    cuMemcpyHtoDAsync_v2(to: usize, from: usize, size: usize, stream: usize);
    cuMemcpyHtoDAsync_v2_ptsz(to: usize, from: usize, size: usize, stream: usize);
    cuMemcpyDtoHAsync_v2(to: usize, from: usize, size: usize, stream: usize);
    cuMemcpyDtoHAsync_v2_ptsz(to: usize, from: usize, size: usize, stream: usize);
    cuMemcpyDtoDAsync_v2(to: usize, from: usize, size: usize, stream: usize);
    cuMemcpyDtoDAsync_v2_ptsz(to: usize, from: usize, size: usize, stream: usize);
    cuMemsetD32_v2(to: usize, value: u32, count: usize);
    cuMemsetD32_v2_ptds(to: usize, value: u32, count: usize);
    cuMemsetD32Async(to: usize, value: u32, count: usize, stream: usize);
    cuMemsetD32Async_ptsz(to: usize, value: u32, count: usize, stream: usize);
    cuLaunchKernel(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
        stream: usize, arguments: *mut *mut c_void, extra: usize
    );
    cuLaunchKernel_ptsz(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32,
        stream: usize, arguments: *mut *mut c_void, extra: usize
    );
    cuLaunchKernelEx(config: usize, function: usize, arguments: *mut *mut c_void, extra: usize);
    cuLaunchKernelEx_ptsz(config: usize, function: usize, arguments: *mut *mut c_void, extra: usize);
    cuLaunchHostFunc(stream: usize, function: HostFunction, data: usize);
    cuLaunchHostFunc_ptsz(stream: usize, function: HostFunction, data: usize);
    cuGraphCreate(graph: *mut usize, flags: u32);
    cuGraphDestroy(graph: usize);
    cuGraphAddKernelNode_v2(node: *mut usize, graph: usize, before: *const usize, count: usize, params: usize);
    cuGraphAddMemsetNode(
        node: *mut usize, graph: usize, before: *const usize, count: usize, params: usize, context: usize
    );
    cuGraphAddHostNode(node: *mut usize, graph: usize, before: *const usize, count: usize, params: usize);
    cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64);
    cuGraphExecUpdate_v2(executable: usize, graph: usize, result: usize);
    cuGraphExecDestroy(executable: usize);
    cuGraphLaunch(executable: usize, stream: usize);
    cuGraphLaunch_ptsz(executable: usize, stream: usize);
}

/// The driver that the loader finds; `None` if there is none.
pub(super) fn driver() -> Option<&'static Api> {
    static API: OnceLock<Option<Api>> = OnceLock::new();
    let load = || {
        // SAFETY: loading a driver runs its constructors, which is what this program is for.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        (!library.is_null()).then(|| Api::find(library))
    };
    API.get_or_init(load).as_ref()
}

/// The first fields of `struct mps_shim_recovery`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Recovered {
    pub(super) count: u64,
    pub(super) refused: u64,
    pub(super) error: u32,
    pub(super) lost_streams: u32,
    ranges_in_doubt: u64,
    bytes_in_doubt: u64,
    pub(super) modules_anew: u64,
}

impl Recovered {
    /// Whether the library says that something was lost.
    pub(super) fn is_lossy(&self) -> bool {
        self.lost_streams > 0 || self.modules_anew > 0
    }
}

fn of_library(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks a name up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Tells the library that the program waits for nothing, which says whether a neighbour's fault would go unnoticed.
pub(super) fn rest() -> bool {
    type Rest = extern "C" fn() -> i32;
    // SAFETY: the function of this name has this type, by the library's header.
    let typed = |found| unsafe { std::mem::transmute::<*mut c_void, Rest>(found) };
    of_library(c"mps_shim_rest").map(typed).is_some_and(|rest| rest() == 1)
}

/// What the library says of the last recovery; `None` if it is not preloaded.
pub(super) fn recovered() -> Option<Recovered> {
    type Ask = unsafe extern "C" fn(*mut Recovered, usize) -> u64;
    static ASK: OnceLock<Option<Ask>> = OnceLock::new();
    // SAFETY: the function of this name has this type, by the library's header.
    let typed = |found| unsafe { std::mem::transmute::<*mut c_void, Ask>(found) };
    let ask = (*ASK.get_or_init(|| of_library(c"mps_shim_last_recovery").map(typed)))?;
    let mut recovered = Recovered::default();
    // SAFETY: there is as much room as is said.
    unsafe { ask(&raw mut recovered, size_of::<Recovered>()) };
    Some(recovered)
}

/// Whether there was any recovery in this process.
pub(super) fn has_recovered() -> bool {
    recovered().is_some_and(|recovered| recovered.count > 0)
}

/// Bytes before the reason in what the library says, of it, and from it to the way in which the recovery was made.
const BEFORE: usize = 8 * 2 + 4 * 2 + 8 * 4 + 8 * 11 + 4 * 6;
const LENGTH: usize = 160;
const WAY: usize = BEFORE + LENGTH + 4 * 2 + 8;
const BY_THE_SPARE: u32 = 1;

/// What stands behind what [`Recovered`] has, where the header says.
fn last() -> Option<[u64; (WAY + 8) / 8]> {
    let found = of_library(c"mps_shim_last_recovery")?;
    type Ask = unsafe extern "C" fn(*mut u8, usize) -> u64;
    // SAFETY: as above.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Ask>(found) };
    let mut words = [0_u64; (WAY + 8) / 8];
    // SAFETY: there is as much room as is said.
    unsafe { ask(words.as_mut_ptr().cast(), WAY + 8) };
    Some(words)
}

/// Whether the last recovery went on with a spare copy.
pub(super) fn is_by_spare() -> bool {
    let low = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or_default();
    last().is_some_and(|words| low(words[WAY / 8]) == BY_THE_SPARE)
}

/// Why the last recovery was refused.
pub(super) fn reason() -> String {
    let bytes: Vec<u8> = last().into_iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let text = bytes.get(BEFORE..).unwrap_or_default();
    CStr::from_bytes_until_nul(text).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What the library says to be in doubt: address and size of each range.
pub(super) fn in_doubt() -> Vec<[usize; 2]> {
    type Ask = unsafe extern "C" fn(*mut [usize; 2], usize) -> usize;
    let Some(found) = of_library(c"mps_shim_in_doubt") else { return Vec::new() };
    // SAFETY: the function of this name has this type, by the library's header.
    let ask = unsafe { std::mem::transmute::<*mut c_void, Ask>(found) };
    // SAFETY: it writes nothing where there is no room.
    let count = unsafe { ask(std::ptr::null_mut(), 0) };
    let mut ranges = vec![[0; 2]; count];
    // SAFETY: there is as much room as is said.
    let now = unsafe { ask(ranges.as_mut_ptr(), count) };
    ranges.truncate(now);
    ranges
}
