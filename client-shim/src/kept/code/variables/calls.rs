//! The copies and sets that are followed, each passed on and noted.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use super::{Target, copied, copied_from_any, set};
use crate::cuda::{
    call::{Bypass, Driver},
    functions::copy as driver_copy,
    result::CUresult,
    types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUcontext, CUdeviceptr, CUstream},
};

/// From each line `logic(function: arguments) target => note;` makes the logic of a function: where it writes is found
/// out first, then the driver is called, then what was written is noted.
macro_rules! followed {
    ($(
        $logic:ident($function:ident: $($argument:ident: $type:ty),+) $target:expr => |$met:ident, $answer:ident| $note:expr;
    )+) => {
        $(
            #[doc = concat!("Logic of `", stringify!($function), "`, and of its variants with the same arguments.")]
            pub(crate) fn $logic(
                driver: &mut Driver<driver_copy::$function::Signature>,
                $($argument: $type),+
            ) -> Result<CUresult, Bypass> {
                let $met = $target?;
                // SAFETY: the program's call with the program's arguments.
                let $answer = driver.call(|function| unsafe { function($($argument),+) });
                $note
            }
        )+
    };
}

followed! {
    copy(cuMemcpy: destination: CUdeviceptr, source: CUdeviceptr, count: usize)
        Target::new(destination, count) => |target, answer| copied_from_any(&target, source, true, answer);
    copy_in_order(cuMemcpyAsync: destination: CUdeviceptr, source: CUdeviceptr, count: usize, stream: CUstream)
        Target::new(destination, count) => |target, answer| copied_from_any(&target, source, false, answer);
    to_device(cuMemcpyHtoD_v2: destination: CUdeviceptr, source: *const c_void, count: usize)
        Target::new(destination, count) => |target, answer| copied(&target, source, true, answer);
    to_device_in_order(cuMemcpyHtoDAsync_v2: destination: CUdeviceptr, source: *const c_void, count: usize, stream: CUstream)
        Target::new(destination, count) => |target, answer| copied(&target, source, false, answer);
    on_device(cuMemcpyDtoD_v2: destination: CUdeviceptr, source: CUdeviceptr, count: usize)
        Target::new(destination, count) => |target, answer| target.written(answer, None);
    on_device_in_order(cuMemcpyDtoDAsync_v2: destination: CUdeviceptr, source: CUdeviceptr, count: usize, stream: CUstream)
        Target::new(destination, count) => |target, answer| target.written(answer, None);
    to_peer(cuMemcpyPeer: destination: CUdeviceptr, of: CUcontext, source: CUdeviceptr, from: CUcontext, count: usize)
        Target::new(destination, count) => |target, answer| target.written(answer, None);
    to_peer_in_order(cuMemcpyPeerAsync: destination: CUdeviceptr, of: CUcontext, source: CUdeviceptr, from: CUcontext, count: usize, stream: CUstream)
        Target::new(destination, count) => |target, answer| target.written(answer, None);
    from_array(cuMemcpyAtoD_v2: destination: CUdeviceptr, array: CUarray, offset: usize, count: usize)
        Target::new(destination, count) => |target, answer| target.written(answer, None);
    set_bytes(cuMemsetD8_v2: destination: CUdeviceptr, value: c_uchar, count: usize)
        Target::new(destination, count) => |target, answer| set(&target, &value.to_le_bytes(), answer);
    set_bytes_in_order(cuMemsetD8Async: destination: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream)
        Target::new(destination, count) => |target, answer| set(&target, &value.to_le_bytes(), answer);
    set_halves(cuMemsetD16_v2: destination: CUdeviceptr, value: c_ushort, count: usize)
        Target::new(destination, count.saturating_mul(2)) => |target, answer| set(&target, &value.to_le_bytes(), answer);
    set_halves_in_order(cuMemsetD16Async: destination: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream)
        Target::new(destination, count.saturating_mul(2)) => |target, answer| set(&target, &value.to_le_bytes(), answer);
    set_words(cuMemsetD32_v2: destination: CUdeviceptr, value: c_uint, count: usize)
        Target::new(destination, count.saturating_mul(4)) => |target, answer| set(&target, &value.to_le_bytes(), answer);
    set_words_in_order(cuMemsetD32Async: destination: CUdeviceptr, value: c_uint, count: usize, stream: CUstream)
        Target::new(destination, count.saturating_mul(4)) => |target, answer| set(&target, &value.to_le_bytes(), answer);
    fill_bytes(cuMemsetD2D8_v2: destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize)
        Target::new(destination, pitch.saturating_mul(height)) => |target, answer| target.written(answer, None);
    fill_bytes_in_order(cuMemsetD2D8Async: destination: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream)
        Target::new(destination, pitch.saturating_mul(height)) => |target, answer| target.written(answer, None);
    fill_halves(cuMemsetD2D16_v2: destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize)
        Target::new(destination, pitch.saturating_mul(height)) => |target, answer| target.written(answer, None);
    fill_halves_in_order(cuMemsetD2D16Async: destination: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream)
        Target::new(destination, pitch.saturating_mul(height)) => |target, answer| target.written(answer, None);
    fill_words(cuMemsetD2D32_v2: destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize)
        Target::new(destination, pitch.saturating_mul(height)) => |target, answer| target.written(answer, None);
    fill_words_in_order(cuMemsetD2D32Async: destination: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream)
        Target::new(destination, pitch.saturating_mul(height)) => |target, answer| target.written(answer, None);
    flat(cuMemcpy2D_v2: copy: *const CUDA_MEMCPY2D)
        Target::of_flat(copy) => |target, answer| target.written(answer, None);
    flat_in_order(cuMemcpy2DAsync_v2: copy: *const CUDA_MEMCPY2D, stream: CUstream)
        Target::of_flat(copy) => |target, answer| target.written(answer, None);
    solid(cuMemcpy3D_v2: copy: *const CUDA_MEMCPY3D)
        Target::of_solid(copy) => |target, answer| target.written(answer, None);
    solid_in_order(cuMemcpy3DAsync_v2: copy: *const CUDA_MEMCPY3D, stream: CUstream)
        Target::of_solid(copy) => |target, answer| target.written(answer, None);
}
