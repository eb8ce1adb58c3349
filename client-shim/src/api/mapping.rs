//! Virtual memory management: allocations, reserved addresses, mappings, access.
#![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

use crate::keep::mapping;

hooks! {
    Mapping;
    {
        fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) => mapping::unreserve;
        fn cuMemAddressReserve(
            ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr, flags: c_ulonglong,
        ) => mapping::reserve;
        fn cuMemCreate(
            handle: *mut CUmemGenericAllocationHandle, size: usize, prop: *const CUmemAllocationProp,
            flags: c_ulonglong,
        ) => mapping::create;
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
        ) => mapping::properties;
        fn cuMemGetHandleForAddressRange(
            handle: *mut c_void, dptr: CUdeviceptr, size: usize, handle_type: CUmemRangeHandleType,
            flags: c_ulonglong,
        );
        fn cuMemImportFromShareableHandle(
            handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
            sh_handle_type: CUmemAllocationHandleType,
        ) => mapping::import;
        fn cuMemMap(
            ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong,
        ) => mapping::map;
        fn cuMemMapArrayAsync(map_info_list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream);
        fn cuMemRelease(handle: CUmemGenericAllocationHandle) => mapping::release;
        fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void) => mapping::retain;
        fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize) => mapping::allow;
        fn cuMemUnmap(ptr: CUdeviceptr, size: usize) => mapping::unmap;
    }
    elsewhere {
        fn cuMemMapArrayAsync_ptsz(map_info_list: *mut CUarrayMapInfo, count: c_uint, stream: CUstream);
    }
}
