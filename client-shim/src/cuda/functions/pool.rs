//! Stream-ordered allocation and memory pools.

macro_rules! pool {
    ($then:ident) => {
        $then! {
            pool: Pool None;
            {
                fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice);
                fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice);
                fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool);
                fn cuMemAllocAsync(
                    dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream,
                ) / _ptsz => kept::memory::stream_ordered::allocate;
                fn cuMemAllocFromPoolAsync(
                    dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream,
                ) / _ptsz made StreamOrdered(dptr, bytesize);
                fn cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream) => kept::memory::freeing::in_order;
                fn cuMemGetDefaultMemPool(
                    pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType,
                );
                fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType);
                fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps) made Pool(pool);
                fn cuMemPoolDestroy(pool: CUmemoryPool) gone(pool);
                fn cuMemPoolExportPointer(share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr);
                fn cuMemPoolExportToShareableHandle(
                    handle_out: *mut c_void, pool: CUmemoryPool, handle_type: CUmemAllocationHandleType,
                    flags: c_ulonglong,
                );
                fn cuMemPoolGetAccess(
                    flags: *mut CUmemAccess_flags, mem_pool: CUmemoryPool, location: *mut CUmemLocation,
                );
                fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void);
                fn cuMemPoolImportFromShareableHandle(
                    pool_out: *mut CUmemoryPool, handle: *mut c_void, handle_type: CUmemAllocationHandleType,
                    flags: c_ulonglong,
                ) made Pool(pool_out);
                fn cuMemPoolImportPointer(
                    ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, share_data: *mut CUmemPoolPtrExportData,
                ) made Pool(ptr_out);
                fn cuMemPoolSetAccess(
                    pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize,
                ) => kept::memory::stream_ordered::allow;
                fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void);
                fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize);
                fn cuMemSetMemPool(location: *mut CUmemLocation, type_: CUmemAllocationType, pool: CUmemoryPool);
            }
            elsewhere {
                fn cuMemFreeAsync_ptsz(dptr: CUdeviceptr, stream: CUstream)
                    => kept::memory::freeing::in_order_per_thread;
            }
        }
    };
}

pool!(describe);
