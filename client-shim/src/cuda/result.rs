//! The few types of the driver's interface that the hooks name.
//!
//! Results are open numbers: a newer driver's code passes through unharmed. The unit tests hold names, values and
//! signatures against cudarc's bindings, which are generated from NVIDIA's header.

use remps_proto::open_enum;

open_enum! {
    /// A driver function's result. Only the values that this library makes or looks at have names.
    pub(crate) struct CUresult: u32 {
        CUDA_SUCCESS = 0,
        CUDA_ERROR_INVALID_VALUE = 1,
        CUDA_ERROR_OUT_OF_MEMORY = 2,
        /// What NVIDIA's linker stub answers: there is no driver behind this function.
        CUDA_ERROR_STUB_LIBRARY = 34,
        CUDA_ERROR_INVALID_CONTEXT = 201,
        CUDA_ERROR_MAP_FAILED = 205,
        CUDA_ERROR_NOT_FOUND = 500,
        CUDA_ERROR_NOT_SUPPORTED = 801,
        CUDA_ERROR_MPS_CONNECTION_FAILED = 805,
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
        CUDA_ERROR_UNKNOWN = 999,
    }
}

impl CUresult {
    /// Whether the call did what it was asked to.
    pub(crate) fn is_success(self) -> bool {
        self == Self::CUDA_SUCCESS
    }
}

open_enum! {
    /// What `cuGetProcAddress_v2` says about the name it was asked for. Passed through unread.
    pub(crate) struct CUdriverProcAddressQueryResult: u32 {
        CU_GET_PROC_ADDRESS_SUCCESS = 0,
    }
}

/// Flags of `cuGetProcAddress`.
#[expect(non_camel_case_types, reason = "the header's name, by which the signatures are checked")]
pub(crate) type cuuint64_t = u64;

/// The functions as NVIDIA's header declares them, for the comparison with the hook table.
#[cfg(test)]
pub(crate) mod header {
    #![expect(unsafe_code, reason = "declares functions of the driver")]

    pub(crate) use cudarc::driver::sys::*;

    /// An address in a list of so many as a call says.
    #[expect(non_camel_case_types, reason = "beside the header's names")]
    pub(crate) type CUdeviceptr_listed = CUdeviceptr;

    /// A node that the driver writes.
    #[expect(non_camel_case_types, reason = "beside the header's names")]
    pub(crate) type CUgraphNode_made = CUgraphNode;

    /// As in the headers of CUDA 11.3 to 11.8. Since CUDA 12 the header gives this name to `cuGetProcAddress_v2`,
    /// while the library still has both, so bindings made from a newer header lack it.
    #[expect(non_snake_case, reason = "the header's name")]
    pub(crate) unsafe fn cuGetProcAddress(
        _symbol: *const std::ffi::c_char,
        _pfn: *mut *mut std::ffi::c_void,
        _cuda_version: std::ffi::c_int,
        _flags: cuuint64_t,
    ) -> CUresult {
        unreachable!("only its type is looked at")
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys;

    use super::{CUdriverProcAddressQueryResult, CUresult};

    #[test]
    fn named_values_are_those_of_the_header() {
        assert_eq!(CUresult::CUDA_SUCCESS.0, sys::CUresult::CUDA_SUCCESS as u32);
        assert_eq!(CUresult::CUDA_ERROR_INVALID_VALUE.0, sys::CUresult::CUDA_ERROR_INVALID_VALUE as u32);
        assert_eq!(CUresult::CUDA_ERROR_OUT_OF_MEMORY.0, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);
        assert_eq!(CUresult::CUDA_ERROR_INVALID_CONTEXT.0, sys::CUresult::CUDA_ERROR_INVALID_CONTEXT as u32);
        assert_eq!(CUresult::CUDA_ERROR_MAP_FAILED.0, sys::CUresult::CUDA_ERROR_MAP_FAILED as u32);
        assert_eq!(CUresult::CUDA_ERROR_NOT_SUPPORTED.0, sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as u32);
        assert_eq!(CUresult::CUDA_ERROR_STUB_LIBRARY.0, sys::CUresult::CUDA_ERROR_STUB_LIBRARY as u32);
        assert_eq!(
            CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED.0,
            sys::CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED as u32
        );
        assert_eq!(
            CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0,
            sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as u32
        );
        assert_eq!(CUresult::CUDA_ERROR_UNKNOWN.0, sys::CUresult::CUDA_ERROR_UNKNOWN as u32);
        assert_eq!(
            CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS.0,
            sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS as u32
        );
    }

    #[test]
    fn types_have_the_size_of_the_header() {
        assert_eq!(size_of::<CUresult>(), size_of::<sys::CUresult>());
        assert_eq!(size_of::<CUdriverProcAddressQueryResult>(), size_of::<sys::CUdriverProcAddressQueryResult>());
    }
}
