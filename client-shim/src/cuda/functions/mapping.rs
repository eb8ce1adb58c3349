//! Virtual memory management: allocations, reserved addresses, mappings, access.

macro_rules! mapping {
    ($then:ident) => {
        $then! {
            mapping: Mapping None;
            {
                fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) => kept::memory::mapping::unreserve;
                fn cuMemAddressReserve(
                    ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: c_ulonglong,
                ) => kept::memory::mapping::reserve;
                fn cuMemCreate(
                    handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp,
                    flags: c_ulonglong,
                ) => kept::memory::mapping::create;
                fn cuMemExportToShareableHandle(
                    shareable_handle: *mut c_void, handle: CUmemGenericAllocationHandle,
                    handle_type: CUmemAllocationHandleType, flags: c_ulonglong,
                );
                fn cuMemGetAccess(flags: *mut c_ulonglong, location: *const CUmemLocation, ptr: CUdeviceptr);
                fn cuMemGetAllocationGranularity(
                    granularity: *mut usize, prop: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags,
                );
                fn cuMemGetAllocationPropertiesFromHandle(
                    prop: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle,
                ) then kept::memory::mapping::properties(prop, handle);
                fn cuMemGetHandleForAddressRange(
                    handle: *mut c_void, dptr: CUdeviceptr, size: usize, handle_type: CUmemRangeHandleType,
                    flags: c_ulonglong,
                );
                fn cuMemImportFromShareableHandle(
                    handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
                    sh_handle_type: CUmemAllocationHandleType,
                ) then kept::memory::mapping::import(handle, os_handle, sh_handle_type);
                fn cuMemMap(
                    ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle,
                    flags: c_ulonglong,
                ) then kept::memory::mapping::map(ptr, size, offset, handle);
                fn cuMemMapArrayAsync(map_info_list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream) / _ptsz;
                fn cuMemRelease(handle: CUmemGenericAllocationHandle) => kept::memory::mapping::release;
                fn cuMemRetainAllocationHandle(
                    handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void,
                ) => kept::memory::mapping::retain;
                fn cuMemSetAccess(
                    ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize,
                ) then kept::memory::mapping::allow(ptr, size, desc, count);
                fn cuMemUnmap(ptr: CUdeviceptr, size: usize) => kept::memory::mapping::unmap;
            }
            elsewhere {
            }
        }
    };
}

mapping!(describe);
