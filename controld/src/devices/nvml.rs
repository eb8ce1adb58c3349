//! NVIDIA's management library, as far as the child processes of [`devices`](super) call it.
//!
//! Structures and numbers are those of the library's documentation, stable since release 510. Only a child process loads
//! it; whatever it does there, hang or die, costs the daemon nothing but an answer.
#![expect(unsafe_code, reason = "calls NVIDIA's management library, which has only a C interface")]

use nix::unistd::alarm;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const LIBRARY: &CStr = c"libnvidia-ml.so.1";
/// After so many seconds this process ends whatever the library does: whoever has started it may be dead.
const LIFE: u32 = 60;
/// More processes than a GPU has contexts for.
const MAX_PROCESSES: usize = 1024;
/// Room that the library documents for a UUID.
const UUID_LENGTH: c_uint = 96;
/// What the library says of memory that it can't tell.
const NO_MEMORY: c_ulonglong = c_ulonglong::MAX;
/// What it says of the instance of a process on a GPU that is not divided.
const NO_INSTANCE: c_uint = c_uint::MAX;

type Handle = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type GetNumber = unsafe extern "C" fn(*mut c_uint) -> c_int;
type GetByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> c_int;
type GetByUuid = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
type GetText = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
type GetOfDevice = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
type GetParent = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type SetOfDevice = unsafe extern "C" fn(Handle, c_uint) -> c_int;
type GetMemory = unsafe extern "C" fn(Handle, *mut Memory) -> c_int;
type GetProcesses = unsafe extern "C" fn(Handle, *mut c_uint, *mut ProcessInfo) -> c_int;

/// `nvmlProcessInfo_v2_t`, which the third version of the calls takes.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessInfo {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlMemory_t`.
#[repr(C)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NvmlError {
    /// The library is not installed, or not for this process.
    #[error("libnvidia-ml.so.1 can't be loaded")]
    NoLibrary,
    /// It is too old, or something else of that name.
    #[error("libnvidia-ml.so.1 has no {0}")]
    NoFunction(&'static str),
    /// The call is for root.
    #[error("it takes root")]
    NoPermission,
    /// The GPU has no such thing.
    #[error("the GPU does not support it")]
    NotSupported,
    /// Another of the library's errors.
    #[error("{0} failed with NVML error {1}")]
    Failed(&'static str, c_int),
}

fn check(name: &'static str, result: c_int) -> Result<(), NvmlError> {
    match result {
        0 => Ok(()),
        3 => Err(NvmlError::NotSupported),
        4 => Err(NvmlError::NoPermission),
        number => Err(NvmlError::Failed(name, number)),
    }
}

/// A process with a context on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GpuProcess {
    pub(super) pid: u32,
    /// GPU memory in bytes, where the library can tell.
    pub(super) bytes: Option<u64>,
    /// GPU instance and compute instance, on a GPU that is divided.
    pub(super) instance: Option<(u32, u32)>,
}

/// The library, initialised.
pub(super) struct Nvml {
    library: *mut c_void,
    path: PathBuf,
}

/// A GPU or an instance of one.
#[derive(Clone, Copy)]
pub(super) struct Gpu<'a> {
    nvml: &'a Nvml,
    handle: Handle,
}

macro_rules! function {
    ($nvml:expr, $name:literal, $type:ty) => {{
        let address = $nvml.symbol($name)?;
        // SAFETY: the library documents the function of this name with this signature.
        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
    }};
}

