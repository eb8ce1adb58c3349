//! Host memory that the devices reach.

macro_rules! host {
    ($then:ident) => {
        $then! {
            host: Host None;
            {
                fn cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize) => kept::memory::pinned::allocate_plain;
                fn cuMemFreeHost(p: *mut c_void) => kept::memory::pinned::free;
                fn cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint)
                    => kept::memory::pinned::allocate;
                fn cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint);
                fn cuMemHostGetFlags(flags: *mut c_uint, p: *mut c_void) => kept::memory::pinned::flags;
                fn cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint)
                    then kept::memory::pinned::register_range(p, bytesize, flags);
                fn cuMemHostUnregister(p: *mut c_void) => kept::memory::pinned::unregister_range;
            }
            elsewhere {
                fn cuMemHostRegister(p: *mut c_void, bytesize: usize, flags: c_uint)
                    then kept::memory::pinned::register_range(p, bytesize, flags);
            }
        }
    };
}

host!(describe);
