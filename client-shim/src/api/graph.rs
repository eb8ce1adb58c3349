//! Graphs, their nodes and executable forms.
#![expect(unsafe_code, reason = "C functions that are exported and that call the driver")]

hooks! {
    Graph;
    {
        fn cuDeviceGetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void);
        fn cuDeviceGraphMemTrim(device: CUdevice);
        fn cuDeviceSetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void);
        fn cuGraphAddBatchMemOpNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
        );
        fn cuGraphAddChildGraphNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            child_graph: CUgraph,
        );
        fn cuGraphAddDependencies_v2(
            graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edge_data: *const CUgraphEdgeData,
            num_dependencies: usize,
        );
        fn cuGraphAddEmptyNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
        );
        fn cuGraphAddEventRecordNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            event: CUevent,
        );
        fn cuGraphAddEventWaitNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            event: CUevent,
        );
        fn cuGraphAddExternalSemaphoresSignalNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
        );
        fn cuGraphAddExternalSemaphoresWaitNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
        );
        fn cuGraphAddHostNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *const CUDA_HOST_NODE_PARAMS,
        );
        fn cuGraphAddKernelNode_v2(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *const CUDA_KERNEL_NODE_PARAMS,
        );
        fn cuGraphAddMemAllocNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
        );
        fn cuGraphAddMemFreeNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            dptr: CUdeviceptr,
        );
        fn cuGraphAddMemcpyNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext,
        );
        fn cuGraphAddMemsetNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext,
        );
        fn cuGraphAddNode_v2(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams,
        );
        fn cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, node_params_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS);
        fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
        fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
        fn cuGraphClone(graph_clone: *mut CUgraph, original_graph: CUgraph) made Graph(graph_clone);
        fn cuGraphConditionalHandleCreate(
            handle_out: *mut CUgraphConditionalHandle, graph: CUgraph, ctx: CUcontext, default_launch_value: c_uint,
            flags: c_uint,
        );
        fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) made Graph(graph);
        fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint);
        fn cuGraphDestroy(graph: CUgraph) gone(graph);
        fn cuGraphDestroyNode(node: CUgraphNode);
        fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event_out: *mut CUevent);
        fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent);
        fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event_out: *mut CUevent);
        fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent);
        fn cuGraphExecBatchMemOpNodeSetParams(
            graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
        );
        fn cuGraphExecChildGraphNodeSetParams(graph_exec: CUgraphExec, node: CUgraphNode, child_graph: CUgraph);
        fn cuGraphExecDestroy(graph_exec: CUgraphExec) gone(graph_exec);
        fn cuGraphExecEventRecordNodeSetEvent(graph_exec: CUgraphExec, node: CUgraphNode, event: CUevent);
        fn cuGraphExecEventWaitNodeSetEvent(graph_exec: CUgraphExec, node: CUgraphNode, event: CUevent);
        fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
            graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
        );
        fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
            graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
        );
        fn cuGraphExecGetFlags(graph_exec: CUgraphExec, flags: *mut cuuint64_t);
        fn cuGraphExecHostNodeSetParams(
            graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS,
        );
        fn cuGraphExecKernelNodeSetParams_v2(
            graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS,
        );
        fn cuGraphExecMemcpyNodeSetParams(
            graph_exec: CUgraphExec, node: CUgraphNode, copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext,
        );
        fn cuGraphExecMemsetNodeSetParams(
            graph_exec: CUgraphExec, node: CUgraphNode, memset_params: *const CUDA_MEMSET_NODE_PARAMS,
            ctx: CUcontext,
        );
        fn cuGraphExecNodeSetParams(graph_exec: CUgraphExec, node: CUgraphNode, node_params: *mut CUgraphNodeParams);
        fn cuGraphExecUpdate_v2(
            graph_exec: CUgraphExec, graph: CUgraph, result_info: *mut CUgraphExecUpdateResultInfo,
        );
        fn cuGraphExternalSemaphoresSignalNodeGetParams(
            node: CUgraphNode, params_out: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
        );
        fn cuGraphExternalSemaphoresSignalNodeSetParams(
            node: CUgraphNode, node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
        );
        fn cuGraphExternalSemaphoresWaitNodeGetParams(
            node: CUgraphNode, params_out: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS,
        );
        fn cuGraphExternalSemaphoresWaitNodeSetParams(
            node: CUgraphNode, node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
        );
        fn cuGraphGetEdges_v2(
            graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData,
            num_edges: *mut usize,
        );
        fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize);
        fn cuGraphGetRootNodes(graph: CUgraph, root_nodes: *mut CUgraphNode, num_root_nodes: *mut usize);
        fn cuGraphHostNodeGetParams(node: CUgraphNode, node_params: *mut CUDA_HOST_NODE_PARAMS);
        fn cuGraphHostNodeSetParams(node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS);
        fn cuGraphInstantiateWithFlags(graph_exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) made Graph(graph_exec);
        fn cuGraphInstantiateWithParams(
            graph_exec: *mut CUgraphExec, graph: CUgraph, instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
        ) made Graph(graph_exec);
        fn cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode);
        fn cuGraphKernelNodeGetAttribute(
            node: CUgraphNode, attr: CUkernelNodeAttrID, value_out: *mut CUkernelNodeAttrValue,
        );
        fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS);
        fn cuGraphKernelNodeSetAttribute(
            node: CUgraphNode, attr: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue,
        );
        fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS);
        fn cuGraphLaunch(graph_exec: CUgraphExec, stream: CUstream);
        fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
        fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, dptr_out: *mut CUdeviceptr);
        fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, node_params: *mut CUDA_MEMCPY3D);
        fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, node_params: *const CUDA_MEMCPY3D);
        fn cuGraphMemsetNodeGetParams(node: CUgraphNode, node_params: *mut CUDA_MEMSET_NODE_PARAMS);
        fn cuGraphMemsetNodeSetParams(node: CUgraphNode, node_params: *const CUDA_MEMSET_NODE_PARAMS);
        fn cuGraphNodeFindInClone(node: *mut CUgraphNode, original_node: CUgraphNode, cloned_graph: CUgraph);
        fn cuGraphNodeGetDependencies_v2(
            node: CUgraphNode, dependencies: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData,
            num_dependencies: *mut usize,
        );
        fn cuGraphNodeGetDependentNodes_v2(
            node: CUgraphNode, dependent_nodes: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData,
            num_dependent_nodes: *mut usize,
        );
        fn cuGraphNodeGetEnabled(graph_exec: CUgraphExec, node: CUgraphNode, is_enabled: *mut c_uint);
        fn cuGraphNodeGetType(node: CUgraphNode, type_: *mut CUgraphNodeType);
        fn cuGraphNodeSetEnabled(graph_exec: CUgraphExec, node: CUgraphNode, is_enabled: c_uint);
        fn cuGraphNodeSetParams(node: CUgraphNode, node_params: *mut CUgraphNodeParams);
        fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint);
        fn cuGraphRemoveDependencies_v2(
            graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edge_data: *const CUgraphEdgeData,
            num_dependencies: usize,
        );
        fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
        fn cuGraphUpload(graph_exec: CUgraphExec, stream: CUstream);
        fn cuUserObjectCreate(
            object_out: *mut CUuserObject, ptr: *mut c_void, destroy: CUhostFn, initial_refcount: c_uint,
            flags: c_uint,
        ) made Graph(object_out);
        fn cuUserObjectRelease(object: CUuserObject, count: c_uint);
        fn cuUserObjectRetain(object: CUuserObject, count: c_uint);
    }
    elsewhere {
        fn cuGraphAddDependencies(
            graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, num_dependencies: usize,
        );
        fn cuGraphAddKernelNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *const CUDA_KERNEL_NODE_PARAMS,
        );
        fn cuGraphAddNode(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize,
            node_params: *mut CUgraphNodeParams,
        );
        fn cuGraphAddNode_v3(
            graph_node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode,
            dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams,
        );
        fn cuGraphExecGetId(graph_exec: CUgraphExec, graph_id: *mut c_uint);
        fn cuGraphExecKernelNodeSetParams(
            graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS,
        );
        fn cuGraphExecUpdate(
            graph_exec: CUgraphExec, graph: CUgraph, error_node_out: *mut CUgraphNode,
            update_result_out: *mut CUgraphExecUpdateResult,
        );
        fn cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize);
        fn cuGraphGetId(graph: CUgraph, graph_id: *mut c_uint);
        fn cuGraphInstantiate(
            graph_exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log_buffer: *mut c_char,
            buffer_size: usize,
        ) made Graph(graph_exec);
        fn cuGraphInstantiateWithParams_ptsz(
            graph_exec: *mut CUgraphExec, graph: CUgraph, instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
        ) made Graph(graph_exec);
        fn cuGraphInstantiate_v2(
            graph_exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log_buffer: *mut c_char,
            buffer_size: usize,
        ) made Graph(graph_exec);
        fn cuGraphKernelNodeGetParams(node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS);
        fn cuGraphKernelNodeSetParams(node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS);
        fn cuGraphLaunch_ptsz(graph_exec: CUgraphExec, stream: CUstream);
        fn cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph);
        fn cuGraphNodeGetDependencies(
            node: CUgraphNode, dependencies: *mut CUgraphNode, num_dependencies: *mut usize,
        );
        fn cuGraphNodeGetDependentNodes(
            node: CUgraphNode, dependent_nodes: *mut CUgraphNode, num_dependent_nodes: *mut usize,
        );
        fn cuGraphNodeGetLocalId(node: CUgraphNode, node_id: *mut c_uint);
        fn cuGraphNodeGetParams(node: CUgraphNode, node_params: *mut CUgraphNodeParams);
        fn cuGraphNodeGetToolsId(node: CUgraphNode, tools_node_id: *mut c_ulonglong);
        fn cuGraphNodeSetParams_v2(node: CUgraphNode, node_params: *mut CUgraphNodeParams);
        fn cuGraphRemoveDependencies(
            graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, num_dependencies: usize,
        );
        fn cuGraphUpload_ptsz(graph_exec: CUgraphExec, stream: CUstream);
    }
}
