//! `CUresult`: the numbers, names and texts of NVIDIA's documentation of the driver API.

use std::ffi::CStr;

macro_rules! codes {
    ($( $name:ident = $number:literal, $text:literal; )+) => {
        /// A `CUresult`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct Code(pub(crate) u32);

        #[expect(dead_code, reason = "the table is NVIDIA's; some codes only ever come from a server")]
        impl Code {
            $( pub(crate) const $name: Self = Self($number); )+

            /// What a function of the driver has answered, as its outcome.
            pub(crate) fn outcome(self) -> Outcome {
                if self == Self::SUCCESS { Ok(()) } else { Err(self) }
            }

            /// Name and description, as `cuGetErrorName` and `cuGetErrorString` give them.
            pub(crate) fn describe(self) -> Option<(&'static CStr, &'static CStr)> {
                let texts = match self.0 {
                    $( $number => (
                        if $number == 0 { c"CUDA_SUCCESS".to_bytes_with_nul() }
                        else { concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes() },
                        concat!($text, "\0").as_bytes(),
                    ), )+
                    _ => return None,
                };
                let text = |bytes| CStr::from_bytes_with_nul(bytes).expect("the macro ends every text with its only NUL");
                Some((text(texts.0), text(texts.1)))
            }
        }
    };
}

codes! {
    SUCCESS = 0, "no error";
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEVICE_UNAVAILABLE = 46, "CUDA-capable device(s) is/are busy or unavailable";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    FILE_NOT_FOUND = 301, "file not found";
    OPERATING_SYSTEM = 304, "OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "the operation cannot be performed in the present state";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "primary context is active on this device";
    CONTEXT_IS_DESTROYED = 709, "context is destroyed";
    ASSERT = 710, "device-side assert triggered";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    MPS_CONNECTION_FAILED = 805, "MPS client failed to connect to the MPS control daemon or the MPS server";
    MPS_RPC_FAILURE = 806, "the remote procedural call between the MPS server and the MPS client failed";
    MPS_SERVER_NOT_READY = 807, "MPS server is not ready to accept new MPS client requests";
    MPS_MAX_CLIENTS_REACHED = 808, "the hardware resources required to create MPS client have been exhausted";
    MPS_MAX_CONNECTIONS_REACHED = 809, "the hardware resources required to support device connections have been exhausted";
    MPS_CLIENT_TERMINATED = 810, "MPS client terminated by MPS server";
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error during capture";
    STREAM_CAPTURE_WRONG_THREAD = 908, "attempt to terminate a thread-local capture sequence from another thread";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    UNKNOWN = 999, "unknown error";
}

/// What nearly every function of the driver gives.
pub(crate) type Outcome<T = ()> = Result<T, Code>;
