//! The nodes of a graph by their work: added, and made to do something else.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{collections::BTreeMap, ffi::c_void, ptr};

use super::{build, translated};
use crate::recovery::{
    memory::{Failed, Renamed, checked},
    objects::enter,
};
use crate::{
    cuda::{
        arguments::nodes::Kernel,
        buffer::Buffer,
        result::CUresult,
        types::{CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode},
    },
    kept::graphs::plan::{Arguments, Launch, Plan, Work},
};

/// Arguments as the driver takes them, which copies them in the call.
struct Given<'plan> {
    launch: &'plan Launch,
    singles: Vec<*mut c_void>,
    buffer: Option<Buffer>,
}

impl<'plan> Given<'plan> {
    fn new(launch: &'plan Launch) -> Self {
        let (singles, buffer) = match &launch.arguments {
            Arguments::Single(all) => (all.iter().map(|value| value.as_ptr().cast_mut().cast()).collect(), None),
            Arguments::Buffer(bytes) => (Vec::new(), Some(Buffer::new(bytes))),
        };
        Self { launch, singles, buffer }
    }

    /// The parameters, which point into this.
    fn params(&mut self, renamed: &Renamed) -> Result<Kernel, Failed> {
        let mut params = Kernel {
            function: translated(self.launch.function, renamed)?,
            kernel: translated(self.launch.kernel, renamed)?,
            context: translated(self.launch.context, renamed)?,
            shape: self.launch.shape,
            ..Kernel::NONE
        };
        if !self.singles.is_empty() {
            params.arguments = self.singles.as_mut_ptr();
        }
        params.extra = self.buffer.as_ref().map_or(ptr::null_mut(), Buffer::list);
        Ok(params)
    }
}

/// Enters the context that a node works in, if one is known.
fn enter_for(context: usize, renamed: &Renamed) -> Result<CUcontext, Failed> {
    let context = translated(context, renamed)?;
    if context != 0 {
        enter(context)?;
    }
    Ok(CUcontext(context))
}

/// Adds a node without any before it.
pub(super) fn add(graph: CUgraph, work: &Work, renamed: &mut Renamed) -> Result<CUgraphNode, Failed> {
    let mut node = CUgraphNode(0);
    let (into, none) = ((&raw mut node).cast(), ptr::null());
    let (call, answer) = match work {
        Work::Launch(launch) => {
            enter_for(launch.context, renamed)?;
            let mut given = Given::new(launch);
            let params = given.params(renamed)?;
            let place = (&raw const params).cast();
            checked("cuGraphAddKernelNode", driver!(graph::cuGraphAddKernelNode_v2(into, graph, none, 0, place)))?;
            ("cuGraphKernelNodeSetAttribute", give_attributes(node, launch))
        }
        Work::Copy { words, context } => {
            let context = enter_for(*context, renamed)?;
            let place = words.as_ptr().cast();
            ("cuGraphAddMemcpyNode", driver!(graph::cuGraphAddMemcpyNode(into, graph, none, 0, place, context)))
        }
        Work::Set { words, context } => {
            let context = enter_for(*context, renamed)?;
            let place = words.as_ptr().cast();
            ("cuGraphAddMemsetNode", driver!(graph::cuGraphAddMemsetNode(into, graph, none, 0, place, context)))
        }
        Work::Host { function, data } => {
            let words = [*function, *data];
            let place = words.as_ptr().cast();
            ("cuGraphAddHostNode", driver!(graph::cuGraphAddHostNode(into, graph, none, 0, place)))
        }
        Work::Child { graph: embedded, plan } => return add_child(graph, *embedded, plan, renamed),
        Work::Empty => ("cuGraphAddEmptyNode", driver!(graph::cuGraphAddEmptyNode(into, graph, none, 0))),
        Work::Wait { event } => {
            let event = CUevent(translated(*event, renamed)?);
            ("cuGraphAddEventWaitNode", driver!(graph::cuGraphAddEventWaitNode(into, graph, none, 0, event)))
        }
        Work::Record { event } => {
            let event = CUevent(translated(*event, renamed)?);
            ("cuGraphAddEventRecordNode", driver!(graph::cuGraphAddEventRecordNode(into, graph, none, 0, event)))
        }
    };
    checked(call, answer)?;
    Ok(node)
}

fn give_attributes(node: CUgraphNode, launch: &Launch) -> CUresult {
    let give = |(attribute, value): &(u32, [u64; 8])| {
        driver!(graph::cuGraphKernelNodeSetAttribute(node, *attribute, value.as_ptr().cast()))
    };
    let refused = launch.attributes.iter().map(give).find(|answer| !answer.is_success());
    refused.unwrap_or(CUresult::CUDA_SUCCESS)
}

