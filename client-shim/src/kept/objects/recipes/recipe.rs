//! What a recipe says, by the kind of object.

use std::ffi::{CStr, CString, c_int, c_uint};

use super::views::{Layout, Texture};
use crate::cuda::{arguments::structures::WINDOW, moved::Moves};
use crate::kept::objects::contents::Code;

/// What a module or library was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// These bytes.
    Bytes(Code),
    /// A file, by the path that the program gave.
    File(CString),
}

/// An option of the just-in-time compiler that is a number: which, and its value.
pub(crate) type JitOption = (c_uint, usize);

/// Something that was set on an object after it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    /// `cuFuncSetAttribute`, or `cuKernelSetAttribute` for a device.
    Attribute(c_uint, Option<c_int>),
    /// `cuFuncSetCacheConfig`, or `cuKernelSetCacheConfig` for a device.
    Cache(Option<c_int>),
    /// `cuCtxSetLimit`.
    Limit(c_uint),
    /// `cuPointerSetAttribute` of this address.
    PointerAttribute(c_uint, u64),
    /// `cuMemPoolSetAttribute`.
    PoolAttribute(c_uint),
    /// `cuMemPoolSetAccess` for this device.
    PoolAccess(c_int),
    /// `cuDeviceSetMemPool` of this device.
    PoolOfDevice(c_int),
    /// One of the eight words of what `cuStreamSetAttribute` was given.
    StreamAttribute(c_uint, u8),
}

impl Setting {
    /// Its value, which is an address of the GPU where it is the first word of a window of access, with variables at their
    /// addresses of today.
    pub(crate) fn moved(self, value: u64, moves: &Moves) -> u64 {
        if self == Self::StreamAttribute(WINDOW, 0) { moves.of(value) } else { value }
    }

    /// None comes before it.
    pub(super) const FIRST: Self = Self::Attribute(0, None);
}

/// How to make an object again. Contexts and other objects are named by their handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// `cuStreamCreate`, `cuStreamCreateWithPriority`.
    Stream { context: usize, flags: c_uint, priority: Option<c_int> },
    /// `cuEventCreate`.
    Event { context: usize, flags: c_uint },
    /// `cuModuleLoad…`.
    Module { context: usize, image: Image, options: Vec<JitOption> },
    /// `cuModuleGetFunction`.
    Function { module: usize, name: CString },
    /// `cuLibraryLoad…`.
    Library { image: Image, options: Vec<JitOption> },
    /// `cuLibraryGetKernel`.
    Kernel { library: usize, name: CString },
    /// `cuLibraryGetModule`.
    LibraryModule { context: usize, library: usize },
    /// `cuKernelGetFunction`.
    KernelFunction { context: usize, kernel: usize },
    /// `cuMemHostRegister`.
    HostRange { context: usize, size: usize, flags: c_uint },
    /// `cuMemHostAlloc`, `cuMemAllocHost`: pages of ours.
    HostMemory { context: usize, size: usize, flags: c_uint },
    /// `cuModuleGetGlobal`, or `cuLibraryGetGlobal` with this context current.
    Variable { context: usize, of: usize, is_of_library: bool, name: CString, size: usize },
    /// `cuMemPoolCreate` with these `CUmemPoolProps`, or the device's default pool.
    Pool { device: c_int, properties: Option<[u64; 11]> },
    /// `cuImportExternalMemory` of the slab in which a block of ours lies, for an array that is seen there.
    ArrayMemory { context: usize, address: u64 },
    /// `cuMipmappedArrayCreate`, or what a plain array is a level of: a view of that memory.
    MipmappedArray { context: usize, memory: usize, address: u64, layout: Layout, is_plain: bool },
    /// `cuMipmappedArrayGetLevel`; the first level of what is plain is the program's `cuArrayCreate` or `cuArray3DCreate`.
    Array { of: usize, level: c_uint },
    /// `cuTexObjectCreate`, `cuSurfObjectCreate`.
    Texture { context: usize, texture: Box<Texture> },
}

impl Recipe {
    /// Its context, if it is of one.
    pub(super) fn context(&self) -> Option<usize> {
        match self {
            Self::Stream { context, .. }
            | Self::Event { context, .. }
            | Self::Module { context, .. }
            | Self::LibraryModule { context, .. }
            | Self::KernelFunction { context, .. }
            | Self::HostRange { context, .. }
            | Self::HostMemory { context, .. }
            | Self::Variable { context, .. }
            | Self::ArrayMemory { context, .. }
            | Self::MipmappedArray { context, .. }
            | Self::Texture { context, .. } => Some(*context),
            Self::Function { .. }
            | Self::Library { .. }
            | Self::Kernel { .. }
            | Self::Pool { .. }
            | Self::Array { .. } => None,
        }
    }

