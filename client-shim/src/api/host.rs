//! Host memory that the devices reach.
#![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

use crate::keep::{pinned, record};

hooks! {
    Host;
    {
        fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) => pinned::allocate_plain;
        fn cuMemFreeHost(p: *mut c_void) => pinned::free;
        fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint) => pinned::allocate;
        fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint);
        fn cuMemHostGetFlags(flags: *mut c_uint, p: *mut c_void) => pinned::flags;
        fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint) => record::host_range;
        fn cuMemHostUnregister(p: *mut c_void) => record::host_range_ends;
    }
    elsewhere {
        fn cuMemHostRegister(p: *mut c_void, bytesize: usize, flags: c_uint) => record::host_range;
    }
}