/// Adds a node that embeds a copy of a graph. Whatever was embedded is found in the copy.
fn add_child(graph: CUgraph, embedded: usize, plan: &Plan, renamed: &mut Renamed) -> Result<CUgraphNode, Failed> {
    let mut inner = renamed.clone();
    let original = build(plan, &mut inner)?;
    let (mut node, mut copy) = (CUgraphNode(0), CUgraph(0));
    let answer = driver!(graph::cuGraphAddChildGraphNode((&raw mut node).cast(), graph, ptr::null(), 0, original));
    checked("cuGraphAddChildGraphNode", answer)?;
    let answer = driver!(graph::cuGraphChildGraphNodeGetGraph(node, &raw mut copy));
    checked("cuGraphChildGraphNodeGetGraph", answer)?;
    if embedded != 0 {
        renamed.insert(embedded, copy.0);
    }
    let made: BTreeMap<_, _> = plan.nodes.iter().map(|of| (of.handle, inner[&of.handle])).collect();
    for (handle, original) in made {
        let mut found = CUgraphNode(0);
        let answer = driver!(graph::cuGraphNodeFindInClone((&raw mut found).cast(), CUgraphNode(original), copy));
        // A node that is not found keeps its name, which the driver will not know.
        renamed.insert(handle, if answer.is_success() { found.0 } else { handle });
    }
    checked("cuGraphDestroy", driver!(graph::cuGraphDestroy(original)))?;
    Ok(node)
}

/// Has a node of a graph do something else of the same kind.
pub(super) fn set(node: CUgraphNode, work: &Work, renamed: &Renamed) -> Result<(), Failed> {
    let (call, answer) = match work {
        Work::Launch(launch) => {
            let mut given = Given::new(launch);
            let params = given.params(renamed)?;
            let place = (&raw const params).cast();
            checked("cuGraphKernelNodeSetParams", driver!(graph::cuGraphKernelNodeSetParams_v2(node, place)))?;
            ("cuGraphKernelNodeSetAttribute", give_attributes(node, launch))
        }
        Work::Copy { words, .. } => {
            ("cuGraphMemcpyNodeSetParams", driver!(graph::cuGraphMemcpyNodeSetParams(node, words.as_ptr().cast())))
        }
        Work::Set { words, .. } => {
            ("cuGraphMemsetNodeSetParams", driver!(graph::cuGraphMemsetNodeSetParams(node, words.as_ptr().cast())))
        }
        Work::Host { function, data } => {
            let words = [*function, *data];
            ("cuGraphHostNodeSetParams", driver!(graph::cuGraphHostNodeSetParams(node, words.as_ptr().cast())))
        }
        Work::Wait { event } => {
            let event = CUevent(translated(*event, renamed)?);
            ("cuGraphEventWaitNodeSetEvent", driver!(graph::cuGraphEventWaitNodeSetEvent(node, event)))
        }
        Work::Record { event } => {
            let event = CUevent(translated(*event, renamed)?);
            ("cuGraphEventRecordNodeSetEvent", driver!(graph::cuGraphEventRecordNodeSetEvent(node, event)))
        }
        // A graph that embeds another one than its executable form has other nodes.
        Work::Child { .. } | Work::Empty => return Ok(()),
    };
    checked(call, answer)
}

/// Has a node of an executable graph do something else of the same kind; whether it does.
pub(super) fn set_executable(
    made: CUgraphExec,
    node: CUgraphNode,
    work: &Work,
    renamed: &Renamed,
) -> Result<bool, Failed> {
    let answer = match work {
        Work::Launch(launch) => {
            let mut given = Given::new(launch);
            let params = given.params(renamed)?;
            driver!(graph::cuGraphExecKernelNodeSetParams_v2(made, node, (&raw const params).cast()))
        }
        Work::Copy { words, context } => {
            let context = enter_for(*context, renamed)?;
            driver!(graph::cuGraphExecMemcpyNodeSetParams(made, node, words.as_ptr().cast(), context))
        }
        Work::Set { words, context } => {
            let context = enter_for(*context, renamed)?;
            driver!(graph::cuGraphExecMemsetNodeSetParams(made, node, words.as_ptr().cast(), context))
        }
        Work::Host { function, data } => {
            let words = [*function, *data];
            driver!(graph::cuGraphExecHostNodeSetParams(made, node, words.as_ptr().cast()))
        }
        Work::Record { event } => {
            let event = CUevent(translated(*event, renamed)?);
            driver!(graph::cuGraphExecEventRecordNodeSetEvent(made, node, event))
        }
        Work::Wait { event } => {
            let event = CUevent(translated(*event, renamed)?);
            driver!(graph::cuGraphExecEventWaitNodeSetEvent(made, node, event))
        }
        Work::Child { .. } | Work::Empty => return Ok(false),
    };
    Ok(answer.is_success())
}
