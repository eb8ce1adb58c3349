//! The arguments of the driver's functions by their types: which are handles, which point to some.
//!
//! | type | after a recovery |
//! |---|---|
//! | a handle | is translated |
//! | a pointer to where the driver writes a handle | what was written is translated back, the first one of several; of several nodes all, by whoever knows how many |
//! | a list of graphs' nodes that the driver reads ([`lists`]), nodes' parameters ([`nodes`]), `CUlaunchConfig` | the handles in it are translated in a copy |
//! | another structure with handles in it | the call is refused with `CUDA_ERROR_NOT_SUPPORTED` and a line |
//! | an address on the GPU, one in a list, one among a kernel's arguments, and one in the description of a copy, a set, an operation of a stream or a window of access | is translated if it is that of a moved variable ([`moved`]) |
//! | an array in the description of a copy or of what a texture reads | is translated in a copy, and back ([`structures`]) |
//! | anything else | is passed as it is |
#![expect(unsafe_code, reason = "reads and writes through the program's pointers, as the driver does")]

use std::{any::Any, cell::Cell, ptr};

use super::{moved, names};
use crate::cuda::result::{CUdriverProcAddressQueryResult, CUresult};
use crate::cuda::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUDA_BATCH_MEM_OP_NODE_PARAMS,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUDA_LAUNCH_PARAMS,
    CUDA_MEMCPY3D_PEER, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray, CUarrayMapInfo, CUasyncCallbackHandle,
    CUcontext, CUdevResourceDesc, CUevent, CUexternalMemory, CUexternalSemaphore, CUgraph, CUgraphExec, CUgraphNode,
    CUgraphicsResource, CUgreenCtx, CUipcEventHandle, CUipcMemHandle, CUkernel, CUlibrary, CUlinkState,
    CUlogsCallbackHandle, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemoryPool, CUmipmappedArray, CUmodule, CUstream, CUsurfref, CUtexref, CUuserObject, c_char, c_int, c_uchar,
    c_uint, c_ulonglong, c_ushort, c_void,
};

/// A call cannot be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Untranslatable;

/// What a call is about, in the program's own names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The stream, if it names one. 0 is one too.
    pub(crate) stream: Option<usize>,
    /// The event, if it names one; what a launch or a graph's node records counts.
    pub(crate) event: usize,
    /// The event that it names before that one: the time between two is asked for, or a launch records two.
    pub(crate) earlier: usize,
    /// The event that a graph's node waits for, if it names one.
    pub(crate) awaited: usize,
    /// The context, if it names one. 0 is one too.
    pub(crate) context: Option<usize>,
    /// The last length or number of its kind.
    pub(crate) length: usize,
}

impl Subject {
    /// With one more argument.
    #[inline(always)]
    pub(crate) fn with<T: Argument>(mut self, argument: T) -> Self {
        argument.describe(&mut self);
        self
    }
}

/// What a call's arguments say of each other.
#[derive(Debug, Default)]
pub(crate) struct Launched {
    /// What those so far say of a launch.
    stage: Cell<Stage>,
    /// How many nodes a list of them has. Functions with such a list have one argument of this type.
    count: usize,
    /// The first of them, where there are several: how many addresses or copies there are.
    first: Option<usize>,
    /// The first number of 32 bits: how many operations of a stream there are.
    number: Option<c_uint>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing.
    #[default]
    None,
    /// This function is launched, by its handle in the living copy.
    Function(usize),
    /// Its arguments one by one have come; in a list may be others.
    Arguments,
}

impl Launched {
    /// With what one more argument says before any is translated.
    pub(crate) fn with<T: Argument + 'static>(mut self, argument: T) -> Self {
        if let Some(&count) = (&argument as &dyn Any).downcast_ref() {
            self.count = count;
            self.first.get_or_insert(count);
        }
        if let Some(&number) = (&argument as &dyn Any).downcast_ref() {
            self.number.get_or_insert(number);
        }
        self
    }

    /// All arguments are there.
    pub(crate) fn end(&self) {
        self.stage.set(Stage::None);
    }
}

/// An argument.
pub(crate) trait Argument: Copy {
    /// What is kept during the call to be passed in its place.
    type Held;

    /// Translates it. `launched` is what the call's arguments say of each other.
    fn hold(self, launched: &Launched) -> Result<Self::Held, Untranslatable>;

    /// What is passed.
    fn pass(held: &Self::Held) -> Self;

    /// Translates back what the driver has written with success.
    fn name_results(_held: &Self::Held) {}

    /// Adds what it says of the call.
    fn describe(self, _subject: &mut Subject) {}
}

/// Something that an argument points to.
pub(crate) trait Pointee: Sized {
    /// A translated copy of it.
    type Copy;

    /// Whether behind a `*mut` it is what the driver writes, and not what it reads.
    const IS_WRITTEN: bool = false;

    /// A translated copy where one is needed.
    ///
    /// # Safety
    /// It is the program's argument of this type, or null.
    unsafe fn copy(_pointer: *const Self, _launched: &Launched) -> Result<Option<Self::Copy>, Untranslatable> {
        Ok(None)
    }

    /// The copy as what it is a copy of.
    fn original(_copy: &Self::Copy) -> *const Self {
        ptr::null()
    }

    /// Translates back what the driver has written there.
    ///
    /// # Safety
    /// As above, and the driver has returned success.
    unsafe fn name_result(_pointer: *mut Self) {}