    /// What it was made of.
    pub(crate) fn parent(&self) -> Option<usize> {
        match self {
            Self::Function { module, .. } => Some(*module),
            Self::Kernel { library, .. } | Self::LibraryModule { library, .. } => Some(*library),
            Self::KernelFunction { kernel, .. } => Some(*kernel),
            Self::Variable { of, .. } | Self::Array { of, .. } => Some(*of),
            Self::MipmappedArray { memory, .. } => Some(*memory),
            // A texture may outlive its array.
            Self::Texture { .. }
            | Self::ArrayMemory { .. }
            | Self::Stream { .. }
            | Self::Event { .. }
            | Self::Module { .. }
            | Self::Library { .. }
            | Self::HostRange { .. }
            | Self::HostMemory { .. }
            | Self::Pool { .. } => None,
        }
    }

    /// The name of its kind in the report.
    pub(super) const fn kind(&self) -> usize {
        match self {
            Self::Stream { .. } => 0,
            Self::Event { .. } => 1,
            Self::Module { .. } | Self::LibraryModule { .. } => 2,
            Self::Function { .. } | Self::KernelFunction { .. } => 3,
            Self::Library { .. } => 4,
            Self::Kernel { .. } => 5,
            Self::HostRange { .. } => 6,
            Self::HostMemory { .. } => 7,
            Self::Variable { .. } => 8,
            Self::Pool { .. } => 9,
            Self::ArrayMemory { .. } | Self::MipmappedArray { is_plain: true, .. } => 12,
            Self::MipmappedArray { .. } | Self::Array { .. } => 13,
            Self::Texture { .. } => 14,
        }
    }

    pub(super) fn image_bytes(&self) -> u64 {
        match self {
            Self::Module { image: Image::Bytes(bytes), .. } | Self::Library { image: Image::Bytes(bytes), .. } => {
                u64::try_from(bytes.len()).unwrap_or(u64::MAX)
            }
            Self::Module { image: Image::File(_), .. }
            | Self::Library { image: Image::File(_), .. }
            | Self::Stream { .. }
            | Self::Event { .. }
            | Self::Function { .. }
            | Self::Kernel { .. }
            | Self::LibraryModule { .. }
            | Self::KernelFunction { .. }
            | Self::HostRange { .. }
            | Self::HostMemory { .. }
            | Self::Variable { .. }
            | Self::Pool { .. }
            | Self::ArrayMemory { .. }
            | Self::MipmappedArray { .. }
            | Self::Array { .. }
            | Self::Texture { .. } => 0,
        }
    }
}

/// Names of the kinds, by number.
pub(crate) const KINDS: [&str; 15] = [
    "streams",
    "events",
    "modules",
    "functions",
    "libraries",
    "kernels",
    "host_ranges",
    "host_allocations",
    "variables",
    "pools",
    "graphs",
    "executable_graphs",
    "array_memory",
    "arrays",
    "textures",
];

/// The image and the name of a kernel, by what it was made of.
pub(crate) fn code_of<'a>(
    kernel: &'a Recipe,
    recipe_of: impl Fn(usize) -> Option<&'a Recipe>,
) -> Option<(&'a Image, &'a CStr)> {
    let (mut of, name) = match kernel {
        Recipe::Function { module, name } => (*module, name),
        Recipe::Kernel { library, name } => (*library, name),
        Recipe::Stream { .. }
        | Recipe::Event { .. }
        | Recipe::Module { .. }
        | Recipe::Library { .. }
        | Recipe::LibraryModule { .. }
        | Recipe::KernelFunction { .. }
        | Recipe::HostRange { .. }
        | Recipe::HostMemory { .. }
        | Recipe::Variable { .. }
        | Recipe::Pool { .. }
        | Recipe::ArrayMemory { .. }
        | Recipe::MipmappedArray { .. }
        | Recipe::Array { .. }
        | Recipe::Texture { .. } => return None,
    };
    if let Some(Recipe::LibraryModule { library, .. }) = recipe_of(of) {
        of = *library;
    }
    let made_of = recipe_of(of)?;
    if let Recipe::Module { image, .. } | Recipe::Library { image, .. } = made_of { Some((image, name)) } else { None }
}
