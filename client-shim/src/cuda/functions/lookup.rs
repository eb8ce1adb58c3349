//! Where the driver starts and is asked for its functions. These are in place whatever the settings are.

macro_rules! lookup {
    ($then:ident) => {
        $then! {
            lookup: Lookup None;
            {
                /// Starts the driver: here it decides whether it runs under MPS.
                fn cuInit(flags: c_uint) => hooks::start::start;
                /// The lookup of CUDA 11.3 to 11.8, whose name stands for the next one in the header since CUDA 12.
                fn cuGetProcAddress(
                    symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t,
                ) => hooks::proc_address::v1;
                /// The lookup since CUDA 12.
                fn cuGetProcAddress_v2(
                    symbol: *const c_char, pfn: *mut *mut c_void, cuda_version: c_int, flags: cuuint64_t,
                    status: *mut CUdriverProcAddressQueryResult,
                ) => hooks::proc_address::v2;
            }
            elsewhere {
            }
        }
    };
}

lookup!(describe);
