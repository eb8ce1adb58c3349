//! Parameters of nodes as the driver's header lays them out, with handles and addresses of the living copy.
#![expect(unsafe_code, reason = "reads the program's structures, as the driver does")]

use std::{
    ffi::{c_int, c_longlong, c_uint, c_void},
    ops::{Deref, DerefMut},
};

use super::structures::translate;
use crate::cuda::{
    moved::{self, Arguments},
    names::{current_of, name_of},
    types::{
        CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraphNode, CUgraphNodeParams,
        CUgraphNodeType,
    },
};

/// `CUgraphNodeType`.
pub(crate) const KERNEL: CUgraphNodeType = 0;
pub(crate) const COPY: CUgraphNodeType = 1;
pub(crate) const SET: CUgraphNodeType = 2;
pub(crate) const HOST: CUgraphNodeType = 3;
pub(crate) const CHILD: CUgraphNodeType = 4;
pub(crate) const EMPTY: CUgraphNodeType = 5;
pub(crate) const WAIT: CUgraphNodeType = 6;
pub(crate) const RECORD: CUgraphNodeType = 7;

/// `CUDA_KERNEL_NODE_PARAMS` of today; the older one has no kernel and no context.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) function: usize,
    pub(crate) shape: [c_uint; 7],
    pub(crate) arguments: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    pub(crate) kernel: usize,
    pub(crate) context: usize,
}

/// The older one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct OldKernel {
    function: usize,
    shape: [c_uint; 7],
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// Parameters as the driver is given them.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Held<T> {
    // First, so that a pointer to this is one to it.
    params: T,
    /// What they point to in the place of the program's.
    _arguments: Option<Arguments>,
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.params
    }
}

impl<T> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.params
    }
}

impl Kernel {
    pub(crate) const NONE: Self = Self {
        function: 0,
        shape: [0; 7],
        arguments: std::ptr::null_mut(),
        extra: std::ptr::null_mut(),
        kernel: 0,
        context: 0,
    };

    /// A copy in the living copy's handles; `None` of nothing.
    ///
    /// # Safety
    /// It is the program's argument, of today's layout or the older one.
    pub(crate) unsafe fn read(params: *const CUDA_KERNEL_NODE_PARAMS, is_old: bool) -> Option<Held<Self>> {
        if params.is_null() {
            return None;
        }
        let read = if is_old {
            // SAFETY: by the contract.
            let OldKernel { function, shape, arguments, extra } =
                unsafe { params.cast::<OldKernel>().read_unaligned() };
            Self { function, shape, arguments, extra, ..Self::NONE }
        } else {
            // SAFETY: by the contract.
            unsafe { params.cast::<Self>().read_unaligned() }
        };
        let mut params = read.translated(current_of);
        // SAFETY: by the contract.
        let moved = unsafe { params.point_to_today() };
        Some(Held { params, _arguments: moved })
    }

    /// Lets it point to arguments with today's addresses where the program's are not.
    ///
    /// # Safety
    /// It has the program's arguments, and handles of the living copy.
    unsafe fn point_to_today(&mut self) -> Option<Arguments> {
        let function = if self.function == 0 { self.kernel } else { self.function };
        if self.arguments.is_null() {
            // SAFETY: by the contract.
            let moved = unsafe { moved::buffer(self.extra) }?;
            self.extra = moved.list();
            Some(moved)
        } else {
            // SAFETY: by the contract.
            let moved = unsafe { moved::arguments(function, self.arguments) }?;
            self.arguments = moved.list();
            Some(moved)
        }
    }

    /// Names what the driver has written.
    ///
    /// # Safety
    /// As above, and the driver has just filled it.
    pub(crate) unsafe fn name(params: *mut CUDA_KERNEL_NODE_PARAMS, is_old: bool) {
        if is_old {
            // SAFETY: by the contract.
            let mut old = unsafe { params.cast::<OldKernel>().read_unaligned() };
            old.function = name_of(old.function);
            // SAFETY: as above.
            unsafe { params.cast::<OldKernel>().write_unaligned(old) };
        } else {
            // SAFETY: as above.
            let named = unsafe { params.cast::<Self>().read_unaligned() }.translated(name_of);
            // SAFETY: as above.
            unsafe { params.cast::<Self>().write_unaligned(named) };
        }
    }

