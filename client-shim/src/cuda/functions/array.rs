//! Arrays, textures, surfaces, tensor maps.

macro_rules! array {
    ($then:ident) => {
        $then! {
            array: Array None;
            {
                fn cuArray3DCreate_v2(
                    handle: *mut CUarray, allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR,
                ) => kept::memory::arrays::solid;
                fn cuArray3DGetDescriptor_v2(
                    array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray,
                ) then kept::memory::arrays::told_solid(array_descriptor, array);
                fn cuArrayCreate_v2(
                    handle: *mut CUarray, allocate_array: *const CUDA_ARRAY_DESCRIPTOR,
                ) => kept::memory::arrays::flat;
                fn cuArrayDestroy(array: CUarray) => kept::memory::arrays::ends;
                fn cuArrayGetDescriptor_v2(
                    array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray,
                ) then kept::memory::arrays::told_flat(array_descriptor, array);
                fn cuArrayGetMemoryRequirements(
                    memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUarray, device: CUdevice,
                );
                fn cuArrayGetPlane(plane_array: *mut CUarray, array: CUarray, plane_idx: c_uint);
                fn cuArrayGetSparseProperties(sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray);
                fn cuMipmappedArrayCreate(
                    handle: *mut CUmipmappedArray, mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR,
                    num_mipmap_levels: c_uint,
                ) => kept::memory::arrays::mipmapped;
                fn cuMipmappedArrayDestroy(mipmapped_array: CUmipmappedArray) => kept::memory::arrays::mipmapped_ends;
                fn cuMipmappedArrayGetLevel(
                    level_array: *mut CUarray, mipmapped_array: CUmipmappedArray, level: c_uint,
                ) then kept::memory::arrays::level(written!(level_array), mipmapped_array, level);
                fn cuMipmappedArrayGetMemoryRequirements(
                    memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, mipmap: CUmipmappedArray,
                    device: CUdevice,
                );
                fn cuMipmappedArrayGetSparseProperties(
                    sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, mipmap: CUmipmappedArray,
                );
                fn cuSurfObjectCreate(
                    surf_object: *mut CUsurfObject, res_desc: *const CUDA_RESOURCE_DESC,
                ) => kept::objects::textures::surface;
                fn cuSurfObjectDestroy(surf_object: CUsurfObject) => kept::objects::textures::ends;
                fn cuSurfObjectGetResourceDesc(res_desc: *mut CUDA_RESOURCE_DESC, surf_object: CUsurfObject);
                fn cuSurfRefGetArray(array: *mut CUarray, surf_ref: CUsurfref);
                fn cuSurfRefSetArray(surf_ref: CUsurfref, array: CUarray, flags: c_uint);
                fn cuTensorMapEncodeIm2col(
                    tensor_map: *mut CUtensorMap, tensor_data_type: CUtensorMapDataType, tensor_rank: cuuint32_t,
                    global_address: *mut c_void, global_dim: *const cuuint64_t, global_strides: *const cuuint64_t,
                    pixel_box_lower_corner: *const c_int, pixel_box_upper_corner: *const c_int,
                    channels_per_pixel: cuuint32_t, pixels_per_column: cuuint32_t, element_strides: *const cuuint32_t,
                    interleave: CUtensorMapInterleave, swizzle: CUtensorMapSwizzle,
                    l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill,
                );
                fn cuTensorMapEncodeIm2colWide(
                    tensor_map: *mut CUtensorMap, tensor_data_type: CUtensorMapDataType, tensor_rank: cuuint32_t,
                    global_address: *mut c_void, global_dim: *const cuuint64_t, global_strides: *const cuuint64_t,
                    pixel_box_lower_corner_width: c_int, pixel_box_upper_corner_width: c_int,
                    channels_per_pixel: cuuint32_t, pixels_per_column: cuuint32_t, element_strides: *const cuuint32_t,
                    interleave: CUtensorMapInterleave, mode: CUtensorMapIm2ColWideMode, swizzle: CUtensorMapSwizzle,
                    l2_promotion: CUtensorMapL2promotion, oob_fill: CUtensorMapFloatOOBfill,
                );
                fn cuTensorMapEncodeTiled(
                    tensor_map: *mut CUtensorMap, tensor_data_type: CUtensorMapDataType, tensor_rank: cuuint32_t,
                    global_address: *mut c_void, global_dim: *const cuuint64_t, global_strides: *const cuuint64_t,
                    box_dim: *const cuuint32_t, element_strides: *const cuuint32_t, interleave: CUtensorMapInterleave,
                    swizzle: CUtensorMapSwizzle, l2_promotion: CUtensorMapL2promotion,
                    oob_fill: CUtensorMapFloatOOBfill,
                );
                fn cuTensorMapReplaceAddress(tensor_map: *mut CUtensorMap, global_address: *mut c_void);
                fn cuTexObjectCreate(
                    tex_object: *mut CUtexObject, res_desc: *const CUDA_RESOURCE_DESC,
                    tex_desc: *const CUDA_TEXTURE_DESC, res_view_desc: *const CUDA_RESOURCE_VIEW_DESC,
                ) => kept::objects::textures::texture;
                fn cuTexObjectDestroy(tex_object: CUtexObject) => kept::objects::textures::ends;
                fn cuTexObjectGetResourceDesc(res_desc: *mut CUDA_RESOURCE_DESC, tex_object: CUtexObject);
                fn cuTexObjectGetResourceViewDesc(res_view_desc: *mut CUDA_RESOURCE_VIEW_DESC, tex_object: CUtexObject);
                fn cuTexObjectGetTextureDesc(tex_desc: *mut CUDA_TEXTURE_DESC, tex_object: CUtexObject);
                fn cuTexRefCreate(tex_ref: *mut CUtexref) made Array(tex_ref);
                fn cuTexRefDestroy(tex_ref: CUtexref) gone(tex_ref);
                fn cuTexRefGetAddressMode(pam: *mut CUaddress_mode, tex_ref: CUtexref, dim: c_int);
                fn cuTexRefGetAddress_v2(pdptr: *mut CUdeviceptr, tex_ref: CUtexref);
                fn cuTexRefGetArray(array: *mut CUarray, tex_ref: CUtexref);
                fn cuTexRefGetBorderColor(border_color: *mut f32, tex_ref: CUtexref);
                fn cuTexRefGetFilterMode(pfm: *mut CUfilter_mode, tex_ref: CUtexref);
                fn cuTexRefGetFlags(flags: *mut c_uint, tex_ref: CUtexref);
                fn cuTexRefGetFormat(format: *mut CUarray_format, num_channels: *mut c_int, tex_ref: CUtexref);
                fn cuTexRefGetMaxAnisotropy(pmax_aniso: *mut c_int, tex_ref: CUtexref);
                fn cuTexRefGetMipmapFilterMode(pfm: *mut CUfilter_mode, tex_ref: CUtexref);
                fn cuTexRefGetMipmapLevelBias(pbias: *mut f32, tex_ref: CUtexref);
                fn cuTexRefGetMipmapLevelClamp(
                    pmin_mipmap_level_clamp: *mut f32, pmax_mipmap_level_clamp: *mut f32, tex_ref: CUtexref,
                );
                fn cuTexRefGetMipmappedArray(mipmapped_array: *mut CUmipmappedArray, tex_ref: CUtexref);
                fn cuTexRefSetAddress2D_v3(
                    tex_ref: CUtexref, desc: *const CUDA_ARRAY_DESCRIPTOR, dptr: CUdeviceptr, pitch: usize,
                );
                fn cuTexRefSetAddressMode(tex_ref: CUtexref, dim: c_int, am: CUaddress_mode);
                fn cuTexRefSetAddress_v2(byte_offset: *mut usize, tex_ref: CUtexref, dptr: CUdeviceptr, bytes: usize);
                fn cuTexRefSetArray(tex_ref: CUtexref, array: CUarray, flags: c_uint);
                fn cuTexRefSetBorderColor(tex_ref: CUtexref, border_color: *mut f32);
                fn cuTexRefSetFilterMode(tex_ref: CUtexref, fm: CUfilter_mode);
                fn cuTexRefSetFlags(tex_ref: CUtexref, flags: c_uint);
                fn cuTexRefSetFormat(tex_ref: CUtexref, fmt: CUarray_format, num_packed_components: c_int);
                fn cuTexRefSetMaxAnisotropy(tex_ref: CUtexref, max_aniso: c_uint);
                fn cuTexRefSetMipmapFilterMode(tex_ref: CUtexref, fm: CUfilter_mode);
                fn cuTexRefSetMipmapLevelBias(tex_ref: CUtexref, bias: f32);
                fn cuTexRefSetMipmapLevelClamp(
                    tex_ref: CUtexref, min_mipmap_level_clamp: f32, max_mipmap_level_clamp: f32,
                );
                fn cuTexRefSetMipmappedArray(tex_ref: CUtexref, mipmapped_array: CUmipmappedArray, flags: c_uint);
            }
            elsewhere {
                fn cuTensorMapSetAllocationClass(map: *mut CUtensorMap, class: c_uint, actual: *mut c_uint);
            }
        }
    };
}

array!(describe);