    /// Gives the program what the driver has written into a copy.
    ///
    /// # Safety
    /// As above.
    unsafe fn give_back(_copy: &Self::Copy, _pointer: *mut Self) {}

    /// Adds what it says of the call.
    ///
    /// # Safety
    /// As above.
    unsafe fn describe(_pointer: *const Self, _subject: &mut Subject) {}
}

macro_rules! plain {
    ($($type:ty),+ $(,)?) => {
        $(impl Argument for $type {
            type Held = Self;

            fn hold(self, _launched: &Launched) -> Result<Self, Untranslatable> {
                Ok(self)
            }

            fn pass(held: &Self) -> Self {
                *held
            }
        })+
    };
}

macro_rules! pointed_at {
    ($($type:ty),+ $(,)?) => {
        $(impl Pointee for $type {
            type Copy = ();
        })+
    };
}

macro_rules! named {
    ($handle:ident) => {
        impl Pointee for $handle {
            type Copy = ();

            unsafe fn name_result(pointer: *mut Self) {
                if !pointer.is_null() {
                    // SAFETY: by the contract the driver has written there.
                    let written = unsafe { pointer.read_unaligned() };
                    // SAFETY: as above.
                    unsafe { pointer.write_unaligned(Self(names::name_of(written.0))) };
                }
            }
        }
    };
}

macro_rules! translated {
    ($($handle:ident $(($describe:ident))?),+ $(,)?) => {
        $(
            impl Argument for $handle {
                type Held = Self;

                fn hold(self, _launched: &Launched) -> Result<Self, Untranslatable> {
                    Ok(Self(names::current_of(self.0)))
                }

                fn pass(held: &Self) -> Self {
                    *held
                }

                $(fn describe(self, subject: &mut Subject) {
                    $describe(self, subject);
                })?
            }

            named!($handle);
        )+
    };
}

macro_rules! untranslatable {
    ($($type:ty),+ $(,)?) => {
        $(impl Pointee for $type {
            type Copy = ();

            unsafe fn copy(pointer: *const Self, _launched: &Launched) -> Result<Option<()>, Untranslatable> {
                if pointer.is_null() { Ok(None) } else { Err(Untranslatable) }
            }
        })+
    };
}

mod launches;
pub(crate) mod lists;
pub(crate) mod nodes;
mod pointers;
pub(crate) mod structures;

fn is_of_stream(stream: CUstream, subject: &mut Subject) {
    subject.stream = Some(stream.0);
}

fn is_of_context(context: CUcontext, subject: &mut Subject) {
    subject.context = Some(context.0);
}

fn is_of_event(event: CUevent, subject: &mut Subject) {
    (subject.earlier, subject.event) = (subject.event, event.0);
}

translated! {
    CUcontext(is_of_context), CUevent(is_of_event), CUgraph, CUgraphExec, CUkernel, CUlibrary,
    CUarray, CUmemGenericAllocationHandle, CUmemoryPool, CUmipmappedArray, CUmodule, CUstream(is_of_stream),
}

// Handles of what is not made again: whoever has one was not recovered, or got it afterwards.
plain! {
    CUasyncCallbackHandle, CUdevResourceDesc, CUexternalMemory, CUexternalSemaphore, CUgraphicsResource, CUgreenCtx,
    CUlinkState, CUlogsCallbackHandle, CUsurfref, CUtexref, CUuserObject,
}
pointed_at! {
    CUasyncCallbackHandle, CUdevResourceDesc, CUexternalMemory, CUexternalSemaphore, CUgraphicsResource, CUgreenCtx,
    CUlinkState, CUlogsCallbackHandle, CUsurfref, CUtexref, CUuserObject,
}

plain!(c_int, c_uint, c_uchar, c_ushort);

impl Argument for usize {
    type Held = Self;

    fn hold(self, _launched: &Launched) -> Result<Self, Untranslatable> {
        Ok(self)
    }

    fn pass(held: &Self) -> Self {
        *held
    }

    fn describe(self, subject: &mut Subject) {
        subject.length = self;
    }
}

// The driver's type of addresses. No other number of this type has the value of one.
impl Argument for c_ulonglong {
    type Held = Self;

    fn hold(self, _launched: &Launched) -> Result<Self, Untranslatable> {
        Ok(moved::current_of(self))
    }

    fn pass(held: &Self) -> Self {
        *held
    }
}

impl Pointee for c_ulonglong {
    type Copy = ();

    unsafe fn name_result(pointer: *mut Self) {
        if !pointer.is_null() {
            // SAFETY: by the contract the driver has written there.
            let written = unsafe { pointer.read_unaligned() };
            // SAFETY: as above.
            unsafe { pointer.write_unaligned(moved::name_of(written)) };
        }
    }
}

plain!(f32, CUresult, CUmemLocation, CUipcMemHandle, CUipcEventHandle);
pointed_at! {
    c_void, c_char, c_int, c_uint, usize, f32, *const c_void, *const c_char, *mut usize,
    *const CUgraphNode, *const c_int, CUmemLocation, CUmemAccessDesc, CUmemAllocationProp, CUipcMemHandle,
    CUipcEventHandle, CUdriverProcAddressQueryResult, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    CUDA_TEXTURE_DESC, CUDA_RESOURCE_VIEW_DESC,
}
untranslatable! {
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_LAUNCH_PARAMS, CUDA_MEMCPY3D_PEER, CUarrayMapInfo,
}
