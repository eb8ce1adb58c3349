//! What a graph is made of, by the driver's own answers.
#![expect(unsafe_code, reason = "calls the driver and reads what it answers")]

use std::{
    ffi::{CStr, c_uint, c_void},
    ptr, slice,
    sync::Arc,
};

use super::{
    places::Places,
    plan::{Arguments, Edge, Edges, Launch, Node, Plan, Work},
};
use crate::{
    cuda::{
        arguments::nodes::{self, Kernel, Params},
        buffer,
        result::CUresult,
        types::{CUcontext, CUevent, CUfunction, CUgraph, CUgraphNode, CUgraphNodeType, CUkernel, CUlibrary, CUmodule},
    },
    kept::{account::Reason, objects::recipes::Recipe, recipes},
};

/// Attributes of kernels' nodes that are kept: access policy, cooperation, clusters and how they are scheduled, priority,
/// domains of memory order, preferred cluster and share of shared memory, use of links, and whether clusters and shared
/// memory may be larger than on every GPU. No number of these is a handle. Those with an event are a launch's alone, as CUDA
/// documents them: a capture makes of such an event an edge from a port of the node, and of none outside of the capture.
const ATTRIBUTES: [c_uint; 12] = [1, 2, 4, 5, 8, 9, 10, 11, 14, 16, 17, 18];
/// The one of these that is not all zeros by default, `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`: a node of which it was not set says
/// that the second domain is 1 (measured with 580.159.04), so zeros are what somebody has set.
const DOMAIN_MAP: c_uint = 9;
/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`.
const DEVICE_UPDATABLE: c_uint = 13;
/// Nodes that are embedded in each other deeper than that are not described.
const DEEPEST: usize = 16;
/// More parameters than any kernel has.
const MOST_PARAMETERS: usize = 4096;

fn must(answer: CUresult) -> Result<(), Reason> {
    if answer.is_success() { Ok(()) } else { Err(Reason::Graph) }
}

/// All of a graph.
pub(crate) fn graph(graph: CUgraph, places: &Places) -> Result<Plan, Reason> {
    graph_at(graph, places, 0)
}

fn graph_at(graph: CUgraph, places: &Places, depth: usize) -> Result<Plan, Reason> {
    let mut count = 0;
    must(driver!(graph::cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count)))?;
    let mut handles = vec![CUgraphNode(0); count];
    if count > 0 {
        must(driver!(graph::cuGraphGetNodes(graph, handles.as_mut_ptr(), &raw mut count)))?;
    }
    handles.truncate(count);
    let nodes = handles.into_iter().map(|node| {
        let work = Arc::new(work_at(node, places, depth)?);
        Ok(Node { handle: node.0, work })
    });
    Ok(Plan { nodes: nodes.collect::<Result<_, Reason>>()?, edges: edges(graph)? })
}

/// All edges of a graph.
fn edges(graph: CUgraph) -> Result<Edges, Reason> {
    let mut count = 0;
    let (none, no_data) = (ptr::null_mut(), ptr::null_mut());
    must(driver!(graph::cuGraphGetEdges_v2(graph, none, none, no_data, &raw mut count)))?;
    let (mut from, mut to) = (vec![CUgraphNode(0); count], vec![CUgraphNode(0); count]);
    let mut data = vec![[0_u8; 8]; count];
    if count > 0 {
        let edges = data.as_mut_ptr().cast::<c_void>();
        must(driver!(graph::cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), edges, &raw mut count)))?;
    }
    let all = from.into_iter().zip(to).zip(data).take(count);
    Ok(all.map(|((from, to), data)| Edge { from: from.0, to: to.0, data }).collect())
}

/// The edges to a node.
pub(crate) fn edges_to(node: CUgraphNode) -> Result<Vec<Edge>, Reason> {
    let mut count = 0;
    let (none, no_data) = (ptr::null_mut(), ptr::null_mut());
    must(driver!(graph::cuGraphNodeGetDependencies_v2(node, none, no_data, &raw mut count)))?;
    let (mut from, mut data) = (vec![CUgraphNode(0); count], vec![[0_u8; 8]; count]);
    if count > 0 {
        let edges = data.as_mut_ptr().cast::<c_void>();
        must(driver!(graph::cuGraphNodeGetDependencies_v2(node, from.as_mut_ptr(), edges, &raw mut count)))?;
    }
    let all = from.into_iter().zip(data).take(count);
    Ok(all.map(|(from, data)| Edge { from: from.0, to: node.0, data }).collect())
}

/// What a node does.
pub(crate) fn work(node: CUgraphNode, places: &Places) -> Result<Work, Reason> {
    work_at(node, places, 0)
}

fn work_at(node: CUgraphNode, places: &Places, depth: usize) -> Result<Work, Reason> {
    let mut kind: CUgraphNodeType = 0;
    must(driver!(graph::cuGraphNodeGetType(node, &raw mut kind)))?;
    Ok(match kind {
        nodes::KERNEL => {
            let mut kernel = Kernel::NONE;
            must(driver!(graph::cuGraphKernelNodeGetParams_v2(node, (&raw mut kernel).cast())))?;
            Work::Launch(Launch { attributes: attributes(node)?, ..launch(&kernel)? })
        }
        nodes::COPY => {
            let mut words = [0_u64; 25];
            must(driver!(graph::cuGraphMemcpyNodeGetParams(node, words.as_mut_ptr().cast())))?;
            copy(words, places.of(node.0))?
        }
        nodes::SET => {
            let mut words = [0_u64; 5];
            must(driver!(graph::cuGraphMemsetNodeGetParams(node, words.as_mut_ptr().cast())))?;
            Work::Set { words, context: places.of(node.0) }
        }
        nodes::HOST => {
            let mut words = [0_usize; 2];
            must(driver!(graph::cuGraphHostNodeGetParams(node, words.as_mut_ptr().cast())))?;
            Work::Host { function: words[0], data: words[1] }
        }
        nodes::CHILD if depth < DEEPEST => {
            let mut child = CUgraph(0);
            must(driver!(graph::cuGraphChildGraphNodeGetGraph(node, &raw mut child)))?;
            Work::Child { graph: child.0, plan: graph_at(child, places, depth + 1)? }
        }
        nodes::EMPTY => Work::Empty,
        nodes::WAIT => {
            let mut event = CUevent(0);
            must(driver!(graph::cuGraphEventWaitNodeGetEvent(node, &raw mut event)))?;
            Work::Wait { event: event.0 }
        }
        nodes::RECORD => {
            let mut event = CUevent(0);
            must(driver!(graph::cuGraphEventRecordNodeGetEvent(node, &raw mut event)))?;
            Work::Record { event: event.0 }
        }
        _ => return Err(Reason::GraphNode),
    })
}

/// A copy by `CUDA_MEMCPY3D`. One with an array is refused: it is not translated here.
pub(crate) fn copy(words: [u64; 25], context: usize) -> Result<Work, Reason> {
    // The arrays of source and destination.
    if words[7] == 0 && words[18] == 0 { Ok(Work::Copy { words, context }) } else { Err(Reason::GraphNode) }
}

/// What a node does that is given by `CUgraphNodeParams`. A graph is known by its plan.
pub(crate) fn given(params: &Params, plan_of: impl Fn(usize) -> Option<Plan>) -> Result<Work, Reason> {
    Ok(match params.kind {
        // SAFETY: the kind says what is set.
        nodes::KERNEL => Work::Launch(launch(&unsafe { params.of.kernel })?),
        nodes::COPY => {
            // SAFETY: as above.
            let given = unsafe { params.of.copy };
            copy(given.words, given.context)?
        }
        nodes::SET => {
            // SAFETY: as above.
            let given = unsafe { params.of.set };
            Work::Set { words: given.words, context: given.context }
        }
        nodes::HOST | nodes::CHILD | nodes::WAIT | nodes::RECORD => {
            // SAFETY: as above.
            let [first, second] = unsafe { params.of.words };
            match params.kind {
                nodes::HOST => Work::Host { function: first, data: second },
                nodes::CHILD => Work::Child { graph: first, plan: plan_of(first).ok_or(Reason::Graph)? },
                nodes::WAIT => Work::Wait { event: first },
                _ => Work::Record { event: first },
            }
        }
        nodes::EMPTY => Work::Empty,
        _ => return Err(Reason::GraphNode),
    })
}

/// A kernel's launch, with a copy of its arguments.
pub(crate) fn launch(params: &Kernel) -> Result<Launch, Reason> {
    let &Kernel { function, shape, kernel, context, .. } = params;
    if function != 0 {
        learn(function, context)?;
    }
    let is_known = kernel == 0 || recipes(|recipes| recipes.is_kept(kernel)).unwrap_or(false);
    if !is_known {
        return Err(Reason::GraphKernel);
    }
    let arguments = if !params.arguments.is_null() {
        singles(params)?
    } else if params.extra.is_null() {
        Arguments::Single(Vec::new())
    } else {
        // SAFETY: what the program, or the driver, says of a launch.
        let bytes = unsafe { buffer::read(params.extra) }.ok_or(Reason::GraphArguments)?;
        Arguments::Buffer(bytes.to_vec())
    };
    Ok(Launch { function, kernel, context, shape, arguments, attributes: Vec::new() })
}

/// Copies of arguments that were given one by one: the driver knows how long each is.
fn singles(params: &Kernel) -> Result<Arguments, Reason> {
    let mut values = Vec::new();
    loop {
        let (mut offset, mut size) = (0_usize, 0_usize);
        let (at, of, length) = (values.len(), &raw mut offset, &raw mut size);
        let answer = if params.function == 0 {
            driver!(kernel::cuKernelGetParamInfo(CUkernel(params.kernel), at, of, length))
        } else {
            driver!(kernel::cuFuncGetParamInfo(CUfunction(params.function), at, of, length))
        };
        match answer {
            CUresult::CUDA_SUCCESS if at < MOST_PARAMETERS => {
                // SAFETY: there is a pointer for each parameter.
                let place = unsafe { params.arguments.wrapping_add(at).read() };
                if place.is_null() {
                    return Err(Reason::Graph);
                }
                // SAFETY: it points to as many bytes.
                values.push(unsafe { slice::from_raw_parts(place.cast::<u8>(), size) }.to_vec());
            }
            // There is no such parameter: these were all.
            CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(Arguments::Single(values)),
            _ => return Err(Reason::GraphArguments),
        }
    }
}

/// Attributes of a kernel's node that are not as they are by default.
fn attributes(node: CUgraphNode) -> Result<Vec<(u32, [u64; 8])>, Reason> {
    let value_of = |attribute: c_uint| {
        let mut value = [0_u64; 8];
        let place = value.as_mut_ptr().cast();
        // An older driver does not know all of them.
        let answer = driver!(graph::cuGraphKernelNodeGetAttribute(node, attribute, place));
        (answer.is_success() && (value != [0; 8] || attribute == DOMAIN_MAP)).then_some((attribute, value))
    };
    match value_of(DEVICE_UPDATABLE) {
        Some(_) => Err(Reason::GraphNode),
        None => Ok(ATTRIBUTES.into_iter().filter_map(value_of).collect()),
    }
}

/// Finds out how a function was come by that the program has not asked for by name: one of a kernel of a library, which
/// was launched in its place.
fn learn(function: usize, context: usize) -> Result<(), Reason> {
    let unknown = |_| Reason::GraphKernel;
    if recipes(|recipes| recipes.is_kept(function)).map_err(unknown)? {
        return Ok(());
    }
    let (mut name, mut module) = (ptr::null(), CUmodule(0));
    let has_name = driver!(kernel::cuFuncGetName(&raw mut name, CUfunction(function))).is_success();
    if !has_name || name.is_null() {
        return Err(Reason::GraphKernel);
    }
    // SAFETY: the driver has answered with a text of its own.
    let name = unsafe { CStr::from_ptr(name) }.to_owned();
    let has_module = driver!(kernel::cuFuncGetModule(&raw mut module, CUfunction(function))).is_success();
    if has_module && recipes(|recipes| recipes.is_kept(module.0)).map_err(unknown)? {
        let recipe = Recipe::Function { module: module.0, name };
        return recipes(|recipes| recipes.keep_first(function, || recipe)).map_err(unknown);
    }
    let mut current = CUcontext(context);
    if context == 0 && !driver!(context::cuCtxGetCurrent(&raw mut current)).is_success() {
        return Err(Reason::GraphKernel);
    }
    for library in recipes(|recipes| recipes.libraries()).map_err(unknown)? {
        let (mut kernel, mut found) = (CUkernel(0), CUfunction(0));
        let answer = driver!(library::cuLibraryGetKernel(&raw mut kernel, CUlibrary(library), name.as_ptr()));
        if answer.is_success()
            && driver!(kernel::cuKernelGetFunction(&raw mut found, kernel)).is_success()
            && found.0 == function
        {
            return recipes(|recipes| {
                recipes.keep_first(kernel.0, || Recipe::Kernel { library, name });
                recipes.keep_first(function, || Recipe::KernelFunction { context: current.0, kernel: kernel.0 });
            })
            .map_err(unknown);
        }
    }
    Err(Reason::GraphKernel)
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUlaunchAttributeID_enum as Of;

    use super::{ATTRIBUTES, DEVICE_UPDATABLE, DOMAIN_MAP};

    #[test]
    fn what_is_kept_of_a_node_are_the_headers_attributes_of_nodes() {
        let of_nodes = [
            Of::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
            Of::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
            Of::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            Of::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
            Of::CU_LAUNCH_ATTRIBUTE_PRIORITY,
            Of::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
            Of::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
            Of::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
            Of::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
            Of::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
        ];
        // `CU_LAUNCH_ATTRIBUTE_PORTABLE_CLUSTER_SIZE_MODE`, `…_SHARED_MEMORY_MODE`: of CUDA 13.2.
        let newer = [17, 18];
        assert_eq!([&of_nodes.map(|of| of as u32)[..], &newer].concat(), ATTRIBUTES);
        assert_eq!(Of::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP as u32, DOMAIN_MAP);
        assert_eq!(Of::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE as u32, DEVICE_UPDATABLE);
    }
}
