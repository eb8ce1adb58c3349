//! The types that the driver's functions name, as far as this library has to know them.
//!
//! A handle is a number here: a pointer into the driver's memory that is never followed. Enumerations are open numbers,
//! so that a newer driver's values pass through unharmed; structures that are only passed along are opaque. The tests
//! hold the sizes against cudarc's bindings, which are generated from NVIDIA's header.
#![expect(non_camel_case_types, reason = "the header's names, by which the signatures are checked")]

pub(crate) use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

pub(crate) use crate::cuda::result::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t};

/// What an object is known by: its handle, or its address. The driver's handles are addresses too, so that no two kinds
/// of objects share one; textures' and surfaces' numbers are small, and no others are.
pub(crate) trait Key {
    /// As a number.
    fn key(self) -> u64;
}

impl Key for usize {
    fn key(self) -> u64 {
        u64::try_from(self).expect("addresses have 64 bits here")
    }
}

impl Key for u64 {
    fn key(self) -> u64 {
        self
    }
}

impl Key for *const c_void {
    fn key(self) -> u64 {
        self.addr().key()
    }
}

impl Key for *mut c_void {
    fn key(self) -> u64 {
        self.addr().key()
    }
}

macro_rules! kinds {
    (handles: $($handle:ident),+ $(,)?) => {
        $(
            #[repr(transparent)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub(crate) struct $handle(pub(crate) usize);

            impl Key for $handle {
                fn key(self) -> u64 {
                    self.0.key()
                }
            }
        )+

        /// Names and sizes of the handles.
        #[cfg(test)]
        const HANDLES: &[(&str, usize, usize)] =
            &[$((stringify!($handle), size_of::<$handle>(), size_of::<cudarc::driver::sys::$handle>())),+];
    };
    (aliases $list:ident of $type:ty: $($alias:ident),+ $(,)?) => {
        $(pub(crate) type $alias = $type;)+

        /// Names and sizes of these.
        #[cfg(test)]
        const $list: &[(&str, usize, usize)] =
            &[$((stringify!($alias), size_of::<$alias>(), size_of::<cudarc::driver::sys::$alias>())),+];
    };
    (opaque as $type:ty: $($alias:ident),+ $(,)?) => {
        $(pub(crate) type $alias = $type;)+
    };
    (with_handles: $($name:ident),+ $(,)?) => {
        $(
            /// Never looked into.
            #[repr(transparent)]
            pub(crate) struct $name(c_void);
        )+
    };
    (in_words: $($name:ident of $words:literal),+ $(,)?) => {
        $(
            /// In words.
            #[repr(transparent)]
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct $name(pub(crate) [u64; $words]);
        )+

        /// Names and sizes of these.
        #[cfg(test)]
        const IN_WORDS: &[(&str, usize, usize)] =
            &[$((stringify!($name), size_of::<$name>(), size_of::<cudarc::driver::sys::$name>())),+];
    };
}

// A handle.
kinds! {
    handles:
    CUarray, CUasyncCallbackHandle, CUcontext, CUdevResourceDesc, CUevent,
    CUexternalMemory, CUexternalSemaphore, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUgraphicsResource,
    CUgreenCtx, CUkernel, CUlibrary, CUlinkState, CUlogsCallbackHandle, CUmemGenericAllocationHandle, CUmemoryPool,
    CUmipmappedArray, CUmodule, CUstream, CUsurfref, CUtexref, CUuserObject,
}

// A function of the program's, passed along.
kinds! {
    aliases CALLBACKS of *const c_void:
    CUasyncCallback, CUhostFn, CUlogsCallback,
    CUoccupancyB2DSize, CUstreamCallback,
}

// An enumeration.
kinds! {
    aliases ENUMERATIONS of c_uint:
    CUaddress_mode, CUarray_format, CUatomicOperation, CUcoredumpSettings, CUdevResourceType, CUdevice_P2PAttribute,
    CUdevice_attribute, CUexecAffinityType, CUfilter_mode, CUflushGPUDirectRDMAWritesScope,
    CUflushGPUDirectRDMAWritesTarget, CUfunc_cache, CUfunctionLoadingState, CUfunction_attribute,
    CUgraphExecUpdateResult, CUgraphMem_attribute, CUgraphNodeType, CUjitInputType, CUjit_option, CUkernelNodeAttrID,
    CUlibraryOption, CUlimit, CUmemAccess_flags, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemPool_attribute, CUmemRangeHandleType, CUmem_advise,
    CUmem_range_attribute, CUmoduleLoadingMode, CUmulticastGranularity_flags, CUoutput_mode, CUpointer_attribute,
    CUsharedconfig, CUstreamAttrID, CUstreamCaptureMode, CUstreamCaptureStatus, CUtensorMapDataType,
    CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
}

// A number that names something.
kinds! {
    aliases NUMBERS of c_ulonglong:
    CUdeviceptr, CUgraphConditionalHandle, CUsurfObject, CUtexObject,
}

// A structure behind a pointer, passed along.
kinds! {
    opaque as c_void:
    CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUDA_HOST_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS,
    CU_DEV_SM_RESOURCE_GROUP_PARAMS, CUcliqueInfo, CUctxCreateParams, CUdevResource, CUdevprop, CUexecAffinityParam,
    CUgraphEdgeData, CUgraphExecUpdateResultInfo, CUlogicalEndpointProp, CUmemDecompressParams,
    CUmemPoolProps, CUmemPoolPtrExportData, CUmemcpyAttributes, CUmulticastObjectProp, CUstreamCigCaptureParams, CUtensorMap, CUuuid,
}

