//! The driver's functions for arrays, textures and surfaces, as the probe uses them.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::check;
use cudarc::driver::sys;
use std::mem::MaybeUninit;
use std::ptr;

/// Bytes of an element: one word.
const ELEMENT: usize = 4;

/// What an array is asked for by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::programs::replay_probe) struct Shape {
    pub(in crate::programs::replay_probe) sides: [usize; 3],
    pub(in crate::programs::replay_probe) flags: u32,
    pub(in crate::programs::replay_probe) levels: u32,
}

impl Shape {
    fn level(self, level: u32) -> [usize; 3] {
        let [width, height, depth] = self.sides;
        [(width >> level).max(1), (height >> level).max(1), depth.max(1)]
    }

    pub(in crate::programs::replay_probe) fn level_bytes(self, level: u32) -> usize {
        self.level(level).iter().product::<usize>() * ELEMENT
    }

    fn descriptor(self) -> sys::CUDA_ARRAY3D_DESCRIPTOR {
        let [width, height, depth] = self.sides;
        sys::CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: sys::CUarray_format_enum::CU_AD_FORMAT_UNSIGNED_INT32,
            NumChannels: 1,
            Flags: self.flags,
        }
    }
}

/// An array, with its levels if it has several.
pub(in crate::programs::replay_probe) struct Array {
    pub(in crate::programs::replay_probe) shape: Shape,
    mipmapped: sys::CUmipmappedArray,
    levels: Vec<sys::CUarray>,
}

