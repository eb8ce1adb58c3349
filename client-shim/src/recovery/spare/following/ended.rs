//! What a spare copy of the driver has for an object of the program's, and how that ends.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::super::super::objects::enter;
use crate::{
    cuda::{
        result::CUresult,
        types::{CUevent, CUexternalMemory, CUlibrary, CUmemoryPool, CUmipmappedArray, CUmodule, CUstream, Key as _},
    },
    kept::objects::recipes::Recipe,
};

/// What must be called when an object is no more.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Stream,
    Event,
    Module,
    Library,
    Pool,
    Host,
    ArrayMemory,
    MipmappedArray,
    Texture,
    Surface,
    /// It goes with something else, or stays.
    Nothing,
}

impl End {
    pub(super) fn of(recipe: &Recipe) -> Self {
        match recipe {
            Recipe::Stream { .. } => Self::Stream,
            Recipe::Event { .. } => Self::Event,
            Recipe::Module { .. } => Self::Module,
            Recipe::Library { .. } => Self::Library,
            Recipe::Pool { properties: Some(_), .. } => Self::Pool,
            Recipe::HostRange { .. } | Recipe::HostMemory { .. } => Self::Host,
            Recipe::ArrayMemory { .. } => Self::ArrayMemory,
            Recipe::MipmappedArray { .. } => Self::MipmappedArray,
            Recipe::Texture { texture, .. } if texture.how.is_some() => Self::Texture,
            Recipe::Texture { .. } => Self::Surface,
            Recipe::Pool { properties: None, .. }
            | Recipe::Function { .. }
            | Recipe::Kernel { .. }
            | Recipe::LibraryModule { .. }
            | Recipe::KernelFunction { .. }
            | Recipe::Array { .. }
            | Recipe::Variable { .. } => Self::Nothing,
        }
    }

    fn call(self, handle: usize) {
        let _gone_anyway = match self {
            Self::Stream => driver!(stream::cuStreamDestroy_v2(CUstream(handle))),
            Self::Event => driver!(event::cuEventDestroy_v2(CUevent(handle))),
            Self::Module => driver!(module::cuModuleUnload(CUmodule(handle))),
            Self::Library => driver!(library::cuLibraryUnload(CUlibrary(handle))),
            Self::Pool => driver!(pool::cuMemPoolDestroy(CUmemoryPool(handle))),
            Self::Host => driver!(host::cuMemHostUnregister(ptr::with_exposed_provenance_mut(handle))),
            Self::ArrayMemory => driver!(external::cuDestroyExternalMemory(CUexternalMemory(handle))),
            Self::MipmappedArray => driver!(array::cuMipmappedArrayDestroy(CUmipmappedArray(handle))),
            Self::Texture => driver!(array::cuTexObjectDestroy(handle.key())),
            Self::Surface => driver!(array::cuSurfObjectDestroy(handle.key())),
            Self::Nothing => CUresult::CUDA_SUCCESS,
        };
    }
}

/// An object that was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    /// Of its recipe.
    pub(super) number: u64,
    /// A texture's or surface's value.
    pub(super) handle: usize,
    /// The copy's context, of what ends in it alone; 0 for the others.
    pub(super) context: usize,
    pub(super) end: End,
}

impl Object {
    pub(super) fn end(self) {
        if self.context != 0 && enter(self.context).is_err() {
            return;
        }
        self.end.call(self.handle);
    }
}
