//! The driver, with errors that say which call failed.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use cudarc::driver::{DriverError, result, sys};
use std::ffi::{CString, c_void};

/// PTX of the kernels, with the NUL that the driver reads up to.
pub(super) const KERNELS: &str = concat!(include_str!("kernels.ptx"), "\0");
/// Threads of a block.
const BLOCK: u32 = 256;

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {name} ({code})")]
pub struct GpuError {
    /// The driver's function.
    pub call: &'static str,
    /// `CUresult`.
    pub code: u32,
    /// Its name.
    pub name: String,
}

impl GpuError {
    fn new(call: &'static str, error: DriverError) -> Self {
        let name = error.error_name().map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned());
        Self { call, code: error.0 as u32, name }
    }

    /// The low eight bits of the number, which is all that an exit status holds; never 0.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        u8::try_from(self.code & 0xff).ok().filter(|&status| status != 0).unwrap_or(1)
    }
}

fn named(call: &'static str) -> impl FnOnce(DriverError) -> GpuError {
    move |error| GpuError::new(call, error)
}

/// Initialises the driver.
///
/// # Errors
/// The driver's; one with code 0 when there is no driver library.
pub fn initialise() -> Result<(), GpuError> {
    // SAFETY: loading a driver runs its constructors, which is what this program is for.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError { call: "dlopen", code: 0, name: "there is no libcuda.so.1".to_owned() });
    }
    result::init().map_err(named("cuInit"))
}

/// A kernel's argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// A number or address of eight bytes.
    U64(u64),
    /// A number of four bytes.
    U32(u32),
}

/// A kernel of ours, in a module that stays loaded.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(pub(super) sys::CUfunction);

/// A stream, as long as its context lives.
#[derive(Debug, Clone, Copy)]
pub struct Stream(pub(super) sys::CUstream);

/// The primary context of a GPU, current on this thread.
#[derive(Debug)]
pub struct Gpu {
    module: Option<sys::CUmodule>,
}

impl Gpu {
    /// Takes the context of the GPU of this ordinal. [`initialise`] comes first.
    ///
    /// # Errors
    /// The driver's.
    pub fn open(ordinal: i32) -> Result<Self, GpuError> {
        let device = result::device::get(ordinal).map_err(named("cuDeviceGet"))?;
        // SAFETY: the device is one that the driver has just given.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(named("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the context is retained until the process ends.
        unsafe { result::ctx::set_current(context) }.map_err(named("cuCtxSetCurrent"))?;
        Ok(Self { module: None })
    }

    /// Destroys the context and takes a new one: the cure in place. Everything that was in it is gone.
    ///
    /// # Errors
    /// The driver's.
    pub fn reset(ordinal: i32) -> Result<Self, GpuError> {
        let device = result::device::get(ordinal).map_err(named("cuDeviceGet"))?;
        // SAFETY: handles of the old context are not used again: `Gpu` and its kernels are dropped by the caller.
        unsafe { sys::cuDevicePrimaryCtxReset_v2(device) }.result().map_err(named("cuDevicePrimaryCtxReset"))?;
        Self::open(ordinal)
    }

    /// Allocates device memory and leaves it allocated.
    ///
    /// # Errors
    /// The driver's.
    pub fn allocate(&self, bytes: usize) -> Result<u64, GpuError> {
        // SAFETY: a context is current.
        unsafe { result::malloc_sync(bytes) }.map_err(named("cuMemAlloc"))
    }

    /// Fills device memory with zeros.
    ///
    /// # Errors
    /// The driver's.
    pub fn clear(&self, address: u64, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: a context is current; the driver checks the range.
        unsafe { result::memset_d8_sync(address, 0, bytes) }.map_err(named("cuMemsetD8"))
    }

    /// Reads words of device memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn read(&self, address: u64, count: usize) -> Result<Vec<u32>, GpuError> {
        let mut words = vec![0; count];
        // SAFETY: the destination is as long as the copy; the driver checks the source.
        unsafe { result::memcpy_dtoh_sync(&mut words, address) }.map_err(named("cuMemcpyDtoH"))?;
        Ok(words)
    }

    /// Loads a kernel.
    ///
    /// # Errors
    /// The driver's.
    pub fn kernel(&mut self, name: &str) -> Result<Kernel, GpuError> {
        let module = match self.module {
            Some(module) => module,
            None => {
                // SAFETY: the image is a text that ends with NUL.
                let loaded = unsafe { result::module::load_data(KERNELS.as_ptr().cast()) };
                *self.module.insert(loaded.map_err(named("cuModuleLoadData"))?)
            }
        };
        let name = CString::new(name).expect("a kernel's name has no NUL");
        // SAFETY: the module stays loaded.
        unsafe { result::module::get_function(module, name) }.map(Kernel).map_err(named("cuModuleGetFunction"))
    }

    /// Launches a kernel with so many threads, without waiting for it.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self, kernel: Kernel, threads: u32, arguments: &[Argument]) -> Result<(), GpuError> {
        self.launch_in(Stream(std::ptr::null_mut()), kernel, threads, arguments)
    }

    /// The same in a stream's order.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_in(
        &self,
        stream: Stream,
        kernel: Kernel,
        threads: u32,
        arguments: &[Argument],
    ) -> Result<(), GpuError> {
        let mut places: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::U64(value) => std::ptr::from_ref(value).cast_mut().cast(),
                Argument::U32(value) => std::ptr::from_ref(value).cast_mut().cast(),
            })
            .collect();
        let grid = (threads.div_ceil(BLOCK).max(1), 1, 1);
        let block = (threads.clamp(1, BLOCK), 1, 1);
        // SAFETY: the kernels in our PTX take these arguments; the driver copies them before it returns.
        unsafe { result::launch_kernel(kernel.0, grid, block, 0, stream.0, &mut places) }
            .map_err(named("cuLaunchKernel"))
    }

    /// Waits for everything that was launched.
    ///
    /// # Errors
    /// The driver's.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        result::ctx::synchronize().map_err(named("cuCtxSynchronize"))
    }
}