impl Nvml {
    /// Loads and initialises the library in a process that is there for this alone: the one at `path`, where there is one, else the one that the loader finds.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, NvmlError> {
        alarm::set(LIFE);
        let named = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        let library = named.and_then(|name| load(&name)).or_else(|| load(LIBRARY)).ok_or(NvmlError::NoLibrary)?;
        let mut nvml = Self { library, path: PathBuf::new() };
        let init = function!(nvml, "nvmlInit_v2", Init);
        nvml.path = path_of(init as *const c_void);
        // SAFETY: the call takes nothing.
        check("nvmlInit_v2", unsafe { init() })?;
        Ok(nvml)
    }

    /// The file that was loaded; empty when the loader does not tell.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn symbol(&self, name: &'static str) -> Result<*mut c_void, NvmlError> {
        let text = CString::new(name).map_err(|_| NvmlError::NoFunction(name))?;
        // SAFETY: `library` is a handle from dlopen that is never closed, and the name is NUL-terminated.
        let address = unsafe { libc::dlsym(self.library, text.as_ptr()) };
        if address.is_null() { Err(NvmlError::NoFunction(name)) } else { Ok(address) }
    }

    /// Every GPU that this process may see, in the library's order.
    pub(super) fn gpus(&self) -> Result<Vec<Gpu<'_>>, NvmlError> {
        let get_count = function!(self, "nvmlDeviceGetCount_v2", GetNumber);
        let get_handle = function!(self, "nvmlDeviceGetHandleByIndex_v2", GetByIndex);
        let mut count = 0;
        // SAFETY: the pointer is to a local of the right type.
        check("nvmlDeviceGetCount_v2", unsafe { get_count(&raw mut count) })?;
        let gpu = |index| {
            let mut handle = std::ptr::null_mut();
            // SAFETY: the pointer is to a local of the right type.
            (unsafe { get_handle(index, &raw mut handle) } == 0).then_some(Gpu { nvml: self, handle })
        };
        // One that has fallen off the bus answers nothing, and the others do.
        Ok((0..count).filter_map(gpu).collect())
    }

    /// The GPU, or the instance of one, with this UUID.
    pub(super) fn by_uuid(&self, uuid: &str) -> Result<Gpu<'_>, NvmlError> {
        const NAME: &str = "nvmlDeviceGetHandleByUUID";
        let get_handle = function!(self, "nvmlDeviceGetHandleByUUID", GetByUuid);
        // NVML_ERROR_NOT_FOUND, as for any other text that names nothing.
        let text = CString::new(uuid).map_err(|_| NvmlError::Failed(NAME, 6))?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the text is NUL-terminated, and the pointer is to a local of the right type.
        check(NAME, unsafe { get_handle(text.as_ptr(), &raw mut handle) })?;
        Ok(Gpu { nvml: self, handle })
    }
}

