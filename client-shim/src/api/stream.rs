//! Streams, their capture, waits and writes in their order.
#![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

use crate::keep::{contexts, graphs, record};

hooks! {
    Stream;
    {
        fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint);
        fn cuStreamAttachMemAsync(stream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint);
        fn cuStreamBatchMemOp_v2(
            stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint,
        );
        fn cuStreamBeginCaptureToGraph(
            stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData, num_dependencies: usize, mode: CUstreamCaptureMode,
        ) => contexts::begin_capture_to_graph;
        fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) => contexts::begin_capture;
        fn cuStreamCopyAttributes(dst: CUstream, src: CUstream);
        fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) => record::stream;
        fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) => record::stream_with_priority;
        fn cuStreamDestroy_v2(stream: CUstream) => record::stream_ends;
        fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) => contexts::end_capture;
        fn cuStreamGetAttribute(stream: CUstream, attr: CUstreamAttrID, value_out: *mut CUstreamAttrValue);
        fn cuStreamGetCaptureInfo_v3(
            stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
            graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode,
            edge_data_out: *mut *const CUgraphEdgeData, num_dependencies_out: *mut usize,
        );
        fn cuStreamGetCtx(stream: CUstream, pctx: *mut CUcontext);
        fn cuStreamGetCtx_v2(stream: CUstream, ctx: *mut CUcontext, green_ctx: *mut CUgreenCtx);
        fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice);
        fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
        fn cuStreamGetId(stream: CUstream, stream_id: *mut c_ulonglong);
        fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
        fn cuStreamIsCapturing(stream: CUstream, capture_status: *mut CUstreamCaptureStatus);
        fn cuStreamQuery(stream: CUstream);
        fn cuStreamSetAttribute(stream: CUstream, attr: CUstreamAttrID, value: *const CUstreamAttrValue) => record::stream_attribute;
        fn cuStreamSynchronize(stream: CUstream);
        fn cuStreamUpdateCaptureDependencies_v2(
            stream: CUstream, dependencies: *mut CUgraphNode, dependency_data: *const CUgraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        ) => graphs::depend;
        fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        fn cuStreamWaitValue32_v2(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWaitValue64_v2(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
        fn cuStreamWriteValue32_v2(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
        fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
    }
    elsewhere {
        fn cuStreamAddCallback_ptsz(
            stream: CUstream, callback: CUstreamCallback, user_data: *mut c_void, flags: c_uint,
        );
        fn cuStreamAttachMemAsync_ptsz(stream: CUstream, dptr: CUdeviceptr, length: usize, flags: c_uint);
        fn cuStreamBatchMemOp(
            stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint,
        );
        fn cuStreamBatchMemOp_ptsz(
            stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint,
        );
        fn cuStreamBatchMemOp_v2_ptsz(
            stream: CUstream, count: c_uint, param_array: *mut CUstreamBatchMemOpParams, flags: c_uint,
        );
        fn cuStreamBeginCaptureToCig(stream: CUstream, stream_cig_capture_params: *mut CUstreamCigCaptureParams);
        fn cuStreamBeginCaptureToCig_ptsz(stream: CUstream, stream_cig_capture_params: *mut CUstreamCigCaptureParams);
        fn cuStreamBeginCaptureToGraph_ptsz(
            stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData, num_dependencies: usize, mode: CUstreamCaptureMode,
        ) => contexts::begin_capture_to_graph;
        fn cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: CUstreamCaptureMode) => contexts::begin_capture;
        fn cuStreamBeginRecaptureToGraph(
            stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph, callback_func: CUgraphRecaptureCallback,
            user_data: *mut c_void,
        ) => graphs::recapture;
        fn cuStreamBeginRecaptureToGraph_ptsz(
            stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph, callback_func: CUgraphRecaptureCallback,
            user_data: *mut c_void,
        ) => graphs::recapture;
        fn cuStreamCopyAttributes_ptsz(dst: CUstream, src: CUstream);
        fn cuStreamDestroy(stream: CUstream) => record::stream_ends;
        fn cuStreamEndCaptureToCig(stream: CUstream);
        fn cuStreamEndCaptureToCig_ptsz(stream: CUstream);
        fn cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph) => contexts::end_capture;
        fn cuStreamGetAttribute_ptsz(stream: CUstream, attr: CUstreamAttrID, value_out: *mut CUstreamAttrValue);
        fn cuStreamGetCaptureInfo(
            stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
        );
        fn cuStreamGetCaptureInfo_ptsz(
            stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
        );
        fn cuStreamGetCaptureInfo_v2(
            stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
            graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, num_dependencies_out: *mut usize,
        );
        fn cuStreamGetCaptureInfo_v2_ptsz(
            stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
            graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, num_dependencies_out: *mut usize,
        );
        fn cuStreamGetCaptureInfo_v3_ptsz(
            stream: CUstream, capture_status_out: *mut CUstreamCaptureStatus, id_out: *mut cuuint64_t,
            graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode,
            edge_data_out: *mut *const CUgraphEdgeData, num_dependencies_out: *mut usize,
        );
        fn cuStreamGetCtx_ptsz(stream: CUstream, pctx: *mut CUcontext);
        fn cuStreamGetCtx_v2_ptsz(stream: CUstream, ctx: *mut CUcontext, green_ctx: *mut CUgreenCtx);
        fn cuStreamGetDevResource(stream: CUstream, resource: *mut CUdevResource, type_: CUdevResourceType);
        fn cuStreamGetDevResource_ptsz(stream: CUstream, resource: *mut CUdevResource, type_: CUdevResourceType);
        fn cuStreamGetDevice_ptsz(stream: CUstream, device: *mut CUdevice);
        fn cuStreamGetFlags_ptsz(stream: CUstream, flags: *mut c_uint);
        fn cuStreamGetId_ptsz(stream: CUstream, stream_id: *mut c_ulonglong);
        fn cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut c_int);
        fn cuStreamIsCapturing_ptsz(stream: CUstream, capture_status: *mut CUstreamCaptureStatus);
        fn cuStreamQuery_ptsz(stream: CUstream);
        fn cuStreamSetAttribute_ptsz(stream: CUstream, attr: CUstreamAttrID, value: *const CUstreamAttrValue) => record::stream_attribute;
        fn cuStreamSynchronize_ptsz(stream: CUstream);
        fn cuStreamUpdateCaptureDependencies(
            stream: CUstream, dependencies: *mut CUgraphNode, num_dependencies: usize, flags: c_uint,
        ) => graphs::depend_plainly;
        fn cuStreamUpdateCaptureDependencies_ptsz(
            stream: CUstream, dependencies: *mut CUgraphNode, num_dependencies: usize, flags: c_uint,
        ) => graphs::depend_plainly;
        fn cuStreamUpdateCaptureDependencies_v2_ptsz(
            stream: CUstream, dependencies: *mut CUgraphNode, dependency_data: *const CUgraphEdgeData,
            num_dependencies: usize, flags: c_uint,
        ) => graphs::depend;
        fn cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint);
        fn cuStreamWaitValue32(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWaitValue32_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWaitValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWaitValue64(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
        fn cuStreamWaitValue64_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
        fn cuStreamWaitValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
        fn cuStreamWriteValue32(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWriteValue32_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWriteValue32_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint32_t, flags: c_uint);
        fn cuStreamWriteValue64(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
        fn cuStreamWriteValue64_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
        fn cuStreamWriteValue64_v2_ptsz(stream: CUstream, addr: CUdeviceptr, value: cuuint64_t, flags: c_uint);
    }
}
