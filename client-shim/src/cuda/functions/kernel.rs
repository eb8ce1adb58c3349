//! Functions, kernels, launches.

macro_rules! kernel {
    ($then:ident) => {
        $then! {
            kernel: Kernel None;
            {
                fn cuFuncGetAttribute(pi: *mut c_int, attrib: CUfunction_attribute, hfunc: CUfunction);
                fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction);
                fn cuFuncGetName(name: *mut *const c_char, hfunc: CUfunction) then lasting!(name);
                fn cuFuncGetParamInfo(
                    func: CUfunction, param_index: usize, param_offset: *mut usize, param_size: *mut usize,
                );
                fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function_: CUfunction);
                fn cuFuncLoad(function_: CUfunction);
                fn cuFuncSetAttribute(
                    hfunc: CUfunction, attrib: CUfunction_attribute, value: c_int,
                ) then kept::code::modules::attribute(hfunc, attrib, value);
                fn cuFuncSetBlockShape(hfunc: CUfunction, x: c_int, y: c_int, z: c_int);
                fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache)
                    then kept::code::modules::cache(hfunc, config);
                fn cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig);
                fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: c_uint);
                fn cuKernelGetAttribute(pi: *mut c_int, attrib: CUfunction_attribute, kernel: CUkernel, dev: CUdevice);
                fn cuKernelGetFunction(
                    func: *mut CUfunction, kernel: CUkernel,
                ) then kept::code::libraries::kernel_function(written!(func), kernel);
                fn cuKernelGetLibrary(lib: *mut CUlibrary, kernel: CUkernel);
                fn cuKernelGetName(name: *mut *const c_char, hfunc: CUkernel) then lasting!(name);
                fn cuKernelGetParamInfo(
                    kernel: CUkernel, param_index: usize, param_offset: *mut usize, param_size: *mut usize,
                );
                fn cuKernelSetAttribute(
                    attrib: CUfunction_attribute, val: c_int, kernel: CUkernel, dev: CUdevice,
                ) then kept::code::libraries::kernel_attribute(attrib, val, kernel, dev);
                fn cuKernelSetCacheConfig(
                    kernel: CUkernel, config: CUfunc_cache, dev: CUdevice,
                ) then kept::code::libraries::kernel_cache(kernel, config, dev);
                fn cuLaunch(f: CUfunction): Launches;
                fn cuLaunchCooperativeKernel(
                    f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
                    block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream,
                    kernel_params: *mut *mut c_void,
                ) / _ptsz: Launches;
                fn cuLaunchCooperativeKernelMultiDevice(
                    launch_params_list: *mut CUDA_LAUNCH_PARAMS, num_devices: c_uint, flags: c_uint,
                ): SubmitsElsewhere;
                fn cuLaunchGrid(f: CUfunction, grid_width: c_int, grid_height: c_int): Launches;
                fn cuLaunchGridAsync(f: CUfunction, grid_width: c_int, grid_height: c_int, stream: CUstream): Launches;
                fn cuLaunchHostFunc(stream: CUstream, fn_: CUhostFn, user_data: *mut c_void) / _ptsz: Launches
                    then kept::streams::gave_function(stream);
                fn cuLaunchKernel(
                    f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
                    block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, stream: CUstream,
                    kernel_params: *mut *mut c_void, extra: *mut *mut c_void,
                ) / _ptsz: Launches;
                fn cuLaunchKernelEx(
                    config: *const CUlaunchConfig, f: CUfunction, kernel_params: *mut *mut c_void,
                    extra: *mut *mut c_void,
                ) / _ptsz: Launches;
                fn cuOccupancyAvailableDynamicSMemPerBlock(
                    dynamic_smem_size: *mut usize, func: CUfunction, num_blocks: c_int, block_size: c_int,
                );
                fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    num_blocks: *mut c_int, func: CUfunction, block_size: c_int, dynamic_s_mem_size: usize,
                );
                fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                    num_blocks: *mut c_int, func: CUfunction, block_size: c_int, dynamic_s_mem_size: usize,
                    flags: c_uint,
                );
                fn cuOccupancyMaxActiveClusters(
                    num_clusters: *mut c_int, func: CUfunction, config: *const CUlaunchConfig,
                );
                fn cuOccupancyMaxPotentialBlockSize(
                    min_grid_size: *mut c_int, block_size: *mut c_int, func: CUfunction,
                    block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize, dynamic_s_mem_size: usize,
                    block_size_limit: c_int,
                );
                fn cuOccupancyMaxPotentialBlockSizeWithFlags(
                    min_grid_size: *mut c_int, block_size: *mut c_int, func: CUfunction,
                    block_size_to_dynamic_s_mem_size: CUoccupancyB2DSize, dynamic_s_mem_size: usize,
                    block_size_limit: c_int, flags: c_uint,
                );
                fn cuOccupancyMaxPotentialClusterSize(
                    cluster_size: *mut c_int, func: CUfunction, config: *const CUlaunchConfig,
                );
                fn cuParamSetSize(hfunc: CUfunction, numbytes: c_uint);
                fn cuParamSetTexRef(hfunc: CUfunction, texunit: c_int, tex_ref: CUtexref);
                fn cuParamSetf(hfunc: CUfunction, offset: c_int, value: f32);
                fn cuParamSeti(hfunc: CUfunction, offset: c_int, value: c_uint);
                fn cuParamSetv(hfunc: CUfunction, offset: c_int, ptr: *mut c_void, numbytes: c_uint);
            }
            elsewhere {
                fn cuFuncGetParamCount(func: CUfunction, param_count: *mut usize);
                fn cuKernelGetParamCount(kernel: CUkernel, param_count: *mut usize);
                fn cuLaunchHostFunc_v2(
                    stream: CUstream, fn_: CUhostFn, user_data: *mut c_void, sync_mode: c_uint,
                ) / _ptsz: Launches then kept::streams::gave_function(stream);
            }
        }
    };
}

kernel!(describe);