fn zeroed<T>() -> T {
    // SAFETY: used for the driver's plain structures alone, of which zeros are values.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl Array {
    pub(in crate::programs::replay_probe) fn new(shape: Shape) -> Result<Self, GpuError> {
        let asked = shape.descriptor();
        if shape.levels == 1 {
            let mut array = ptr::null_mut();
            let is_flat = shape.flags == 0 && shape.sides[2] == 0;
            if is_flat {
                let (width, height) = (asked.Width, asked.Height);
                let asked =
                    sys::CUDA_ARRAY_DESCRIPTOR { Width: width, Height: height, Format: asked.Format, NumChannels: 1 };
                // SAFETY: the result is a variable of ours.
                check("cuArrayCreate", unsafe { sys::cuArrayCreate_v2(&raw mut array, &raw const asked) })?;
            } else {
                // SAFETY: as above.
                check("cuArray3DCreate", unsafe { sys::cuArray3DCreate_v2(&raw mut array, &raw const asked) })?;
            }
            return Ok(Self { shape, mipmapped: ptr::null_mut(), levels: vec![array] });
        }
        let mut mipmapped = ptr::null_mut();
        // SAFETY: as above.
        let made = unsafe { sys::cuMipmappedArrayCreate(&raw mut mipmapped, &raw const asked, shape.levels) };
        check("cuMipmappedArrayCreate", made)?;
        let levels = (0..shape.levels).map(|level| {
            let mut array = ptr::null_mut();
            // SAFETY: as above.
            let found = unsafe { sys::cuMipmappedArrayGetLevel(&raw mut array, mipmapped, level) };
            check("cuMipmappedArrayGetLevel", found).map(|()| array)
        });
        let levels = levels.collect::<Result<_, _>>()?;
        Ok(Self { shape, mipmapped, levels })
    }

    pub(in crate::programs::replay_probe) fn destroy(self) -> Result<(), GpuError> {
        if self.mipmapped.is_null() {
            // SAFETY: nobody else has it.
            check("cuArrayDestroy", unsafe { sys::cuArrayDestroy(self.levels[0]) })
        } else {
            // SAFETY: as above.
            check("cuMipmappedArrayDestroy", unsafe { sys::cuMipmappedArrayDestroy(self.mipmapped) })
        }
    }

    pub(in crate::programs::replay_probe) fn first_level(&self) -> sys::CUarray {
        self.levels[0]
    }

    fn copy(&self, level: u32) -> sys::CUDA_MEMCPY3D {
        let [width, height, depth] = self.shape.level(level);
        sys::CUDA_MEMCPY3D { WidthInBytes: width * ELEMENT, Height: height, Depth: depth, ..zeroed() }
    }

    /// Writes a level from the host, whichever call there is for its dimensions.
    pub(in crate::programs::replay_probe) fn write(&self, level: u32, bytes: &[u8]) -> Result<(), GpuError> {
        assert_eq!(bytes.len(), self.shape.level_bytes(level), "all of it is written");
        let array = self.levels[level as usize];
        if self.shape.sides[1..] == [0, 0] {
            // SAFETY: the source is as long as the copy.
            let copied = unsafe { sys::cuMemcpyHtoA_v2(array, 0, bytes.as_ptr().cast(), bytes.len()) };
            return check("cuMemcpyHtoA", copied);
        }
        let copy = sys::CUDA_MEMCPY3D {
            srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
            srcHost: bytes.as_ptr().cast(),
            dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_ARRAY,
            dstArray: array,
            ..self.copy(level)
        };
        // SAFETY: as above.
        check("cuMemcpy3D", unsafe { sys::cuMemcpy3D_v2(&raw const copy) })
    }

    /// Writes the first level in a stream's order; what the driver answers.
    pub(in crate::programs::replay_probe) fn write_in(&self, bytes: &[u8], stream: sys::CUstream) -> sys::CUresult {
        assert_eq!(bytes.len(), self.shape.level_bytes(0), "all of it is written");
        let copy = sys::CUDA_MEMCPY3D {
            srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
            srcHost: bytes.as_ptr().cast(),
            dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_ARRAY,
            dstArray: self.levels[0],
            ..self.copy(0)
        };
        // SAFETY: pageable memory is read before the call returns.
        unsafe { sys::cuMemcpy3DAsync_v2(&raw const copy, stream) }
    }

    /// Reads a level to the host.
    pub(in crate::programs::replay_probe) fn read(&self, level: u32) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0_u8; self.shape.level_bytes(level)];
        let array = self.levels[level as usize];
        if self.shape.sides[1..] == [0, 0] {
            // SAFETY: the destination is as long as the copy.
            let copied = unsafe { sys::cuMemcpyAtoH_v2(bytes.as_mut_ptr().cast(), array, 0, bytes.len()) };
            check("cuMemcpyAtoH", copied)?;
        } else if self.shape.sides[2] == 0 {
            let [width, height, _] = self.shape.level(level);
            let copy = sys::CUDA_MEMCPY2D {
                srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_ARRAY,
                srcArray: array,
                dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
                dstHost: bytes.as_mut_ptr().cast(),
                WidthInBytes: width * ELEMENT,
                Height: height,
                ..zeroed()
            };
            // SAFETY: as above.
            check("cuMemcpy2D", unsafe { sys::cuMemcpy2D_v2(&raw const copy) })?;
        } else {
            let copy = sys::CUDA_MEMCPY3D {
                srcMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_ARRAY,
                srcArray: array,
                dstMemoryType: sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
                dstHost: bytes.as_mut_ptr().cast(),
                ..self.copy(level)
            };
            // SAFETY: as above.
            check("cuMemcpy3D", unsafe { sys::cuMemcpy3D_v2(&raw const copy) })?;
        }
        Ok(bytes)
    }

    /// Whether the driver describes it as it was asked for.
    pub(in crate::programs::replay_probe) fn is_described(&self) -> Result<bool, GpuError> {
        let mut found: sys::CUDA_ARRAY3D_DESCRIPTOR = zeroed();
        // SAFETY: the result is a variable of ours.
        let told = unsafe { sys::cuArray3DGetDescriptor_v2(&raw mut found, self.levels[0]) };
        check("cuArray3DGetDescriptor", told)?;
        Ok(found == self.shape.descriptor())
    }

    /// What a texture of it is of.
    pub(in crate::programs::replay_probe) fn resource(&self) -> sys::CUDA_RESOURCE_DESC {
        if self.mipmapped.is_null() {
            return array_resource(self.levels[0]);
        }
        let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
        resource.resType = sys::CUresourcetype_enum::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        resource.res.mipmap.hMipmappedArray = self.mipmapped;
        resource
    }

    /// The handle in it.
    pub(in crate::programs::replay_probe) fn resource_handle(&self) -> usize {
        if self.mipmapped.is_null() { self.levels[0].addr() } else { self.mipmapped.addr() }
    }
}

