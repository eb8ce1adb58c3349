//! The parameters of nodes: a kernel's, of a set, of a copy.
#![expect(unsafe_code, reason = "zeros are structures of the driver")]

use crate::programs::gpu::Kernel;
use cudarc::driver::sys;
use std::ffi::c_void;

/// A kernel's arguments where they stay.
pub(in crate::programs::replay_probe) struct Increment {
    address: u64,
    words: u32,
    places: [*mut c_void; 2],
}

impl Increment {
    pub(in crate::programs::replay_probe) fn of(address: u64, words: u32) -> Box<Self> {
        let mut made = Box::new(Self { address, words, places: [std::ptr::null_mut(); 2] });
        made.places = [(&raw mut made.address).cast(), (&raw mut made.words).cast()];
        made
    }

    pub(in crate::programs::replay_probe) fn params(&mut self, kernel: Kernel) -> sys::CUDA_KERNEL_NODE_PARAMS {
        // SAFETY: zeros are no function, no kernel and no context.
        let mut params: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        params.func = kernel.0;
        (params.gridDimX, params.gridDimY, params.gridDimZ) = (self.words.div_ceil(256), 1, 1);
        (params.blockDimX, params.blockDimY, params.blockDimZ) = (256, 1, 1);
        params.kernelParams = self.places.as_mut_ptr();
        params
    }
}

/// A set of so many words.
pub(in crate::programs::replay_probe) fn set_params(
    address: u64,
    words: u32,
    value: u32,
) -> sys::CUDA_MEMSET_NODE_PARAMS {
    // SAFETY: all fields are numbers.
    let mut params: sys::CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
    (params.dst, params.value, params.elementSize) = (address, value, 4);
    (params.width, params.height, params.pitch) = (words as usize, 1, words as usize * 4);
    params
}

/// A copy of so many words on the device.
pub(in crate::programs::replay_probe) fn copy_params(destination: u64, source: u64, words: u32) -> sys::CUDA_MEMCPY3D {
    let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: device,
        srcHost: std::ptr::null(),
        srcDevice: source,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: device,
        dstHost: std::ptr::null_mut(),
        dstDevice: destination,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: words as usize * 4,
        Height: 1,
        Depth: 1,
    }
}
