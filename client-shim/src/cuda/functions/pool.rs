//! Stream-ordered allocation and memory pools.

macro_rules! pool {
    ($then:ident) => {
        $then! {
            pool: Pool None;
            {
                fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice)
                    then kept::memory::pools::told(written!(pool_out), dev);
                fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice)
                    then kept::memory::pools::told(written!(pool), dev);
                fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) then kept::memory::pools::chosen(dev, pool);
                fn cuMemAllocAsync(
                    dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream,
                ) => kept::memory::stream_ordered::allocate;
                fn cuMemAllocFromPoolAsync(
                    dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream,
                ) => kept::memory::stream_ordered::allocate_from;
                fn cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream) => kept::memory::freeing::in_order;
                fn cuMemGetDefaultMemPool(
                    pool_out: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType,
                ) then kept::memory::pools::told_of(name!(), written!(pool_out), location, type_);
                fn cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, type_: CUmemAllocationType)
                    then kept::memory::pools::told_of(name!(), written!(pool), location, type_);
                fn cuMemPoolCreate(pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps)
                    then kept::memory::pools::created(name!(), written!(pool), pool_props);
                fn cuMemPoolDestroy(pool: CUmemoryPool) => kept::memory::pools::destroy;
                fn cuMemPoolExportPointer(share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr);
                fn cuMemPoolExportToShareableHandle(
                    handle_out: *mut c_void, pool: CUmemoryPool, handle_type: CUmemAllocationHandleType,
                    flags: c_ulonglong,
                );
                fn cuMemPoolGetAccess(
                    flags: *mut CUmemAccess_flags, mem_pool: CUmemoryPool, location: *mut CUmemLocation,
                );
                fn cuMemPoolGetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void)
                    then kept::memory::pools::attribute(pool, attr, value);
                fn cuMemPoolImportFromShareableHandle(
                    pool_out: *mut CUmemoryPool, handle: *mut c_void, handle_type: CUmemAllocationHandleType,
                    flags: c_ulonglong,
                ) made Pool(pool_out);
                fn cuMemPoolImportPointer(
                    ptr_out: *mut CUdeviceptr, pool: CUmemoryPool, share_data: *mut CUmemPoolPtrExportData,
                ) made Pool(ptr_out);
                fn cuMemPoolSetAccess(
                    pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize,
                ) then kept::memory::pools::allow(pool, map, count);
                fn cuMemPoolSetAttribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void)
                    then kept::memory::pools::set_attribute(pool, attr, value);
                fn cuMemPoolTrimTo(pool: CUmemoryPool, min_bytes_to_keep: usize)
                    then kept::memory::pools::trimmed(pool, min_bytes_to_keep);
                fn cuMemSetMemPool(location: *mut CUmemLocation, type_: CUmemAllocationType, pool: CUmemoryPool)
                    then kept::memory::pools::chosen_for(name!(), location, type_, pool);
            }
            elsewhere {
                fn cuMemAllocAsync_ptsz(dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream)
                    => kept::memory::stream_ordered::allocate_per_thread;
                fn cuMemAllocFromPoolAsync_ptsz(
                    dptr: *mut CUdeviceptr, bytesize: usize, pool: CUmemoryPool, stream: CUstream,
                ) => kept::memory::stream_ordered::allocate_from_per_thread;
                fn cuMemFreeAsync_ptsz(dptr: CUdeviceptr, stream: CUstream)
                    => kept::memory::freeing::in_order_per_thread;
            }
        }
    };
}

pool!(describe);
