//! What a program asks of graphs, with the names that it knows.
#![expect(unsafe_code, reason = "calls the driver and names what it has written")]

use std::ffi::c_uint;

use crate::cuda::{
    arguments::lists::{name_nodes, nodes},
    call::{Bypass, Driver},
    functions::stream as of_stream,
    result::CUresult,
    types::{CUgraphEdgeData, CUgraphNode, CUstream},
};

/// Names the nodes of a list that the driver has filled.
pub(crate) fn listed(list: *mut CUgraphNode, count: *const usize) {
    if !count.is_null() {
        // SAFETY: the driver has written there how many there are.
        let count = unsafe { count.read_unaligned() };
        // SAFETY: as it has answered.
        unsafe { name_nodes(list, count) };
    }
}

/// Names the one node that the driver has written.
fn named(place: *mut CUgraphNode) {
    // SAFETY: the driver has just written there.
    unsafe { name_nodes(place, 1) };
}

/// Names the nodes of two lists of one length.
pub(crate) fn listed_edges(from: *mut CUgraphNode, to: *mut CUgraphNode, count: *const usize) {
    listed(from, count);
    listed(to, count);
}

/// Names the node that the driver writes in a call whatever it answers: one for which something could not be done. Where it
/// has written nothing the program's own word stays.
pub(super) fn named_whatever(place: *mut CUgraphNode, call: impl FnOnce() -> CUresult) -> CUresult {
    // SAFETY: the program's argument, or null.
    let read = || (!place.is_null()).then(|| unsafe { place.read_unaligned() });
    let before = read();
    let answer = call();
    if read() != before {
        named(place);
    }
    answer
}

/// Logic of `cuStreamUpdateCaptureDependencies_v2`.
pub(crate) fn depend(
    driver: &mut Driver<of_stream::cuStreamUpdateCaptureDependencies_v2::Signature>,
    stream: CUstream,
    list: *mut CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many.
    let mut held = unsafe { nodes(list, if list.is_null() { 0 } else { count }) };
    let passed = if list.is_null() { list } else { held.as_mut_ptr() };
    // SAFETY: the program's call, with a copy of its list that lives as long.
    Ok(driver.call(|function| unsafe { function(stream, passed, data, count, flags) }))
}

/// Logic of `cuStreamUpdateCaptureDependencies`.
pub(crate) fn depend_plainly(
    driver: &mut Driver<of_stream::cuStreamUpdateCaptureDependencies::Signature>,
    stream: CUstream,
    list: *mut CUgraphNode,
    count: usize,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // SAFETY: the program says that there are so many.
    let mut held = unsafe { nodes(list, if list.is_null() { 0 } else { count }) };
    let passed = if list.is_null() { list } else { held.as_mut_ptr() };
    // SAFETY: the program's call, with a copy of its list that lives as long.
    Ok(driver.call(|function| unsafe { function(stream, passed, count, flags) }))
}
