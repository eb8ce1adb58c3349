//! Memory and semaphores of others: graphics, other drivers, multicast, endpoints.

macro_rules! external {
    ($then:ident) => {
        $then! {
            external: External None;
            {
                fn cuDestroyExternalMemory(ext_mem: CUexternalMemory) gone(ext_mem);
                fn cuDestroyExternalSemaphore(ext_sem: CUexternalSemaphore) gone(ext_sem);
                fn cuExternalMemoryGetMappedBuffer(
                    dev_ptr: *mut CUdeviceptr, ext_mem: CUexternalMemory,
                    buffer_desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
                );
                fn cuExternalMemoryGetMappedMipmappedArray(
                    mipmap: *mut CUmipmappedArray, ext_mem: CUexternalMemory,
                    mipmap_desc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
                );
                fn cuGraphicsMapResources(count: c_uint, resources: *mut CUgraphicsResource, stream: CUstream) / _ptsz
                    then kept::account::all_counted(
                        name!(), kept::account::Reason::External, each!(resources, count).map(Key::key),
                    );
                fn cuGraphicsResourceGetMappedMipmappedArray(
                    mipmapped_array: *mut CUmipmappedArray, resource: CUgraphicsResource,
                );
                fn cuGraphicsResourceGetMappedPointer_v2(
                    dev_ptr: *mut CUdeviceptr, size: *mut usize, resource: CUgraphicsResource,
                );
                fn cuGraphicsResourceSetMapFlags_v2(resource: CUgraphicsResource, flags: c_uint);
                fn cuGraphicsSubResourceGetMappedArray(
                    array: *mut CUarray, resource: CUgraphicsResource, array_index: c_uint, mip_level: c_uint,
                );
                fn cuGraphicsUnmapResources(
                    count: c_uint, resources: *mut CUgraphicsResource, stream: CUstream,
                ) / _ptsz;
                fn cuGraphicsUnregisterResource(resource: CUgraphicsResource) gone(resource);
                fn cuImportExternalMemory(
                    ext_mem_out: *mut CUexternalMemory, mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
                ) made External(ext_mem_out);
                fn cuImportExternalSemaphore(
                    ext_sem_out: *mut CUexternalSemaphore, sem_handle_desc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
                ) made External(ext_sem_out);
                fn cuMulticastAddDevice(mc_handle: CUmemGenericAllocationHandle, dev: CUdevice)
                    then kept::memory::mapping::used_as_multicast(mc_handle);
                fn cuMulticastBindAddr(
                    mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, memptr: CUdeviceptr, size: usize,
                    flags: c_ulonglong,
                ) then kept::memory::mapping::used_as_multicast(mc_handle);
                fn cuMulticastBindMem(
                    mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, mem_handle: CUmemGenericAllocationHandle,
                    mem_offset: usize, size: usize, flags: c_ulonglong,
                ) then kept::memory::mapping::used_as_multicast(mc_handle);
                fn cuMulticastCreate(
                    mc_handle: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp,
                ) then kept::memory::mapping::multicast(name!(), kept::account::Reason::Multicast, written!(mc_handle));
                fn cuMulticastGetGranularity(
                    granularity: *mut usize, prop: *const CUmulticastObjectProp, option: CUmulticastGranularity_flags,
                );
                fn cuMulticastUnbind(
                    mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, size: usize,
                ) then kept::memory::mapping::used_as_multicast(mc_handle);
                fn cuSignalExternalSemaphoresAsync(
                    ext_sem_array: *const CUexternalSemaphore,
                    params_array: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, num_ext_sems: c_uint, stream: CUstream,
                ) / _ptsz: Launches;
                fn cuWaitExternalSemaphoresAsync(
                    ext_sem_array: *const CUexternalSemaphore, params_array: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
                    num_ext_sems: c_uint, stream: CUstream,
                ) / _ptsz: Launches;
            }
            elsewhere {
                fn cuGraphicsEGLRegisterImage(
                    cuda_resource: *mut CUgraphicsResource, image: *mut c_void, flags: c_uint,
                ) made External(cuda_resource);
                fn cuGraphicsGLRegisterBuffer(cuda_resource: *mut CUgraphicsResource, buffer: c_uint, flags: c_uint)
                    made External(cuda_resource);
                fn cuGraphicsGLRegisterImage(
                    cuda_resource: *mut CUgraphicsResource, image: c_uint, target: c_uint, flags: c_uint,
                ) made External(cuda_resource);
                fn cuGraphicsVDPAURegisterOutputSurface(
                    cuda_resource: *mut CUgraphicsResource, vdp_surface: c_uint, flags: c_uint,
                ) made External(cuda_resource);
                fn cuGraphicsVDPAURegisterVideoSurface(
                    cuda_resource: *mut CUgraphicsResource, vdp_surface: c_uint, flags: c_uint,
                ) made External(cuda_resource);
                fn cuLogicalEndpointAddDevice(le_id: CUlogicalEndpointId, dev: CUdevice);
                fn cuLogicalEndpointBindAddr(
                    le_id: CUlogicalEndpointId, dev: CUdevice, offset: cuuint64_t, ptr: *mut c_void, size: cuuint64_t,
                    flags: c_ulonglong,
                );
                fn cuLogicalEndpointBindMem(
                    le_id: CUlogicalEndpointId, dev: CUdevice, offset: cuuint64_t,
                    mem_handle: CUmemGenericAllocationHandle, mem_offset: cuuint64_t, size: cuuint64_t,
                    flags: c_ulonglong,
                );
                fn cuLogicalEndpointCreate(le_id: CUlogicalEndpointId, prop: *const CUlogicalEndpointProp)
                    then kept::account::counted(name!(), kept::account::Reason::Multicast, kept::account::number(le_id));
                fn cuLogicalEndpointDestroy(le_id: CUlogicalEndpointId)
                    then kept::account::gone(kept::account::number(le_id));
                fn cuLogicalEndpointExport(
                    handle: *mut c_void, le_id: CUlogicalEndpointId, handle_type: CUlogicalEndpointIpcHandleType,
                );
                fn cuLogicalEndpointGetLimits(
                    bind_alignment: *mut cuuint64_t, max_size: *mut cuuint64_t, prop: *const CUlogicalEndpointProp,
                );
                fn cuLogicalEndpointIdRelease(base_le_id: CUlogicalEndpointId, count: cuuint32_t);
                fn cuLogicalEndpointIdReserve(base_le_id: *mut CUlogicalEndpointId, count: cuuint32_t);
                fn cuLogicalEndpointImport(
                    le_id: CUlogicalEndpointId, handle: *const c_void, handle_type: CUlogicalEndpointIpcHandleType,
                ) then kept::account::counted(name!(), kept::account::Reason::Multicast, kept::account::number(le_id));
                fn cuLogicalEndpointQuery(le_id: CUlogicalEndpointId, count: cuuint32_t, query_status: *mut c_int);
                fn cuLogicalEndpointUnbind(
                    le_id: CUlogicalEndpointId, dev: CUdevice, offset: cuuint64_t, size: cuuint64_t,
                );
                fn cuMulticastBindAddr_v2(
                    mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, memptr: CUdeviceptr,
                    size: usize, flags: c_ulonglong,
                ) then kept::memory::mapping::used_as_multicast(mc_handle);
                fn cuMulticastBindMem_v2(
                    mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize,
                    mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: c_ulonglong,
                ) then kept::memory::mapping::used_as_multicast(mc_handle);
            }
        }
    };
}

external!(describe);
