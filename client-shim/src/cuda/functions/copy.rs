//! Copies, sets, prefetches.

macro_rules! copy {
    ($then:ident) => {
        $then! {
            copy: Copy Submits;
            {
                fn cuMemBatchDecompressAsync(
                    params_array: *mut CUmemDecompressParams, count: usize, flags: c_uint, error_index: *mut usize,
                    stream: CUstream,
                ) / _ptsz: SubmitsMany;
                fn cuMemDiscardAndPrefetchBatchAsync(
                    dptrs: *mut CUdeviceptr_listed, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
                    prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CUstream,
                ) / _ptsz: SubmitsMany;
                fn cuMemDiscardBatchAsync(
                    dptrs: *mut CUdeviceptr_listed, sizes: *mut usize, count: usize, flags: c_ulonglong, stream: CUstream,
                ) / _ptsz: SubmitsMany;
                fn cuMemPrefetchAsync_v2(
                    dev_ptr: CUdeviceptr, count: usize, location: CUmemLocation, flags: c_uint, stream: CUstream,
                ) / _ptsz;
                fn cuMemPrefetchBatchAsync(
                    dptrs: *mut CUdeviceptr_listed, sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
                    prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: c_ulonglong, stream: CUstream,
                ) / _ptsz;
                fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) / _ptds
                    then kept::code::variables::copied_from_any(dst, src, byte_count, true);
                fn cuMemcpy2DAsync_v2(
                    copy: *const CUDA_MEMCPY2D, stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten_by(copy);
                fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) / _ptds
                    then kept::code::variables::overwritten_by(copy);
                fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) / _ptds then kept::code::variables::overwritten_by(copy);
                fn cuMemcpy3DAsync_v2(
                    copy: *const CUDA_MEMCPY3D, stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten_by(copy);
                fn cuMemcpy3DBatchAsync_v2(
                    num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream,
                ) / _ptsz: SubmitsMany then kept::code::variables::overwritten_by_each(op_list, num_ops);
                fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) / _ptds: SubmitsElsewhere;
                fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) / _ptsz;
                fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) / _ptds then kept::code::variables::overwritten_by(copy);
                fn cuMemcpyAsync(
                    dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, stream: CUstream,
                ) / _ptsz then kept::code::variables::copied_from_any(dst, src, byte_count, false);
                fn cuMemcpyAtoA_v2(
                    dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize,
                ) / _ptds;
                fn cuMemcpyAtoD_v2(
                    dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize,
                ) / _ptds then kept::code::variables::overwritten(dst_device, byte_count);
                fn cuMemcpyAtoHAsync_v2(
                    dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, stream: CUstream,
                ) / _ptsz;
                fn cuMemcpyAtoH_v2(
                    dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize,
                ) / _ptds;
                fn cuMemcpyBatchAsync_v2(
                    dsts: *mut CUdeviceptr_listed, srcs: *mut CUdeviceptr_listed, sizes: *mut usize, count: usize,
                    attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, stream: CUstream,
                ) / _ptsz: SubmitsMany then kept::code::variables::overwritten_in_batch(dsts.cast(), sizes, count);
                fn cuMemcpyDtoA_v2(
                    dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize,
                ) / _ptds;
                fn cuMemcpyDtoDAsync_v2(
                    dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten(dst_device, byte_count);
                fn cuMemcpyDtoD_v2(
                    dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize,
                ) / _ptds then kept::code::variables::overwritten(dst_device, byte_count);
                fn cuMemcpyDtoHAsync_v2(
                    dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, stream: CUstream,
                ) / _ptsz;
                fn cuMemcpyDtoH_v2(
                    dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize,
                ) / _ptds: CopiesToHost;
                fn cuMemcpyHtoAAsync_v2(
                    dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, stream: CUstream,
                ) / _ptsz;
                fn cuMemcpyHtoA_v2(
                    dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize,
                ) / _ptds;
                fn cuMemcpyHtoDAsync_v2(
                    dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, stream: CUstream,
                ) / _ptsz then kept::code::variables::copied(dst_device, src_host, byte_count, false);
                fn cuMemcpyHtoD_v2(
                    dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize,
                ) / _ptds then kept::code::variables::copied(dst_device, src_host, byte_count, true);
                fn cuMemcpyPeer(
                    dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext,
                    byte_count: usize,
                ) / _ptds: SubmitsElsewhere then kept::code::variables::overwritten(dst_device, byte_count);
                fn cuMemcpyPeerAsync(
                    dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext,
                    byte_count: usize, stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten(dst_device, byte_count);
                fn cuMemsetD16Async(
                    dst_device: CUdeviceptr, us: c_ushort, n: usize, stream: CUstream,
                ) / _ptsz then kept::code::variables::set(dst_device, &us.to_le_bytes(), n);
                fn cuMemsetD16_v2(
                    dst_device: CUdeviceptr, us: c_ushort, n: usize,
                ) / _ptds then kept::code::variables::set(dst_device, &us.to_le_bytes(), n);
                fn cuMemsetD2D16Async(
                    dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize,
                    stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten(dst_device, dst_pitch.saturating_mul(height));
                fn cuMemsetD2D16_v2(
                    dst_device: CUdeviceptr, dst_pitch: usize, us: c_ushort, width: usize, height: usize,
                ) / _ptds then kept::code::variables::overwritten(dst_device, dst_pitch.saturating_mul(height));
                fn cuMemsetD2D32Async(
                    dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize,
                    stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten(dst_device, dst_pitch.saturating_mul(height));
                fn cuMemsetD2D32_v2(
                    dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint, width: usize, height: usize,
                ) / _ptds then kept::code::variables::overwritten(dst_device, dst_pitch.saturating_mul(height));
                fn cuMemsetD2D8Async(
                    dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize,
                    stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten(dst_device, dst_pitch.saturating_mul(height));
                fn cuMemsetD2D8_v2(
                    dst_device: CUdeviceptr, dst_pitch: usize, uc: c_uchar, width: usize, height: usize,
                ) / _ptds then kept::code::variables::overwritten(dst_device, dst_pitch.saturating_mul(height));
                fn cuMemsetD32Async(
                    dst_device: CUdeviceptr, ui: c_uint, n: usize, stream: CUstream,
                ) / _ptsz then kept::code::variables::set(dst_device, &ui.to_le_bytes(), n);
                fn cuMemsetD32_v2(dst_device: CUdeviceptr, ui: c_uint, n: usize) / _ptds
                    then kept::code::variables::set(dst_device, &ui.to_le_bytes(), n);
                fn cuMemsetD8Async(
                    dst_device: CUdeviceptr, uc: c_uchar, n: usize, stream: CUstream,
                ) / _ptsz then kept::code::variables::set(dst_device, &uc.to_le_bytes(), n);
                fn cuMemsetD8_v2(dst_device: CUdeviceptr, uc: c_uchar, n: usize) / _ptds
                    then kept::code::variables::set(dst_device, &uc.to_le_bytes(), n);
            }
            elsewhere {
                fn cuFabricCpyBatchAsync(
                    num_ops: usize, op_list: *mut CUDA_FABRIC_COPY_BATCH_OP, flags: c_ulonglong, stream: CUstream,
                ) / _ptsz;
                fn cuMemPrefetchAsync(
                    dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, stream: CUstream,
                ) / _ptsz;
                fn cuMemcpy3DBatchAsync(
                    num_ops: usize, op_list: *mut CUDA_MEMCPY3D_BATCH_OP, fail_idx: *mut usize, flags: c_ulonglong,
                    stream: CUstream,
                ) / _ptsz: SubmitsMany then kept::code::variables::overwritten_by_each(op_list, num_ops);
                fn cuMemcpy3DWithAttributesAsync(
                    op: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten_by_each(op, 1);
                fn cuMemcpyBatchAsync(
                    dsts: *mut CUdeviceptr_listed, srcs: *mut CUdeviceptr_listed, sizes: *mut usize, count: usize,
                    attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize, num_attrs: usize, fail_idx: *mut usize,
                    stream: CUstream,
                ) / _ptsz: SubmitsMany then kept::code::variables::overwritten_in_batch(dsts.cast(), sizes, count);
                fn cuMemcpyWithAttributesAsync(
                    dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, stream: CUstream,
                ) / _ptsz then kept::code::variables::overwritten(dst, size);
            }
        }
    };
}

copy!(describe);
