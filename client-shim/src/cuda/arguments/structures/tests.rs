//! Structures of copies and resources, each in the layout of the vendor's header, and the places of their handles.

use std::mem::offset_of;

use cudarc::driver::sys;

use super::{Addresses, Destination, WINDOW, WithDestination as _, translate_arrays, translate_operation};
use crate::cuda::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMSET_NODE_PARAMS, CUDA_RESOURCE_DESC,
    CUkernelNodeAttrValue, CUstreamAttrValue,
};

#[test]
fn the_words_are_the_addresses_of_the_header() {
    use sys::{CUDA_MEMCPY2D_st as Flat, CUDA_MEMCPY3D_st as Solid, CUDA_MEMSET_NODE_PARAMS_st as Set};
    let flat = [
        offset_of!(Flat, srcHost),
        offset_of!(Flat, srcDevice),
        offset_of!(Flat, dstHost),
        offset_of!(Flat, dstDevice),
    ];
    assert_eq!(flat.map(|offset| offset / 8), CUDA_MEMCPY2D::PLACES);
    let solid = [
        offset_of!(Solid, srcHost),
        offset_of!(Solid, srcDevice),
        offset_of!(Solid, dstHost),
        offset_of!(Solid, dstDevice),
    ];
    assert_eq!(solid.map(|offset| offset / 8), CUDA_MEMCPY3D::PLACES);
    assert_eq!([offset_of!(Set, dst) / 8], CUDA_MEMSET_NODE_PARAMS::PLACES);
    use sys::{CUDA_MEMCPY3D_BATCH_OP_st as Operation, CUmemcpy3DOperand_st as Operand};
    let address = offset_of!(Operand, op);
    let batch = [offset_of!(Operation, src) + address, offset_of!(Operation, dst) + address];
    assert_eq!(batch.map(|offset| offset / 8), CUDA_MEMCPY3D_BATCH_OP::PLACES);
    let resource = offset_of!(sys::CUDA_RESOURCE_DESC_st, res);
    assert_eq!([resource / 8], CUDA_RESOURCE_DESC::PLACES);
}

#[test]
fn a_window_begins_where_the_header_has_it() {
    use sys::{
        CUaccessPolicyWindow_st as Window, CUlaunchAttributeID_enum as Id, CUlaunchAttributeValue_union as Value,
    };
    assert_eq!(Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW as u32, WINDOW);
    let begins = (offset_of!(Value, accessPolicyWindow) + offset_of!(Window, base_ptr)) / 8;
    assert_eq!([[begins]; 2], [CUkernelNodeAttrValue::PLACES, CUstreamAttrValue::PLACES]);
}

#[test]
fn the_address_of_an_operation_of_a_stream_is_where_the_header_has_it_for_its_kind() {
    use sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as Wait;
    use sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st as Write;
    use sys::CUstreamBatchMemOpType_enum as Kind;
    let (wait, write) = (offset_of!(Wait, address) / 8, offset_of!(Write, address) / 8);
    let all = [
        (Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32, Some(wait)),
        (Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64, Some(wait)),
        (Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32, Some(write)),
        (Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64, Some(write)),
        (Kind::CU_STREAM_MEM_OP_BARRIER, None),
        (Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, None),
    ];
    // `CU_STREAM_MEM_OP_ATOMIC_REDUCTION` of CUDA 13.1, which has its address behind four words of 32 bits.
    let newer = [(8, Some(2))];
    for (kind, place) in all.map(|(kind, place)| (kind as u64, place)).into_iter().chain(newer) {
        // The other half of a kind is nobody's, or flags.
        let given = [kind | 5 << 32, 7, 7, 7, 7, 7];
        let mut words = given;
        translate_operation(&mut words, |address| address + 1);
        let changed: Vec<usize> = (0..words.len()).filter(|at| words[*at] != given[*at]).collect();
        assert_eq!(changed, Vec::from_iter(place), "{kind}");
    }
}

#[test]
fn arrays_are_translated_where_the_header_has_them_and_nothing_else_is() {
    use sys::{CUDA_MEMCPY2D_st as Flat, CUDA_MEMCPY3D_st as Solid};
    let flat = [
        (offset_of!(Flat, srcMemoryType), offset_of!(Flat, srcArray)),
        (offset_of!(Flat, dstMemoryType), offset_of!(Flat, dstArray)),
    ];
    let solid = [
        (offset_of!(Solid, srcMemoryType), offset_of!(Solid, srcArray)),
        (offset_of!(Solid, dstMemoryType), offset_of!(Solid, dstArray)),
    ];
    let words = |places: [(usize, usize); 2]| places.map(|(kind, place)| (kind / 8, place / 8));
    let said =
        |arrays: &[(usize, usize, &[u64])]| arrays.iter().map(|&(kind, place, _)| (kind, place)).collect::<Vec<_>>();
    assert_eq!(words(flat).to_vec(), said(CUDA_MEMCPY2D::ARRAYS));
    assert_eq!(words(solid).to_vec(), said(CUDA_MEMCPY3D::ARRAYS));
    let mut copy = [7_u64; 16];
    // The other half of a kind is nobody's.
    (copy[2], copy[9]) = (3 | 5 << 32, 2);
    translate_arrays::<CUDA_MEMCPY2D>(&mut copy, |handle| handle + 1);
    assert_eq!((copy[5], copy[12], copy[3]), (8, 7, 7));
    for (kind, expected) in [(0, 8), (1, 8), (2, 7), (3, 7)] {
        let mut resource = [kind, 7];
        translate_arrays::<CUDA_RESOURCE_DESC>(&mut resource, |handle| handle + 1);
        assert_eq!(resource[1], expected, "kind {kind}");
    }
}

#[test]
fn a_copy_in_several_dimensions_says_where_it_writes() {
    use sys::{CUDA_MEMCPY2D_st as Flat, CUDA_MEMCPY3D_st as Solid};
    let mut words = [0; 16];
    for (offset, value) in [
        (offset_of!(Flat, dstY), 3),
        (offset_of!(Flat, dstMemoryType), 2),
        (offset_of!(Flat, dstHost), 0x10),
        (offset_of!(Flat, dstDevice), 0x20),
        (offset_of!(Flat, dstPitch), 64),
        (offset_of!(Flat, WidthInBytes), 40),
        (offset_of!(Flat, Height), 5),
    ] {
        words[offset / 8] = value;
    }
    for (kind, address) in [(1, None), (2, Some(0x20)), (3, None), (4, Some(0x20))] {
        words[offset_of!(Flat, dstMemoryType) / 8] = kind;
        assert_eq!(CUDA_MEMCPY2D(words).destination(), Destination { address, length: 64 * 8 }, "kind {kind}");
    }
    let mut words = [0; 25];
    for (offset, value) in [
        (offset_of!(Solid, dstZ), 1),
        (offset_of!(Solid, dstMemoryType), 2),
        (offset_of!(Solid, dstHost), 0x10),
        (offset_of!(Solid, dstDevice), 0x20),
        (offset_of!(Solid, dstPitch), 64),
        (offset_of!(Solid, dstHeight), 6),
        (offset_of!(Solid, WidthInBytes), 40),
        (offset_of!(Solid, Height), 5),
        (offset_of!(Solid, Depth), 2),
    ] {
        words[offset / 8] = value;
    }
    for (kind, address) in [(1, None), (2, Some(0x20)), (3, None), (4, Some(0x20))] {
        words[offset_of!(Solid, dstMemoryType) / 8] = kind;
        assert_eq!(CUDA_MEMCPY3D(words).destination(), Destination { address, length: 64 * 6 * 3 }, "kind {kind}");
    }
}