impl Gpu<'_> {
    /// `GPU-…`, or `MIG-…` of an instance.
    pub(super) fn uuid(&self) -> Result<String, NvmlError> {
        let get = function!(self.nvml, "nvmlDeviceGetUUID", GetText);
        let mut text = [0 as c_char; UUID_LENGTH as usize];
        // SAFETY: the buffer has the length that is named.
        check("nvmlDeviceGetUUID", unsafe { get(self.handle, text.as_mut_ptr(), UUID_LENGTH) })?;
        let bytes: Vec<u8> = text.iter().map(|&c| c.cast_unsigned()).take_while(|&byte| byte != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The number of its compute mode.
    pub(super) fn compute_mode(&self) -> Result<u32, NvmlError> {
        let get = function!(self.nvml, "nvmlDeviceGetComputeMode", GetOfDevice);
        let mut mode = 0;
        // SAFETY: the pointer is to a local of the right type, and the handle came from the library.
        check("nvmlDeviceGetComputeMode", unsafe { get(self.handle, &raw mut mode) })?;
        Ok(mode)
    }

    /// Its memory and what of that is in use, in bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64), NvmlError> {
        let get = function!(self.nvml, "nvmlDeviceGetMemoryInfo", GetMemory);
        let mut memory = Memory { total: 0, free: 0, used: 0 };
        // SAFETY: the pointer is to a local of the right type, and the handle came from the library.
        check("nvmlDeviceGetMemoryInfo", unsafe { get(self.handle, &raw mut memory) })?;
        Ok((memory.total, memory.used))
    }

    /// Changes its compute mode, which takes root.
    pub(super) fn set_compute_mode(&self, mode: u32) -> Result<(), NvmlError> {
        let set = function!(self.nvml, "nvmlDeviceSetComputeMode", SetOfDevice);
        // SAFETY: the handle came from the library; the number is one of its own.
        check("nvmlDeviceSetComputeMode", unsafe { set(self.handle, mode) })
    }

    /// The GPU that this instance is a part of, and which part: GPU instance and compute instance.
    pub(super) fn place(&self) -> Result<(String, (u32, u32)), NvmlError> {
        let get_parent = function!(self.nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", GetParent);
        let get_gpu_instance = function!(self.nvml, "nvmlDeviceGetGpuInstanceId", GetOfDevice);
        let get_compute_instance = function!(self.nvml, "nvmlDeviceGetComputeInstanceId", GetOfDevice);
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type, and the handle came from the library.
        let result = unsafe { get_parent(self.handle, &raw mut handle) };
        check("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", result)?;
        let (mut gpu_instance, mut compute_instance) = (0, 0);
        // SAFETY: as above.
        let result = unsafe { get_gpu_instance(self.handle, &raw mut gpu_instance) };
        check("nvmlDeviceGetGpuInstanceId", result)?;
        // SAFETY: as above.
        let result = unsafe { get_compute_instance(self.handle, &raw mut compute_instance) };
        check("nvmlDeviceGetComputeInstanceId", result)?;
        Ok((Gpu { nvml: self.nvml, handle }.uuid()?, (gpu_instance, compute_instance)))
    }

    /// Every process with a compute context, servers and clients of MPS among them.
    pub(super) fn processes(&self) -> Result<Vec<GpuProcess>, NvmlError> {
        self.list("nvmlDeviceGetComputeRunningProcesses_v3")
    }

    /// Those that are clients of an MPS server, whoever's, also when that server is dead.
    pub(super) fn mps_clients(&self) -> Result<Vec<GpuProcess>, NvmlError> {
        self.list("nvmlDeviceGetMPSComputeRunningProcesses_v3")
    }

    fn list(&self, name: &'static str) -> Result<Vec<GpuProcess>, NvmlError> {
        let address = self.nvml.symbol(name)?;
        // SAFETY: the library documents both functions that are named above with this signature.
        let get = unsafe { std::mem::transmute::<*mut c_void, GetProcesses>(address) };
        let empty = ProcessInfo { pid: 0, used_memory: 0, gpu_instance: 0, compute_instance: 0 };
        let mut rows = vec![empty; MAX_PROCESSES];
        let mut length = c_uint::try_from(MAX_PROCESSES).expect("a thousand fit");
        // SAFETY: the array has the length that is named, and the library writes no more.
        check(name, unsafe { get(self.handle, &raw mut length, rows.as_mut_ptr()) })?;
        let told = |row: &ProcessInfo| GpuProcess {
            pid: row.pid,
            bytes: Some(row.used_memory).filter(|bytes| *bytes != NO_MEMORY),
            instance: Some((row.gpu_instance, row.compute_instance)).filter(|(of, _)| *of != NO_INSTANCE),
        };
        Ok(rows.iter().take(length as usize).map(told).collect())
    }
}

fn load(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is NUL-terminated; the library's own constructors are its business.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    (!library.is_null()).then_some(library)
}

/// The file that a function was loaded from.
fn path_of(function: *const c_void) -> PathBuf {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is only looked up, and the pointer is to a local of the right type.
    if unsafe { libc::dladdr(function, found.as_mut_ptr()) } == 0 {
        return PathBuf::new();
    }
    // SAFETY: the call has filled it, and zeros are a valid value of it.
    let name = unsafe { found.assume_init() }.dli_fname;
    if name.is_null() {
        return PathBuf::new();
    }
    // SAFETY: the loader's own text, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(name) };
    PathBuf::from(std::ffi::OsString::from_vec(OsStr::from_bytes(name.to_bytes()).as_bytes().to_vec()))
}