pub(in crate::programs::replay_probe) fn array_resource(array: sys::CUarray) -> sys::CUDA_RESOURCE_DESC {
    let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
    resource.resType = sys::CUresourcetype_enum::CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    resource
}

/// Linear memory, as one row or with a pitch.
pub(in crate::programs::replay_probe) fn linear_resource(
    address: u64,
    size: usize,
    is_pitched: bool,
) -> sys::CUDA_RESOURCE_DESC {
    let mut resource: sys::CUDA_RESOURCE_DESC = zeroed();
    let format = sys::CUarray_format_enum::CU_AD_FORMAT_UNSIGNED_INT32;
    if is_pitched {
        resource.resType = sys::CUresourcetype_enum::CU_RESOURCE_TYPE_PITCH2D;
        let of = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
            devPtr: address,
            format,
            numChannels: 1,
            width: size / ELEMENT,
            height: 1,
            pitchInBytes: size,
        };
        resource.res.pitch2D = of;
    } else {
        resource.resType = sys::CUresourcetype_enum::CU_RESOURCE_TYPE_LINEAR;
        let of = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 {
            devPtr: address,
            format,
            numChannels: 1,
            sizeInBytes: size,
        };
        resource.res.linear = of;
    }
    resource
}

/// A texture or surface object.
#[derive(Clone, Copy)]
pub(in crate::programs::replay_probe) struct Object {
    pub(in crate::programs::replay_probe) value: u64,
    is_surface: bool,
}

pub(in crate::programs::replay_probe) fn texture(resource: &sys::CUDA_RESOURCE_DESC) -> Result<Object, GpuError> {
    let (mut value, how) = (0, zeroed::<sys::CUDA_TEXTURE_DESC>());
    let (resource, how) = (&raw const *resource, &raw const how);
    // SAFETY: the result is a variable of ours.
    let made = unsafe { sys::cuTexObjectCreate(&raw mut value, resource, how, ptr::null()) };
    check("cuTexObjectCreate", made)?;
    Ok(Object { value, is_surface: false })
}

pub(in crate::programs::replay_probe) fn surface(resource: &sys::CUDA_RESOURCE_DESC) -> Result<Object, GpuError> {
    let mut value = 0;
    // SAFETY: the result is a variable of ours.
    check("cuSurfObjectCreate", unsafe { sys::cuSurfObjectCreate(&raw mut value, &raw const *resource) })?;
    Ok(Object { value, is_surface: true })
}

impl Object {
    pub(in crate::programs::replay_probe) fn destroy(self) -> Result<(), GpuError> {
        if self.is_surface {
            // SAFETY: nobody else has it.
            check("cuSurfObjectDestroy", unsafe { sys::cuSurfObjectDestroy(self.value) })
        } else {
            // SAFETY: as above.
            check("cuTexObjectDestroy", unsafe { sys::cuTexObjectDestroy(self.value) })
        }
    }

    /// The array that it is said to be of.
    pub(in crate::programs::replay_probe) fn array(self) -> Result<usize, GpuError> {
        let mut found: sys::CUDA_RESOURCE_DESC = zeroed();
        // SAFETY: the result is a variable of ours.
        let told = unsafe { sys::cuTexObjectGetResourceDesc(&raw mut found, self.value) };
        check("cuTexObjectGetResourceDesc", told)?;
        // SAFETY: both kinds have a handle in that place.
        Ok(unsafe { found.res.array.hArray }.addr())
    }
}

pub(in crate::programs::replay_probe) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(ELEMENT).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()))
}
