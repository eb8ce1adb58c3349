//! Copies, sets, prefetches.
#![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

use crate::keep::journal;

hooks! {
    Copy;
    {
        fn cuMemBatchDecompressAsync(
            params_array: *mut CUmemDecompressParams, count: usize, flags: c_uint, error_index: *mut usize,
            stream: CUstream,
        );
        fn cuMemDiscardAndPrefetchBatchAsync(
            dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemDiscardBatchAsync(
            dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemPrefetchAsync_v2(
            dev_ptr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, stream: CUstream,
        );
        fn cuMemPrefetchBatchAsync(
            dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) => journal::copy;
        fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) => journal::flat_in_order;
        fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) => journal::flat;
        fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) => journal::flat;
        fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) => journal::solid_in_order;
        fn cuMemcpy3DBatchAsync_v2(
            num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER);
        fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream);
        fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) => journal::solid;
        fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, stream: CUstream) => journal::copy_in_order;
        fn cuMemcpyAtoA_v2(
            dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize,
        );
        fn cuMemcpyAtoD_v2(dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize) => journal::from_array;
        fn cuMemcpyAtoHAsync_v2(
            dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, stream: CUstream,
        );
        fn cuMemcpyAtoH_v2(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize);
        fn cuMemcpyBatchAsync_v2(
            dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CUstream,
        );
        fn cuMemcpyDtoA_v2(dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize);
        fn cuMemcpyDtoDAsync_v2(
            dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, stream: CUstream,
        ) => journal::on_device_in_order;
        fn cuMemcpyDtoD_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) => journal::on_device;
        fn cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, stream: CUstream);
        fn cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize);
        fn cuMemcpyHtoAAsync_v2(
            dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: CUstream,
        );
        fn cuMemcpyHtoA_v2(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize);
        fn cuMemcpyHtoDAsync_v2(
            dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, stream: CUstream,
        ) => journal::to_device_in_order;
        fn cuMemcpyHtoD_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) => journal::to_device;
        fn cuMemcpyPeer(
            dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext,
            byte_count: usize,
        ) => journal::to_peer;
        fn cuMemcpyPeerAsync(
            dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext,
            byte_count: usize, stream: CUstream,
        ) => journal::to_peer_in_order;
        fn cuMemsetD16Async(dst_device: CUdeviceptr, us: c_ushort, n: usize, stream: CUstream) => journal::set_halves_in_order;
        fn cuMemsetD16_v2(dst_device: CUdeviceptr, us: c_ushort, n: usize) => journal::set_halves;
        fn cuMemsetD2D16Async(
            dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, stream: CUstream,
        ) => journal::fill_halves_in_order;
        fn cuMemsetD2D16_v2(dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize) => journal::fill_halves;
        fn cuMemsetD2D32Async(
            dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, stream: CUstream,
        ) => journal::fill_words_in_order;
        fn cuMemsetD2D32_v2(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize) => journal::fill_words;
        fn cuMemsetD2D8Async(
            dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, stream: CUstream,
        ) => journal::fill_bytes_in_order;
        fn cuMemsetD2D8_v2(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize) => journal::fill_bytes;
        fn cuMemsetD32Async(dst_device: CUdeviceptr, ui: c_uint, n: usize, stream: CUstream) => journal::set_words_in_order;
        fn cuMemsetD32_v2(dst_device: CUdeviceptr, ui: c_uint, n: usize) => journal::set_words;
        fn cuMemsetD8Async(dst_device: CUdeviceptr, uc: c_uchar, n: usize, stream: CUstream) => journal::set_bytes_in_order;
        fn cuMemsetD8_v2(dst_device: CUdeviceptr, uc: c_uchar, n: usize) => journal::set_bytes;
    }
    elsewhere {
        fn cuMemBatchDecompressAsync_ptsz(
            params_array: *mut CUmemDecompressParams, count: usize, flags: c_uint, error_index: *mut usize,
            stream: CUstream,
        );
        fn cuMemDiscardAndPrefetchBatchAsync_ptsz(
            dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemDiscardBatchAsync_ptsz(
            dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemPrefetchAsync(dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, stream: CUstream);
        fn cuMemPrefetchAsync_ptsz(dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, stream: CUstream);
        fn cuMemPrefetchAsync_v2_ptsz(
            dev_ptr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, stream: CUstream,
        );
        fn cuMemPrefetchBatchAsync_ptsz(
            dptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
            prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemcpy2DAsync_v2_ptsz(copy: *const CUDA_MEMCPY2D, stream: CUstream) => journal::flat_in_order;
        fn cuMemcpy2DUnaligned_v2_ptds(copy: *const CUDA_MEMCPY2D) => journal::flat;
        fn cuMemcpy2D_v2_ptds(copy: *const CUDA_MEMCPY2D) => journal::flat;
        fn cuMemcpy3DAsync_v2_ptsz(copy: *const CUDA_MEMCPY3D, stream: CUstream) => journal::solid_in_order;
        fn cuMemcpy3DBatchAsync(
            num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, fail_idx: *mut usize, flags: c_ulonglong,
            stream: CUstream,
        );
        fn cuMemcpy3DBatchAsync_ptsz(
            num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, fail_idx: *mut usize, flags: c_ulonglong,
            stream: CUstream,
        );
        fn cuMemcpy3DBatchAsync_v2_ptsz(
            num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream,
        );
        fn cuMemcpy3DPeerAsync_ptsz(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream);
        fn cuMemcpy3DPeer_ptds(copy: *const CUDA_MEMCPY3D_PEER);
        fn cuMemcpy3DWithAttributesAsync(op: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream);
        fn cuMemcpy3DWithAttributesAsync_ptsz(op: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream);
        fn cuMemcpy3D_v2_ptds(copy: *const CUDA_MEMCPY3D) => journal::solid;
        fn cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, stream: CUstream) => journal::copy_in_order;
        fn cuMemcpyAtoA_v2_ptds(
            dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize,
        );
        fn cuMemcpyAtoD_v2_ptds(dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize) => journal::from_array;
        fn cuMemcpyAtoHAsync_v2_ptsz(
            dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, stream: CUstream,
        );
        fn cuMemcpyAtoH_v2_ptds(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize);
        fn cuMemcpyBatchAsync(
            dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize,
            stream: CUstream,
        );
        fn cuMemcpyBatchAsync_ptsz(
            dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize,
            stream: CUstream,
        );
        fn cuMemcpyBatchAsync_v2_ptsz(
            dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize,
            attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CUstream,
        );
        fn cuMemcpyDtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize);
        fn cuMemcpyDtoDAsync_v2_ptsz(
            dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, stream: CUstream,
        ) => journal::on_device_in_order;
        fn cuMemcpyDtoD_v2_ptds(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) => journal::on_device;
        fn cuMemcpyDtoHAsync_v2_ptsz(
            dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, stream: CUstream,
        );
        fn cuMemcpyDtoH_v2_ptds(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize);
        fn cuMemcpyHtoAAsync_v2_ptsz(
            dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: CUstream,
        );
        fn cuMemcpyHtoA_v2_ptds(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize);
        fn cuMemcpyHtoDAsync_v2_ptsz(
            dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, stream: CUstream,
        ) => journal::to_device_in_order;
        fn cuMemcpyHtoD_v2_ptds(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) => journal::to_device;
        fn cuMemcpyPeerAsync_ptsz(
            dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext,
            byte_count: usize, stream: CUstream,
        ) => journal::to_peer_in_order;
        fn cuMemcpyPeer_ptds(
            dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext,
            byte_count: usize,
        ) => journal::to_peer;
        fn cuMemcpyWithAttributesAsync(
            dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, stream: CUstream,
        );
        fn cuMemcpyWithAttributesAsync_ptsz(
            dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, stream: CUstream,
        );
        fn cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) => journal::copy;
        fn cuMemsetD16Async_ptsz(dst_device: CUdeviceptr, us: c_ushort, n: usize, stream: CUstream) => journal::set_halves_in_order;
        fn cuMemsetD16_v2_ptds(dst_device: CUdeviceptr, us: c_ushort, n: usize) => journal::set_halves;
        fn cuMemsetD2D16Async_ptsz(
            dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize, stream: CUstream,
        ) => journal::fill_halves_in_order;
        fn cuMemsetD2D16_v2_ptds(
            dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize,
        ) => journal::fill_halves;
        fn cuMemsetD2D32Async_ptsz(
            dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize, stream: CUstream,
        ) => journal::fill_words_in_order;
        fn cuMemsetD2D32_v2_ptds(dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize) => journal::fill_words;
        fn cuMemsetD2D8Async_ptsz(
            dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize, stream: CUstream,
        ) => journal::fill_bytes_in_order;
        fn cuMemsetD2D8_v2_ptds(dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize) => journal::fill_bytes;
        fn cuMemsetD32Async_ptsz(dst_device: CUdeviceptr, ui: c_uint, n: usize, stream: CUstream) => journal::set_words_in_order;
        fn cuMemsetD32_v2_ptds(dst_device: CUdeviceptr, ui: c_uint, n: usize) => journal::set_words;
        fn cuMemsetD8Async_ptsz(dst_device: CUdeviceptr, uc: c_uchar, n: usize, stream: CUstream) => journal::set_bytes_in_order;
        fn cuMemsetD8_v2_ptds(dst_device: CUdeviceptr, uc: c_uchar, n: usize) => journal::set_bytes;
    }
}
