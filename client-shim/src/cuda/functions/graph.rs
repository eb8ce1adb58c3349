//! Graphs, their nodes and executable forms.

macro_rules! graph {
    ($then:ident) => {
        $then! {
            graph: Graph None;
            {
                fn cuDeviceGetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void);
                fn cuDeviceGraphMemTrim(device: CUdevice);
                fn cuDeviceSetGraphMemAttribute(device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void);
                fn cuGraphAddBatchMemOpNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
                ) then kept::graphs::refuse(name!(), kept::account::Reason::GraphNode, graph);
                fn cuGraphAddChildGraphNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, child_graph: CUgraph,
                ) then kept::graphs::embedded(name!(), graph, written!(graph_node).0, child_graph);
                fn cuGraphAddDependencies_v2(
                    graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edge_data: *const CUgraphEdgeData,
                    num_dependencies: usize,
                ) then kept::graphs::connected(name!(), graph, from, to, edge_data, num_dependencies);
                fn cuGraphAddEmptyNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize,
                ) then kept::graphs::added(name!(), graph, written!(graph_node).0, None);
                fn cuGraphAddEventRecordNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, event: CUevent,
                ): RecordsEventElsewhere then kept::graphs::added(name!(), graph, written!(graph_node).0, None);
                fn cuGraphAddEventWaitNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, event: CUevent,
                ) then kept::graphs::added(name!(), graph, written!(graph_node).0, None);
                fn cuGraphAddExternalSemaphoresSignalNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
                ) then kept::graphs::refuse(name!(), kept::account::Reason::GraphNode, graph);
                fn cuGraphAddExternalSemaphoresWaitNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
                ) then kept::graphs::refuse(name!(), kept::account::Reason::GraphNode, graph);
                fn cuGraphAddHostNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *const CUDA_HOST_NODE_PARAMS,
                ) then kept::graphs::added(name!(), graph, written!(graph_node).0, None);
                fn cuGraphAddKernelNode_v2(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *const CUDA_KERNEL_NODE_PARAMS,
                ) then kept::graphs::added(name!(), graph, written!(graph_node).0, None);
                fn cuGraphAddMemAllocNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
                ) then kept::graphs::refuse(name!(), kept::account::Reason::GraphNode, graph);
                fn cuGraphAddMemFreeNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, dptr: CUdeviceptr,
                ) then kept::graphs::refuse(name!(), kept::account::Reason::GraphNode, graph);
                fn cuGraphAddMemcpyNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext,
                ) then kept::graphs::added(name!(), graph, written!(graph_node).0, Some(ctx));
                fn cuGraphAddMemsetNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext,
                ) then kept::graphs::added(name!(), graph, written!(graph_node).0, Some(ctx));
                fn cuGraphAddNode_v2(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    dependency_data: *const CUgraphEdgeData, num_dependencies: usize,
                    node_params: *mut CUgraphNodeParams,
                ): RecordsEventElsewhere then kept::graphs::added_by(
                    name!(), graph, written!(graph_node).0, node_params,
                );
                fn cuGraphBatchMemOpNodeGetParams(
                    node: CUgraphNode, node_params_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
                );
                fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
                fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
                fn cuGraphClone(graph_clone: *mut CUgraph, original_graph: CUgraph)
                    then kept::graphs::cloned(name!(), written!(graph_clone), original_graph);
                fn cuGraphConditionalHandleCreate(
                    handle_out: *mut CUgraphConditionalHandle, graph: CUgraph, ctx: CUcontext,
                    default_launch_value: c_uint, flags: c_uint,
                );
                fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint)
                    then kept::graphs::made(name!(), written!(graph));
                fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint);
                fn cuGraphDestroy(graph: CUgraph) => kept::graphs::destroy;
                fn cuGraphDestroyNode(node: CUgraphNode) => kept::graphs::destroy_node;
                fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event_out: *mut CUevent);
                fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent): RecordsEventElsewhere
                    then kept::graphs::changed(name!(), node, None);
                fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event_out: *mut CUevent);
                fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent)
                    then kept::graphs::changed(name!(), node, None);
                fn cuGraphExecBatchMemOpNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
                );
                fn cuGraphExecChildGraphNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, child_graph: CUgraph,
                ) then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::child(child_graph));
                fn cuGraphExecDestroy(graph_exec: CUgraphExec) => kept::graphs::destroy_executable;
                fn cuGraphExecEventRecordNodeSetEvent(
                    graph_exec: CUgraphExec, node: CUgraphNode, event: CUevent,
                ): RecordsEventElsewhere then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::record(event));
                fn cuGraphExecEventWaitNodeSetEvent(
                    graph_exec: CUgraphExec, node: CUgraphNode, event: CUevent,
                ) then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::wait(event));
                fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
                );
                fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
                );
                fn cuGraphExecGetFlags(graph_exec: CUgraphExec, flags: *mut cuuint64_t);
                fn cuGraphExecHostNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS,
                ) then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::host(node_params));
                fn cuGraphExecKernelNodeSetParams_v2(
                    graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS,
                ) then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::launch(node_params));
                fn cuGraphExecMemcpyNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext,
                ) then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::copy(copy_params, ctx));
                fn cuGraphExecMemsetNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, memset_params: *const CUDA_MEMSET_NODE_PARAMS,
                    ctx: CUcontext,
                ) then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::set(memset_params, ctx));
                fn cuGraphExecNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, node_params: *mut CUgraphNodeParams,
                ): RecordsEventElsewhere then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::any(node_params));
                fn cuGraphExecUpdate_v2(
                    graph_exec: CUgraphExec, graph: CUgraph, result_info: *mut CUgraphExecUpdateResultInfo,
                ) => kept::graphs::update;
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
                ) then kept::graphs::listed_edges(from, to, num_edges);
                fn cuGraphGetNodes(
                    graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize,
                ) then kept::graphs::listed(nodes, num_nodes);
                fn cuGraphGetRootNodes(
                    graph: CUgraph, root_nodes: *mut CUgraphNode, num_root_nodes: *mut usize,
                ) then kept::graphs::listed(root_nodes, num_root_nodes);
                fn cuGraphHostNodeGetParams(node: CUgraphNode, node_params: *mut CUDA_HOST_NODE_PARAMS);
                fn cuGraphHostNodeSetParams(
                    node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS,
                ) then kept::graphs::changed(name!(), node, None);
                fn cuGraphInstantiateWithFlags(
                    graph_exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong,
                ) then kept::graphs::instantiated(name!(), written!(graph_exec), graph, flags);
                fn cuGraphInstantiateWithParams(
                    graph_exec: *mut CUgraphExec, graph: CUgraph,
                    instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
                ) / _ptsz => kept::graphs::instantiate_with;
                fn cuGraphKernelNodeCopyAttributes(
                    dst: CUgraphNode, src: CUgraphNode,
                ) then kept::graphs::changed(name!(), dst, None);
                fn cuGraphKernelNodeGetAttribute(
                    node: CUgraphNode, attr: CUkernelNodeAttrID, value_out: *mut CUkernelNodeAttrValue,
                );
                fn cuGraphKernelNodeGetParams_v2(
                    node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS,
                );
                fn cuGraphKernelNodeSetAttribute(
                    node: CUgraphNode, attr: CUkernelNodeAttrID, value: *const CUkernelNodeAttrValue,
                ) then kept::graphs::changed(name!(), node, None);
                fn cuGraphKernelNodeSetParams_v2(
                    node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS,
                ) then kept::graphs::changed(name!(), node, None);
                fn cuGraphLaunch(graph_exec: CUgraphExec, stream: CUstream) / _ptsz: SubmitsMany;
                fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
                fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, dptr_out: *mut CUdeviceptr);
                fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, node_params: *mut CUDA_MEMCPY3D);
                fn cuGraphMemcpyNodeSetParams(
                    node: CUgraphNode, node_params: *const CUDA_MEMCPY3D,
                ) then kept::graphs::changed(name!(), node, None);
                fn cuGraphMemsetNodeGetParams(node: CUgraphNode, node_params: *mut CUDA_MEMSET_NODE_PARAMS);
                fn cuGraphMemsetNodeSetParams(
                    node: CUgraphNode, node_params: *const CUDA_MEMSET_NODE_PARAMS,
                ) then kept::graphs::changed(name!(), node, None);
                fn cuGraphNodeFindInClone(
                    node: *mut CUgraphNode_made, original_node: CUgraphNode, cloned_graph: CUgraph,
                );
                fn cuGraphNodeGetDependencies_v2(
                    node: CUgraphNode, dependencies: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData,
                    num_dependencies: *mut usize,
                ) then kept::graphs::listed(dependencies, num_dependencies);
                fn cuGraphNodeGetDependentNodes_v2(
                    node: CUgraphNode, dependent_nodes: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData,
                    num_dependent_nodes: *mut usize,
                ) then kept::graphs::listed(dependent_nodes, num_dependent_nodes);
                fn cuGraphNodeGetEnabled(graph_exec: CUgraphExec, node: CUgraphNode, is_enabled: *mut c_uint);
                fn cuGraphNodeGetType(node: CUgraphNode, type_: *mut CUgraphNodeType);
                fn cuGraphNodeSetEnabled(
                    graph_exec: CUgraphExec, node: CUgraphNode, is_enabled: c_uint,
                ) then kept::graphs::enable(graph_exec, node, is_enabled);
                fn cuGraphNodeSetParams(node: CUgraphNode, node_params: *mut CUgraphNodeParams): RecordsEventElsewhere
                    then kept::graphs::changed(name!(), node, kept::graphs::place_of(node_params));
                fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint);
                fn cuGraphRemoveDependencies_v2(
                    graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edge_data: *const CUgraphEdgeData,
                    num_dependencies: usize,
                ) then kept::graphs::disconnected(graph, from, to, edge_data, num_dependencies);
                fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
                fn cuGraphUpload(graph_exec: CUgraphExec, stream: CUstream) / _ptsz: Launches;
                fn cuUserObjectCreate(
                    object_out: *mut CUuserObject, ptr: *mut c_void, destroy: CUhostFn, initial_refcount: c_uint,
                    flags: c_uint,
                ) made Graph(object_out) => kept::graphs::user_object;
                fn cuUserObjectRelease(object: CUuserObject, count: c_uint);
                fn cuUserObjectRetain(object: CUuserObject, count: c_uint);
            }
            elsewhere {
                fn cuGraphAddDependencies(
                    graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, num_dependencies: usize,
                ) then kept::graphs::connected(name!(), graph, from, to, std::ptr::null(), num_dependencies);
                fn cuGraphAddKernelNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
                ) then kept::graphs::added(name!(), graph, written!(graph_node).0, None);
                fn cuGraphAddNode(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    num_dependencies: usize, node_params: *mut CUgraphNodeParams,
                ): RecordsEventElsewhere then kept::graphs::added_by(
                    name!(), graph, written!(graph_node).0, node_params,
                );
                fn cuGraphAddNode_v3(
                    graph_node: *mut CUgraphNode_made, graph: CUgraph, dependencies: *const CUgraphNode,
                    dependency_data: *const CUgraphEdgeData, num_dependencies: usize,
                    node_params: *mut CUgraphNodeParams,
                ): RecordsEventElsewhere then kept::graphs::added_by(
                    name!(), graph, written!(graph_node).0, node_params,
                );
                fn cuGraphExecGetId(graph_exec: CUgraphExec, graph_id: *mut c_uint);
                fn cuGraphExecKernelNodeSetParams(
                    graph_exec: CUgraphExec, node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
                ) then kept::graphs::told(name!(), graph_exec, node, || kept::graphs::old_launch(node_params));
                fn cuGraphExecUpdate(
                    graph_exec: CUgraphExec, graph: CUgraph, error_node_out: *mut CUgraphNode,
                    update_result_out: *mut CUgraphExecUpdateResult,
                ) => kept::graphs::update_plainly;
                fn cuGraphGetEdges(
                    graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize,
                ) then kept::graphs::listed_edges(from, to, num_edges);
                fn cuGraphGetId(graph: CUgraph, graph_id: *mut c_uint);
                fn cuGraphInstantiate(
                    graph_exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log_buffer: *mut c_char,
                    buffer_size: usize,
                ) => kept::graphs::instantiate_plainly;
                fn cuGraphInstantiate_v2(
                    graph_exec: *mut CUgraphExec, graph: CUgraph, error_node: *mut CUgraphNode, log_buffer: *mut c_char,
                    buffer_size: usize,
                ) => kept::graphs::instantiate_plainly;
                fn cuGraphKernelNodeGetParams(
                    node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS_v1,
                );
                fn cuGraphKernelNodeSetParams(
                    node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1,
                ) then kept::graphs::changed(name!(), node, None);
                fn cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph);
                fn cuGraphNodeGetDependencies(
                    node: CUgraphNode, dependencies: *mut CUgraphNode, num_dependencies: *mut usize,
                ) then kept::graphs::listed(dependencies, num_dependencies);
                fn cuGraphNodeGetDependentNodes(
                    node: CUgraphNode, dependent_nodes: *mut CUgraphNode, num_dependent_nodes: *mut usize,
                ) then kept::graphs::listed(dependent_nodes, num_dependent_nodes);
                fn cuGraphNodeGetLocalId(node: CUgraphNode, node_id: *mut c_uint);
                fn cuGraphNodeGetParams(
                    node: CUgraphNode, node_params: *mut CUgraphNodeParams_filled,
                );
                fn cuGraphNodeGetToolsId(node: CUgraphNode, tools_node_id: *mut c_ulonglong);
                fn cuGraphNodeSetParams_v2(
                    node: CUgraphNode, node_params: *mut CUgraphNodeParams,
                ): RecordsEventElsewhere then kept::graphs::changed(name!(), node, kept::graphs::place_of(node_params));
                fn cuGraphRemoveDependencies(
                    graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, num_dependencies: usize,
                ) then kept::graphs::disconnected(graph, from, to, std::ptr::null(), num_dependencies);
            }
        }
    };
}

graph!(describe);
