//! Streams, their capture, waits and writes in their order.

macro_rules! stream {
    ($then:ident) => {
        $then! {
            stream: Stream None;
            {
                fn cuStreamAddCallback(
                    stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint,
                ) / _ptsz: Launches => kept::streams::callbacks::add;
                fn cuStreamAttachMemAsync(
                    stream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuStreamBatchMemOp_v2(
                    stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint,
                ) / _ptsz: SubmitsMany;
                fn cuStreamBeginCaptureToGraph(
                    stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
                    dependency_data: *const CUgraphEdgeData, num_dependencies: usize, mode: CUstreamCaptureMode,
                ) / _ptsz then kept::streams::begun(stream);
                fn cuStreamBeginCapture_v2(
                    stream: CUstream, mode: CUstreamCaptureMode,
                ) / _ptsz then kept::streams::begun(stream);
                fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) / _ptsz
                    then kept::streams::copied_attributes(&FUNCTION, dst, src);
                fn cuStreamCreate(stream: *mut CUstream, flags: c_uint)
                    then kept::streams::stream(written!(stream), flags, None);
                fn cuStreamCreateWithPriority(
                    stream: *mut CUstream, flags: c_uint, priority: c_int,
                ) then kept::streams::stream(written!(stream), flags, Some(priority));
                fn cuStreamDestroy_v2(stream: CUstream): EndsStream => kept::streams::end_stream;
                fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) / _ptsz
                    => kept::streams::end_capture;
                fn cuStreamGetAttribute(
                    stream: CUstream, attr: CUstreamAttrID, value_out: *mut CUstreamAttrValue,
                ) / _ptsz;
                fn cuStreamGetCaptureInfo_v3(
                    stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
                    graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode,
                    edge_data_out: *mut *const CUgraphEdgeData, num_dependencies_out: *mut usize,
                ) / _ptsz then kept::streams::last_of(
                    stream, capture_status_out, dependencies_out, num_dependencies_out,
                );
                fn cuStreamGetCtx(stream: CUstream, pctx: *mut CUcontext) / _ptsz;
                fn cuStreamGetCtx_v2(stream: CUstream, ctx: *mut CUcontext, green_ctx: *mut CUgreenCtx) / _ptsz;
                fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) / _ptsz;
                fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) / _ptsz;
                fn cuStreamGetId(stream: CUstream, stream_id: *mut c_ulonglong) / _ptsz
                    then kept::streams::ids::id(&FUNCTION, stream, stream_id);
                fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) / _ptsz;
                fn cuStreamIsCapturing(stream: CUstream, capture_status: *mut CUstreamCaptureStatus) / _ptsz;
                fn cuStreamQuery(stream: CUstream) / _ptsz: FinishesStream;
                fn cuStreamSetAttribute(
                    stream: CUstream, attr: CUstreamAttrID, value: *const CUstreamAttrValue,
                ) / _ptsz then kept::streams::stream_attribute(&FUNCTION, stream, attr, value);
                fn cuStreamSynchronize(stream: CUstream) / _ptsz: FinishesStream;
                fn cuStreamUpdateCaptureDependencies_v2(
                    stream: CUstream, dependencies: *mut CUgraphNode, dependency_data: *const CUgraphEdgeData,
                    num_dependencies: usize, flags: c_uint,
                ) / _ptsz => kept::graphs::depend;
                fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) / _ptsz: WaitsForEvent;
                fn cuStreamWaitValue32_v2(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuStreamWaitValue64_v2(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuStreamWriteValue32_v2(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuStreamWriteValue64_v2(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode)
                    => kept::streams::exchange_mode;
            }
            elsewhere {
                fn cuStreamBatchMemOp(
                    stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint,
                ) / _ptsz: SubmitsMany;
                fn cuStreamBeginCaptureToCig(
                    stream: CUstream, stream_cig_capture_params: *mut CUstreamCigCaptureParams,
                ) / _ptsz;
                fn cuStreamBeginRecaptureToGraph(
                    stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph,
                    callback_func: CUgraphRecaptureCallback, user_data: *mut c_void,
                ) / _ptsz then {
                    kept::streams::begun(stream)?;
                    kept::graphs::refuse(name!(), kept::account::Reason::Graph, graph)
                };
                fn cuStreamDestroy(stream: CUstream): EndsStream => kept::streams::end_stream;
                fn cuStreamEndCaptureToCig(stream: CUstream) / _ptsz;
                fn cuStreamGetCaptureInfo(
                    stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
                ) / _ptsz;
                fn cuStreamGetCaptureInfo_v2(
                    stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
                    graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode,
                    num_dependencies_out: *mut usize,
                ) / _ptsz then kept::streams::last_of(
                    stream, capture_status_out, dependencies_out, num_dependencies_out,
                );
                fn cuStreamGetDevResource(
                    stream: CUstream, resource: *mut CUdevResource, type_: CUdevResourceType,
                ) / _ptsz;
                fn cuStreamUpdateCaptureDependencies(
                    stream: CUstream, dependencies: *mut CUgraphNode, num_dependencies: usize, flags: c_uint,
                ) / _ptsz => kept::graphs::depend_plainly;
                fn cuStreamWaitValue32(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuStreamWaitValue64(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuStreamWriteValue32(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint,
                ) / _ptsz: Submits;
                fn cuStreamWriteValue64(
                    stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint,
                ) / _ptsz: Submits;
            }
        }
    };
}

stream!(describe);