// The same in words: with addresses of the GPU or arrays in it, and what arrays and textures are made by.
kinds! {
    in_words: CUDA_MEMCPY2D of 16, CUDA_MEMCPY3D of 25, CUDA_MEMCPY3D_BATCH_OP of 14, CUDA_MEMSET_NODE_PARAMS of 5,
    CUDA_ARRAY_DESCRIPTOR of 3, CUDA_ARRAY3D_DESCRIPTOR of 5, CUDA_ARRAY_MEMORY_REQUIREMENTS of 4,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC of 13, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC of 15,
    CUDA_RESOURCE_DESC of 18, CUDA_TEXTURE_DESC of 13, CUDA_RESOURCE_VIEW_DESC of 14,
    CUkernelNodeAttrValue of 8, CUstreamAttrValue of 8, CUstreamBatchMemOpParams of 6,
}

/// An address in a list that the driver reads.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUdeviceptr_listed(pub(crate) u64);

/// A node that the driver writes, and not a list of them.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUgraphNode_made(pub(crate) CUgraphNode);

// The same with handles in it.
kinds! {
    with_handles:
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_LAUNCH_PARAMS, CUDA_MEMCPY3D_PEER, CUarrayMapInfo,
    CUgraphNodeParams,
}

// Names of our own for what another release's header calls by one of those: the older structure, and one that the driver
// fills.
kinds! {
    with_handles:
    CUDA_KERNEL_NODE_PARAMS_v1, CUgraphNodeParams_filled,
}

// Newer than the header that the tests compare with.
pub(crate) type CUDA_FABRIC_COPY_BATCH_OP = c_void;
pub(crate) type CUcoredumpCallbackHandle = *mut c_void;
pub(crate) type CUcoredumpStatusCallback = *const c_void;
pub(crate) type CUgraphRecaptureCallback = *const c_void;
pub(crate) type CUlogicalEndpointIpcHandleType = c_uint;

/// A device's ordinal.
pub(crate) type CUdevice = c_int;
/// A place in the log.
pub(crate) type CUlogIterator = c_uint;
/// An endpoint's number.
pub(crate) type CUlogicalEndpointId = u32;
/// The header's number of 32 bits.
pub(crate) type cuuint32_t = u32;

/// Where memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUmemLocation {
    /// A device, the host, a node of the host.
    pub(crate) kind: c_uint,
    /// Its ordinal.
    pub(crate) id: c_int,
}

/// Who may use mapped memory, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUmemAccessDesc {
    /// From where.
    pub(crate) location: CUmemLocation,
    /// Nothing, reading, or both.
    pub(crate) flags: c_uint,
}

/// What an allocation is to be.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUmemAllocationProp {
    /// Pinned, or managed since CUDA 13.
    pub(crate) kind: c_uint,
    /// In which ways it can be exported, as bits.
    pub(crate) handle_types: c_uint,
    /// Where it is.
    pub(crate) location: CUmemLocation,
    /// For another operating system.
    pub(crate) windows: *mut c_void,
    /// Compressible or not.
    pub(crate) compression: c_uchar,
    /// Whether other devices on the bus may reach it.
    pub(crate) is_rdma_capable: c_uchar,
    /// Use as a tile pool.
    pub(crate) usage: c_ushort,
    /// Zeros.
    pub(crate) reserved: [c_uchar; 4],
}

/// How a kernel is launched.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUlaunchConfig {
    /// Blocks.
    pub(crate) grid: [c_uint; 3],
    /// Threads of a block.
    pub(crate) block: [c_uint; 3],
    /// Dynamic shared memory in bytes.
    pub(crate) shared_memory: c_uint,
    /// Where.
    pub(crate) stream: CUstream,
    /// More.
    pub(crate) attributes: *const CUlaunchAttribute,
    /// How many of these.
    pub(crate) attribute_count: c_uint,
}

/// Something about a launch.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUlaunchAttribute {
    /// What.
    pub(crate) id: c_uint,
    padding: c_uint,
    /// Its value. Where it names an event, that comes first.
    pub(crate) value: [usize; 8],
}

/// 64 bytes by which another process opens memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUipcMemHandle(pub(crate) [u8; 64]);

/// 64 bytes by which another process opens an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CUipcEventHandle(pub(crate) [u8; 64]);

#[cfg(test)]
mod tests {
    use cudarc::driver::sys;

    use super::*;

    #[test]
    fn types_have_the_size_of_the_header() {
        let structures = [
            ("CUdevice", size_of::<CUdevice>(), size_of::<sys::CUdevice>()),
            ("CUlogIterator", size_of::<CUlogIterator>(), size_of::<sys::CUlogIterator>()),
            ("CUmemLocation", size_of::<CUmemLocation>(), size_of::<sys::CUmemLocation>()),
            ("CUmemAccessDesc", size_of::<CUmemAccessDesc>(), size_of::<sys::CUmemAccessDesc>()),
            ("CUlaunchConfig", size_of::<CUlaunchConfig>(), size_of::<sys::CUlaunchConfig>()),
            ("CUlaunchAttribute", size_of::<CUlaunchAttribute>(), size_of::<sys::CUlaunchAttribute>()),
            ("CUmemAllocationProp", size_of::<CUmemAllocationProp>(), size_of::<sys::CUmemAllocationProp>()),
            ("CUipcMemHandle", size_of::<CUipcMemHandle>(), size_of::<sys::CUipcMemHandle>()),
            ("CUipcEventHandle", size_of::<CUipcEventHandle>(), size_of::<sys::CUipcEventHandle>()),
        ];
        for &(name, ours, theirs) in
            [HANDLES, CALLBACKS, ENUMERATIONS, NUMBERS, IN_WORDS].concat().iter().chain(&structures)
        {
            assert_eq!(ours, theirs, "{name}");
        }
    }
}
