//! Graphs' nodes, and lists of them.
#![expect(unsafe_code, reason = "reads and writes the program's lists, as the driver does")]

use super::{Argument, Launched, Pointee, Untranslatable};
use crate::cuda::{
    names::{current_of, name_of},
    types::{CUgraphNode, CUgraphNode_made},
};

impl Argument for CUgraphNode {
    type Held = Self;

    fn hold(self, _launched: &Launched) -> Result<Self, Untranslatable> {
        Ok(Self(current_of(self.0)))
    }

    fn pass(held: &Self) -> Self {
        *held
    }
}

// A list that the driver writes is named by whoever knows how long it is.
impl Pointee for CUgraphNode {
    type Copy = Vec<Self>;
    const IS_WRITTEN: bool = true;

    unsafe fn copy(pointer: *const Self, launched: &Launched) -> Result<Option<Vec<Self>>, Untranslatable> {
        // SAFETY: by the contract, and the call says that there are so many.
        Ok((!pointer.is_null()).then(|| unsafe { nodes(pointer, launched.count) }))
    }

    fn original(copy: &Vec<Self>) -> *const Self {
        copy.as_ptr()
    }
}

impl Pointee for CUgraphNode_made {
    type Copy = ();

    unsafe fn name_result(pointer: *mut Self) {
        // SAFETY: by the contract the driver has written one there, or it is null.
        unsafe { name_nodes(pointer.cast(), 1) };
    }
}

/// Nodes that a program names, in the living copy's handles.
///
/// # Safety
/// There are so many.
pub(crate) unsafe fn nodes(list: *const CUgraphNode, count: usize) -> Vec<CUgraphNode> {
    // SAFETY: by the contract.
    (0..count).map(|at| CUgraphNode(current_of(unsafe { list.wrapping_add(at).read_unaligned() }.0))).collect()
}

/// Names nodes that the driver has written.
///
/// # Safety
/// There are so many.
pub(crate) unsafe fn name_nodes(list: *mut CUgraphNode, count: usize) {
    for place in (0..if list.is_null() { 0 } else { count }).map(|at| list.wrapping_add(at)) {
        // SAFETY: by the contract.
        let written = unsafe { place.read_unaligned() };
        // SAFETY: as above.
        unsafe { place.write_unaligned(CUgraphNode(name_of(written.0))) };
    }
}