    fn translated(self, to: impl Fn(usize) -> usize) -> Self {
        Self { function: to(self.function), kernel: to(self.kernel), context: to(self.context), ..self }
    }
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy {
    flags: c_int,
    reserved: c_int,
    pub(crate) context: usize,
    pub(crate) words: [u64; 25],
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Set {
    pub(crate) words: [u64; 5],
    pub(crate) context: usize,
}

/// What is set for any kind of node.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Any {
    pub(crate) kernel: Kernel,
    pub(crate) copy: Copy,
    pub(crate) set: Set,
    /// A function and its argument, an event, or a graph and who owns it.
    pub(crate) words: [usize; 2],
    room: [u64; 29],
}

/// `CUgraphNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Params {
    pub(crate) kind: CUgraphNodeType,
    reserved: [c_int; 3],
    pub(crate) of: Any,
    last: c_longlong,
}

impl Params {
    /// A copy in the living copy's handles; `None` of nothing.
    ///
    /// # Safety
    /// It is the program's argument.
    pub(crate) unsafe fn read(params: *const CUgraphNodeParams) -> Option<Held<Self>> {
        if params.is_null() {
            return None;
        }
        // SAFETY: by the contract.
        let mut read = unsafe { params.cast::<Self>().read_unaligned() };
        read.translate(current_of, moved::current_of);
        let mut arguments = None;
        if read.kind == KERNEL {
            // SAFETY: the kind says what is set.
            let mut kernel = unsafe { read.of.kernel };
            // SAFETY: by the contract.
            arguments = unsafe { kernel.point_to_today() };
            read.of.kernel = kernel;
        }
        Some(Held { params: read, _arguments: arguments })
    }

    /// Names what the driver has written.
    ///
    /// # Safety
    /// As above, and the driver has just filled it.
    pub(crate) unsafe fn name(params: *mut CUgraphNodeParams) {
        // SAFETY: by the contract.
        let mut read = unsafe { params.cast::<Self>().read_unaligned() };
        read.translate(name_of, moved::name_of);
        // SAFETY: as above.
        unsafe { params.cast::<Self>().write_unaligned(read) };
    }

    fn translate(&mut self, to: impl Fn(usize) -> usize, address_to: impl Fn(u64) -> u64) {
        match self.kind {
            // SAFETY: the kind says what is set.
            KERNEL => self.of.kernel = unsafe { self.of.kernel }.translated(to),
            COPY => {
                // SAFETY: as above.
                let mut copy = unsafe { self.of.copy };
                translate::<CUDA_MEMCPY3D>(&mut copy.words, address_to);
                self.of.copy = Copy { context: to(copy.context), ..copy };
            }
            SET => {
                // SAFETY: as above.
                let mut set = unsafe { self.of.set };
                translate::<CUDA_MEMSET_NODE_PARAMS>(&mut set.words, address_to);
                self.of.set = Set { context: to(set.context), ..set };
            }
            CHILD | WAIT | RECORD => {
                // SAFETY: as above.
                let [handle, second] = unsafe { self.of.words };
                self.of.words = [to(handle), second];
            }
            _ => {}
        }
    }

    /// Whether there are handles in it as far as is known.
    pub(crate) fn has_handles(&self) -> bool {
        matches!(self.kind, KERNEL | COPY | SET | CHILD | WAIT | RECORD)
    }

    /// Where it is done, if that is said and it is a copy or a set.
    pub(crate) fn context(&self) -> Option<usize> {
        match self.kind {
            // SAFETY: the kind says what is set.
            COPY => Some(unsafe { self.of.copy.context }),
            // SAFETY: as above.
            SET => Some(unsafe { self.of.set.context }),
            _ => None,
        }
    }
}

/// Nodes that a program names, in the living copy's handles.
///
/// # Safety
/// There are so many.
pub(crate) unsafe fn nodes(list: *const CUgraphNode, count: usize) -> Vec<CUgraphNode> {
    let count = if list.is_null() { 0 } else { count };
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

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys;

    use super::{Copy, Kernel, OldKernel, Params, Set};

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
}
