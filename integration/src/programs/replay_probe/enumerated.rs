//! Kernels of a library and functions of a module that the program has got in a list, and not by name.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::failed;
use super::workload::words_are;
use crate::programs::gpu::{Gpu, GpuError, KERNELS};
use crate::programs::memory_probe::{allocate, check};
use cudarc::driver::sys;
use std::ffi::{CStr, c_void};
use std::ptr;

/// Words that a round counts up.
const WORDS: u32 = 256;
/// The function among them that does so.
const COUNTS_UP: &CStr = c"increment";

/// All of them, and what they work on.
pub(super) struct Enumerated {
    library: sys::CUlibrary,
    module: sys::CUmodule,
    kernels: Vec<sys::CUkernel>,
    functions: Vec<sys::CUfunction>,
    /// The places in the lists of the one that is launched.
    launched: [usize; 2],
    words: u64,
    count: u32,
}

impl Enumerated {
    pub(super) fn new() -> Result<Self, GpuError> {
        let (mut library, mut module) = (ptr::null_mut(), ptr::null_mut());
        let (names, values) = (ptr::null_mut(), ptr::null_mut());
        let (library_names, library_values) = (ptr::null_mut(), ptr::null_mut());
        let (into, image) = (&raw mut library, KERNELS.as_ptr().cast());
        // SAFETY: the result is a variable of ours, the image ends with NUL, and there are no options.
        let answer = unsafe { sys::cuLibraryLoadData(into, image, names, values, 0, library_names, library_values, 0) };
        check("cuLibraryLoadData", answer)?;
        // SAFETY: as above.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()) })?;
        let (kernels, functions) = (kernels_of(library)?, functions_of(module)?);
        let mut launched = [0; 2];
        for (place, of) in kernels.iter().enumerate() {
            let mut name = ptr::null();
            // SAFETY: the result is a variable of ours.
            check("cuKernelGetName", unsafe { sys::cuKernelGetName(&raw mut name, *of) })?;
            // SAFETY: the driver has just given it.
            if unsafe { CStr::from_ptr(name) } == COUNTS_UP {
                launched[0] = place;
            }
        }
        for (place, of) in functions.iter().enumerate() {
            let mut name = ptr::null();
            // SAFETY: as above.
            check("cuFuncGetName", unsafe { sys::cuFuncGetName(&raw mut name, *of) })?;
            // SAFETY: as above.
            if unsafe { CStr::from_ptr(name) } == COUNTS_UP {
                launched[1] = place;
            }
        }
        let words = allocate(WORDS as usize * 4)?;
        let mut enumerated = Self { library, module, kernels, functions, launched, words, count: 0 };
        enumerated.begin_anew()?;
        Ok(enumerated)
    }

    /// What kernels have written is in doubt after a recovery.
    pub(super) fn begin_anew(&mut self) -> Result<(), GpuError> {
        self.count = 0;
        // SAFETY: the driver checks the destination.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(self.words, 0, WORDS as usize * 4) })
    }

    /// Counts up by a kernel and by a function, and compares; and asks for the lists again.
    pub(super) fn round(&mut self, gpu: &Gpu) -> Result<(), GpuError> {
        let function = self.functions[self.launched[1]];
        for of in [self.kernels[self.launched[0]].cast(), function] {
            let (address, words) = (self.words, WORDS);
            let mut places: [*mut c_void; 2] =
                [(&raw const address).cast_mut().cast(), (&raw const words).cast_mut().cast()];
            let (places, none, stream) = (places.as_mut_ptr(), ptr::null_mut(), ptr::null_mut());
            // SAFETY: the kernel takes these arguments; a kernel stands for its function, by the documentation.
            check("cuLaunchKernel", unsafe { sys::cuLaunchKernel(of, 1, 1, 1, WORDS, 1, 1, 0, stream, places, none) })?;
            self.count += 1;
        }
        if !words_are(&gpu.read(self.words, WORDS as usize)?, self.count) {
            return Err(failed("cuLaunchKernel", "a word that an enumerated kernel counts up is wrong"));
        }
        if kernels_of(self.library)? != self.kernels || functions_of(self.module)? != self.functions {
            return Err(failed("cuLibraryEnumerateKernels", "other handles than before"));
        }
        Ok(())
    }
}

fn kernels_of(library: sys::CUlibrary) -> Result<Vec<sys::CUkernel>, GpuError> {
    let mut count = 0;
    // SAFETY: the result is a variable of ours.
    check("cuLibraryGetKernelCount", unsafe { sys::cuLibraryGetKernelCount(&raw mut count, library) })?;
    let mut all = vec![ptr::null_mut(); count as usize];
    // SAFETY: there is room for so many.
    check("cuLibraryEnumerateKernels", unsafe { sys::cuLibraryEnumerateKernels(all.as_mut_ptr(), count, library) })?;
    Ok(all)
}

fn functions_of(module: sys::CUmodule) -> Result<Vec<sys::CUfunction>, GpuError> {
    let mut count = 0;
    // SAFETY: as above.
    check("cuModuleGetFunctionCount", unsafe { sys::cuModuleGetFunctionCount(&raw mut count, module) })?;
    let mut all = vec![ptr::null_mut(); count as usize];
    // SAFETY: as above.
    check("cuModuleEnumerateFunctions", unsafe { sys::cuModuleEnumerateFunctions(all.as_mut_ptr(), count, module) })?;
    Ok(all)
}
