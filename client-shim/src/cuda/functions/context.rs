//! Contexts, primary and other, green contexts, and what they are set to.

macro_rules! context {
    ($then:ident) => {
        $then! {
            context: Context None;
            {
                fn cuCtxAttach(pctx: *mut CUcontext, flags: c_uint);
                fn cuCtxCreate_v4(
                    pctx: *mut CUcontext, ctx_create_params: *mut CUctxCreateParams, flags: c_uint, dev: CUdevice,
                ) then kept::contexts::created("cuCtxCreate_v4", written!(pctx));
                fn cuCtxDestroy_v2(ctx: CUcontext) then kept::contexts::destroy(ctx);
                fn cuCtxDetach(ctx: CUcontext) then kept::contexts::detached(ctx);
                fn cuCtxDisablePeerAccess(peer_context: CUcontext)
                    then kept::contexts::disable_peer(peer_context);
                fn cuCtxEnablePeerAccess(peer_context: CUcontext, flags: c_uint)
                    then kept::contexts::enable_peer(peer_context);
                fn cuCtxFromGreenCtx(context: *mut CUcontext, ctx: CUgreenCtx)
                    then kept::contexts::from_green(written!(context), ctx);
                fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint);
                fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache);
                fn cuCtxGetCurrent(pctx: *mut CUcontext);
                fn cuCtxGetDevResource(ctx: CUcontext, resource: *mut CUdevResource, type_: CUdevResourceType);
                fn cuCtxGetDevice(device: *mut CUdevice);
                fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext);
                fn cuCtxGetExecAffinity(exec_affinity: *mut CUexecAffinityParam, type_: CUexecAffinityType);
                fn cuCtxGetFlags(flags: *mut c_uint);
                fn cuCtxGetId(ctx: CUcontext, ctx_id: *mut c_ulonglong) then kept::objects::ids::context_id(ctx, ctx_id);
                fn cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) then kept::code::stacks::told(pvalue, limit);
                fn cuCtxGetSharedMemConfig(config: *mut CUsharedconfig);
                fn cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int);
                fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) then cuda::threads::pop();
                fn cuCtxPushCurrent_v2(ctx: CUcontext) then cuda::threads::push(ctx.0);
                fn cuCtxRecordEvent(ctx: CUcontext, event: CUevent): RecordsContext;
                fn cuCtxResetPersistingL2Cache();
                fn cuCtxSetCacheConfig(config: CUfunc_cache) then kept::streams::context_cache(config);
                fn cuCtxSetCurrent(ctx: CUcontext) then cuda::threads::set(ctx.0);
                fn cuCtxSetFlags(flags: c_uint) then kept::objects::current::set_current_flags(flags);
                fn cuCtxSetLimit(limit: CUlimit, value: usize) then kept::streams::limit(limit, value);
                fn cuCtxSetSharedMemConfig(config: CUsharedconfig);
                fn cuCtxSynchronize(): FinishesContext;
                fn cuCtxSynchronize_v2(ctx: CUcontext): FinishesContext;
                fn cuCtxWaitEvent(ctx: CUcontext, event: CUevent): WaitsForEvent;
                fn cuDevResourceGenerateDesc(
                    desc: *mut CUdevResourceDesc, resources: *mut CUdevResource, nb_resources: c_uint,
                );
                fn cuDevSmResourceSplitByCount(
                    result: *mut CUdevResource, nb_groups: *mut c_uint, input: *const CUdevResource,
                    remaining: *mut CUdevResource, use_flags: c_uint, min_count: c_uint,
                );
                fn cuDeviceGetDevResource(device: CUdevice, resource: *mut CUdevResource, type_: CUdevResourceType);
                fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int);
                fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) => kept::contexts::release;
                fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) => kept::contexts::reset;
                fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) => kept::objects::current::retain;
                fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint)
                    then kept::objects::current::set_flags(dev, flags);
                fn cuGreenCtxCreate(
                    ctx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: c_uint,
                ) made GreenContext(ctx);
                fn cuGreenCtxDestroy(ctx: CUgreenCtx) then kept::contexts::destroyed_green(ctx);
                fn cuGreenCtxGetDevResource(ctx: CUgreenCtx, resource: *mut CUdevResource, type_: CUdevResourceType);
                fn cuGreenCtxGetId(green_ctx: CUgreenCtx, green_ctx_id: *mut c_ulonglong);
                fn cuGreenCtxRecordEvent(ctx: CUgreenCtx, event: CUevent): RecordsEventElsewhere;
                fn cuGreenCtxStreamCreate(
                    stream: *mut CUstream, green_ctx: CUgreenCtx, flags: c_uint, priority: c_int,
                ) then kept::account::parts_counted(
                    name!(), kept::account::Reason::GreenContext, one!(stream).map(Key::key), green_ctx.key(),
                );
                fn cuGreenCtxWaitEvent(ctx: CUgreenCtx, event: CUevent): WaitsForEvent;
                fn cuStreamGetGreenCtx(stream: CUstream, ctx: *mut CUgreenCtx);
            }
            elsewhere {
                fn cuCtxCreate(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) then kept::contexts::created("cuCtxCreate", written!(pctx));
                fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice) then kept::contexts::created("cuCtxCreate_v2", written!(pctx));
                fn cuCtxCreate_v3(
                    pctx: *mut CUcontext, params_array: *mut CUexecAffinityParam, num_params: c_int, flags: c_uint,
                    dev: CUdevice,
                ) then kept::contexts::created("cuCtxCreate_v3", written!(pctx));
                fn cuCtxDestroy(ctx: CUcontext) then kept::contexts::destroy(ctx);
                fn cuCtxPopCurrent(pctx: *mut CUcontext) then cuda::threads::pop();
                fn cuCtxPushCurrent(ctx: CUcontext) then cuda::threads::push(ctx.0);
                fn cuDevSmResourceSplit(
                    result: *mut CUdevResource, nb_groups: c_uint, input: *const CUdevResource,
                    remainder: *mut CUdevResource, flags: c_uint, group_params: *mut CU_DEV_SM_RESOURCE_GROUP_PARAMS,
                );
                fn cuDevicePrimaryCtxRelease(dev: CUdevice) => kept::contexts::release;
                fn cuDevicePrimaryCtxReset(dev: CUdevice) => kept::contexts::reset;
                fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: c_uint)
                    then kept::objects::current::set_flags(dev, flags);
            }
        }
    };
}

context!(describe);
