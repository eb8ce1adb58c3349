//! The last nodes of a stream's capture, which the driver tells in a list of its own, with handles of today.
#![expect(unsafe_code, reason = "reads what the driver has written")]

use std::collections::BTreeMap;

use crate::{
    cuda::{
        names::name_of,
        types::{CUgraphNode, CUstream, CUstreamCaptureStatus},
    },
    kept::{keeping::Room, work::progress::captured},
};

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`: of any other capture the driver says nothing else.
const ACTIVE: CUstreamCaptureStatus = 1;

/// Nodes by their names, by stream, as long as the program may read them where it was told.
static LISTS: Room<BTreeMap<usize, Vec<CUgraphNode>>> = Room::new();

/// After `cuStreamGetCaptureInfo`: where a node has another name than its handle the program is given a list of ours, until
/// it asks again about this stream or the capture ends. The driver's own lasts no longer. Where no capture goes on, only the
/// status has been written, and what the program has in the other places is anything.
pub(crate) fn last_of(
    stream: CUstream,
    status: *const CUstreamCaptureStatus,
    place: *mut *const CUgraphNode,
    count: *const usize,
) {
    // SAFETY: the driver has just written there.
    let is_active = !status.is_null() && unsafe { status.read_unaligned() } == ACTIVE;
    if !is_active || place.is_null() || count.is_null() {
        return;
    }
    // SAFETY: the driver has just written there how many nodes there are.
    let count = unsafe { count.read_unaligned() };
    // SAFETY: as above, and where they are.
    let list = unsafe { place.read_unaligned() };
    let all = 0..if list.is_null() { 0 } else { count };
    // SAFETY: as it has answered.
    let found: Vec<CUgraphNode> = all.map(|at| unsafe { list.wrapping_add(at).read_unaligned() }).collect();
    let known: Vec<CUgraphNode> = found.iter().map(|node| CUgraphNode(name_of(node.0))).collect();
    if found != known {
        // What a list holds stays where it is when the list is moved.
        let ours = known.as_ptr();
        LISTS.with(|lists| lists.insert(captured(stream), known));
        // SAFETY: as above.
        unsafe { place.write_unaligned(ours) };
    }
}

/// The capture of a stream, by the name that it has as a captured one, is over.
pub(super) fn is_over(stream: usize) {
    LISTS.with(|lists| lists.remove(&stream));
}
