//! Parameters of graphs' nodes as the driver's header lays them out: in calls with handles and addresses of the living
//! copy.
#![expect(unsafe_code, reason = "reads the program's structures, as the driver does")]

use std::{
    ffi::{c_int, c_longlong, c_uint, c_void},
    ops::Deref,
    ptr,
};

use super::{
    Launched, Pointee, Subject, Untranslatable,
    structures::{translate, translate_arrays},
};
use crate::cuda::{
    moved::{self, Arguments},
    names::{current_of, name_of},
    types::{
        CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraphNodeParams,
        CUgraphNodeParams_filled, CUgraphNodeType,
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
pub(crate) struct OldKernel {
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

impl From<OldKernel> for Kernel {
    fn from(OldKernel { function, shape, arguments, extra }: OldKernel) -> Self {
        Self { function, shape, arguments, extra, ..Self::NONE }
    }
}

impl OldKernel {
    fn translated(self, to: impl Fn(usize) -> usize) -> Self {
        Self { function: to(self.function), ..self }
    }
}

impl Kernel {
    pub(crate) const NONE: Self =
        Self { function: 0, shape: [0; 7], arguments: ptr::null_mut(), extra: ptr::null_mut(), kernel: 0, context: 0 };

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

    fn translated(self, to: impl Fn(usize) -> usize) -> Self {
        Self { function: to(self.function), kernel: to(self.kernel), context: to(self.context), ..self }
    }
}

macro_rules! kernels {
    ($($name:ident in $layout:ident),+ $(,)?) => {$(
        impl Pointee for $name {
            type Copy = Held<Kernel>;
            const IS_WRITTEN: bool = true;

            unsafe fn copy(pointer: *const Self, _: &Launched) -> Result<Option<Held<Kernel>>, Untranslatable> {
                // SAFETY: by the contract.
                let Some(read) = (unsafe { read::<$layout>(pointer.cast()) }) else { return Ok(None) };
                let mut params = Kernel::from(read).translated(current_of);
                // SAFETY: by the contract.
                let arguments = unsafe { params.point_to_today() };
                Ok(Some(Held { params, _arguments: arguments }))
            }

            fn original(copy: &Held<Kernel>) -> *const Self {
                ptr::from_ref(copy).cast()
            }

            unsafe fn name_result(pointer: *mut Self) {
                // SAFETY: by the contract the driver has written there.
                if let Some(written) = unsafe { read::<$layout>(pointer.cast()) } {
                    // SAFETY: as above.
                    unsafe { pointer.cast::<$layout>().write_unaligned(written.translated(name_of)) };
                }
            }
        }
    )+};
}

// Both begin alike, so the older functions are given today's.
kernels!(CUDA_KERNEL_NODE_PARAMS in Kernel, CUDA_KERNEL_NODE_PARAMS_v1 in OldKernel);

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
    fn translate(&mut self, to: impl Fn(usize) -> usize, address_to: impl Fn(u64) -> u64) {
        match self.kind {
            // SAFETY: the kind says what is set.
            KERNEL => self.of.kernel = unsafe { self.of.kernel }.translated(to),
            COPY => {
                // SAFETY: as above.
                let mut copy = unsafe { self.of.copy };
                translate::<CUDA_MEMCPY3D>(&mut copy.words, address_to);
                translate_arrays::<CUDA_MEMCPY3D>(&mut copy.words, &to);
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

    /// The graph that it embeds, if it is a node that does.
    pub(crate) fn embedded(&self) -> Option<usize> {
        // SAFETY: the kind says what is set.
        (self.kind == CHILD).then(|| unsafe { self.of.words }[0])
    }
}

impl Pointee for CUgraphNodeParams {
    type Copy = Held<Params>;

    unsafe fn copy(pointer: *const Self, _: &Launched) -> Result<Option<Held<Params>>, Untranslatable> {
        // SAFETY: by the contract.
        let Some(mut params) = (unsafe { read::<Params>(pointer.cast()) }) else { return Ok(None) };
        params.translate(current_of, moved::current_of);
        let mut arguments = None;
        if params.kind == KERNEL {
            // SAFETY: the kind says what is set.
            let mut kernel = unsafe { params.of.kernel };
            // SAFETY: by the contract.
            arguments = unsafe { kernel.point_to_today() };
            params.of.kernel = kernel;
        }
        Ok(Some(Held { params, _arguments: arguments }))
    }

    fn original(copy: &Held<Params>) -> *const Self {
        ptr::from_ref(copy).cast()
    }

    // An allocation's address.
    unsafe fn give_back(copy: &Held<Params>, pointer: *mut Self) {
        if !copy.has_handles() {
            // SAFETY: by the contract the program lets the driver write there.
            unsafe { pointer.cast::<Params>().write_unaligned(copy.params) };
        }
    }

    unsafe fn describe(pointer: *const Self, subject: &mut Subject) {
        /// The word in which a node that records or waits has its event.
        const EVENT: usize = 2;
        if pointer.is_null() {
            return;
        }
        // SAFETY: by the contract it begins with its kind.
        let kind = unsafe { pointer.cast::<CUgraphNodeType>().read_unaligned() };
        if matches!(kind, RECORD | WAIT) {
            // SAFETY: a node of these kinds has its event there.
            let event = unsafe { pointer.cast::<usize>().wrapping_add(EVENT).read_unaligned() };
            if kind == RECORD {
                subject.event = event;
            } else {
                subject.awaited = event;
            }
        }
    }
}

impl Pointee for CUgraphNodeParams_filled {
    type Copy = ();
    const IS_WRITTEN: bool = true;

    unsafe fn name_result(pointer: *mut Self) {
        // SAFETY: by the contract the driver has written there.
        if let Some(mut written) = unsafe { read::<Params>(pointer.cast()) } {
            written.translate(name_of, moved::name_of);
            // SAFETY: as above.
            unsafe { pointer.cast::<Params>().write_unaligned(written) };
        }
    }
}

/// What a structure of the program's says; `None` of nothing.
///
/// # Safety
/// It is one of this layout, or null.
pub(crate) unsafe fn read<T: std::marker::Copy>(params: *const c_void) -> Option<T> {
    // SAFETY: by the contract.
    (!params.is_null()).then(|| unsafe { params.cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests;
