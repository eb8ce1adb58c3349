//! Device memory by allocation, and what is known of an address.

macro_rules! memory {
    ($then:ident) => {
        $then! {
            memory: Memory None;
            {
                fn cuMemAdvise_v2(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation);
                fn cuMemAllocManaged(
                    dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint,
                ) made Managed(dptr, bytesize);
                fn cuMemAllocPitch_v2(
                    dptr: *mut CUdeviceptr, pitch: *mut usize, width_in_bytes: usize, height: usize,
                    element_size_bytes: c_uint,
                ) => kept::memory::allocation::pitched;
                fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) => kept::memory::allocation::plain;
                fn cuMemFree_v2(dptr: CUdeviceptr) => kept::memory::freeing::now;
                fn cuMemGetAddressRange_v2(
                    pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr,
                ) => kept::memory::pointers::range;
                fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => kept::memory::pointers::info;
                fn cuMemRangeGetAttribute(
                    data: *mut c_void, data_size: usize, attribute: CUmem_range_attribute, dev_ptr: CUdeviceptr,
                    count: usize,
                );
                fn cuMemRangeGetAttributes(
                    data: *mut *mut c_void, data_sizes: *mut usize, attributes: *mut CUmem_range_attribute,
                    num_attributes: usize, dev_ptr: CUdeviceptr, count: usize,
                );
                fn cuPointerGetAttribute(
                    data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr,
                ) => kept::memory::pointers::attribute;
                fn cuPointerGetAttributes(
                    num_attributes: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void,
                    ptr: CUdeviceptr,
                ) => kept::memory::pointers::attributes;
                fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr)
                    then kept::streams::pointer_attribute(value, attribute, ptr);
            }
            elsewhere {
                fn cuMemAdvise(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);
                fn cuMemGetLocationInfo(
                    ptr: CUdeviceptr, size: usize, summary_granularity: usize, sampling_granularity: usize,
                    location_out: *mut CUmemLocation,
                );
            }
        }
    };
}

memory!(describe);
