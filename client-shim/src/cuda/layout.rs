//! Where a kernel's arguments lie, as the driver tells since CUDA 12.4.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;

use crate::cuda::{
    result::CUresult,
    types::{CUfunction, CUkernel},
};

/// Most arguments of a kernel.
const MOST_ARGUMENTS: usize = 256;

/// Offset and size of each argument of a kernel.
pub(crate) type Layout = Arc<[(usize, usize)]>;

/// Where the arguments of a function lie, if the driver tells: offset and bytes of each.
pub(crate) fn ask_layout(function: usize) -> Option<Layout> {
    let mut arguments = Vec::new();
    for index in 0..MOST_ARGUMENTS {
        let (mut offset, mut size) = (0, 0);
        // CUDA 12.4; where there is none, the kernel is not launched again.
        let answer =
            match driver!(kernel::cuFuncGetParamInfo(CUfunction(function), index, &raw mut offset, &raw mut size)) {
                // A library's kernel can stand for its function.
                CUresult(400) => {
                    driver!(kernel::cuKernelGetParamInfo(CUkernel(function), index, &raw mut offset, &raw mut size))
                }
                answer => answer,
            };
        match answer {
            CUresult::CUDA_SUCCESS => arguments.push((offset, size)),
            // There are no more.
            CUresult(1) => return Some(arguments.into()),
            _ => return None,
        }
    }
    None
}
