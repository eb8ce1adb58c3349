use std::mem::offset_of;

use cudarc::driver::sys;

use super::{Any, COPY, Copy, Kernel, OldKernel, Params, Set};

#[test]
fn structures_are_as_in_the_header() {
    assert_eq!(size_of::<OldKernel>(), size_of::<sys::CUDA_KERNEL_NODE_PARAMS_st>());
    assert_eq!(size_of::<Kernel>(), size_of::<sys::CUDA_KERNEL_NODE_PARAMS_v2_st>());
    assert_eq!(offset_of!(Kernel, arguments), offset_of!(sys::CUDA_KERNEL_NODE_PARAMS_v2_st, kernelParams));
    assert_eq!(offset_of!(Kernel, kernel), offset_of!(sys::CUDA_KERNEL_NODE_PARAMS_v2_st, kern));
    assert_eq!(size_of::<Copy>(), size_of::<sys::CUDA_MEMCPY_NODE_PARAMS_st>());
    assert_eq!(offset_of!(Copy, words), offset_of!(sys::CUDA_MEMCPY_NODE_PARAMS_st, copyParams));
    assert_eq!(size_of::<Set>(), size_of::<sys::CUDA_MEMSET_NODE_PARAMS_v2_st>());
    assert_eq!(offset_of!(Set, context), offset_of!(sys::CUDA_MEMSET_NODE_PARAMS_v2_st, ctx));
    assert_eq!(size_of::<Params>(), size_of::<sys::CUgraphNodeParams_st>());
    assert_eq!(offset_of!(Params, of), offset_of!(sys::CUgraphNodeParams_st, __bindgen_anon_1));
}

#[test]
fn an_array_in_a_copys_parameters_is_translated_and_what_is_none_is_not() {
    let words = |kinds: [u64; 2]| {
        let mut words = [0_u64; 25];
        (words[4], words[15], words[7], words[18]) = (kinds[0], kinds[1], 7, 7);
        words
    };
    for (kinds, expected) in [([3, 1], [8, 7]), ([2, 3], [7, 8]), ([1, 4], [7, 7])] {
        let copy = Copy { flags: 0, reserved: 0, context: 7, words: words(kinds) };
        let mut params = Params { kind: COPY, reserved: [0; 3], of: Any { copy }, last: 0 };
        params.translate(|handle| handle + 1, |address| address);
        // SAFETY: it is a copy.
        let copy = unsafe { params.of.copy };
        assert_eq!((copy.context, [copy.words[7], copy.words[18]]), (8, expected), "{kinds:?}");
    }
}
