//! Attributes of graphs' nodes: one that the executable form of a graph has and the graph no longer, and the other way round,
//! and those that CUDA 13 has added.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Stage, WORDS, beside, check, code, function};
use crate::programs::replay_probe::graphs::{Increment, instantiate};
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ptr::{null, null_mut};

const PRIORITY: sys::CUlaunchAttributeID = sys::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_PRIORITY;

fn set(node: sys::CUgraphNode, priority: i32) -> Result<(), GpuError> {
    // SAFETY: zeros are values of all attributes.
    let mut value: sys::CUlaunchAttributeValue = unsafe { std::mem::zeroed() };
    value.priority = priority;
    // SAFETY: the value is of that attribute.
    let answer = unsafe { sys::cuGraphKernelNodeSetAttribute(node, PRIORITY, &raw const value) };
    check("cuGraphKernelNodeSetAttribute", answer)
}

fn get(node: sys::CUgraphNode) -> Result<i32, GpuError> {
    // SAFETY: as above.
    let mut value: sys::CUlaunchAttributeValue = unsafe { std::mem::zeroed() };
    // SAFETY: the result is a variable of ours.
    let answer = unsafe { sys::cuGraphKernelNodeGetAttribute(node, PRIORITY, &raw mut value) };
    check("cuGraphKernelNodeGetAttribute", answer)?;
    // SAFETY: it is of that attribute.
    Ok(unsafe { value.priority })
}

/// Two graphs of one kernel. Each has another priority once it is executable than before.
pub(super) fn of_nodes(stage: &Stage) -> Result<Value, GpuError> {
    let mut made = Vec::new();
    for [before, after] in [[-1, 0], [0, -1]] {
        let (mut graph, mut node) = (null_mut(), null_mut());
        // SAFETY: the results are variables of ours, here and below.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
        let mut arguments = Increment::of(stage.others, WORDS);
        let params = arguments.params(stage.increment);
        // SAFETY: the driver copies the arguments in the call.
        let added = unsafe { sys::cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, &raw const params) };
        check("cuGraphAddKernelNode", added)?;
        set(node, before)?;
        let executable = instantiate(graph)?;
        set(node, after)?;
        made.push((node, executable));
    }
    stage.gpu.synchronize()?;
    stage.wait()?;
    let told = stage.told();
    let mut priorities = Vec::new();
    for (node, executable) in made {
        priorities.push(get(node)?);
        // SAFETY: all are ours.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(executable, null_mut()) })?;
    }
    stage.gpu.synchronize()?;
    Ok(json!({ "told": told, "priorities": priorities, "word": stage.gpu.read(stage.others, 1)?[0] }))
}

/// To use links well, sizes of clusters and of shared memory that not every GPU has: by number, since not every header has them.
const OF_CUDA_13: [u32; 3] = [16, 17, 18];

type Attribute = unsafe extern "C" fn(sys::CUgraphNode, u32, *mut [u64; 8]) -> sys::CUresult;

/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`, in which 0 and 1 stand for the two domains unless it is set.
const DOMAIN_MAP: [u32; 1] = [9];

/// What a node has of them after a fault.
pub(super) fn newer(stage: &Stage) -> Result<Value, GpuError> {
    given(stage, OF_CUDA_13, 1)
}

/// The same of both domains that are one.
pub(super) fn domains(stage: &Stage) -> Result<Value, GpuError> {
    given(stage, DOMAIN_MAP, 0)
}

/// What a node has after a fault of attributes that were given a value, by the driver: answer and value.
fn given<const COUNT: usize>(stage: &Stage, attributes: [u32; COUNT], first: u64) -> Result<Value, GpuError> {
    // SAFETY: the function of this name has this type.
    let give: Attribute = unsafe { std::mem::transmute(function(c"cuGraphKernelNodeSetAttribute")?) };
    // SAFETY: as above.
    let ask: Attribute = unsafe { std::mem::transmute(function(c"cuGraphKernelNodeGetAttribute")?) };
    let (mut graph, mut node) = (null_mut(), null_mut());
    // SAFETY: the results are variables of ours, here and below.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    let mut arguments = Increment::of(stage.others, WORDS);
    let params = arguments.params(stage.increment);
    // SAFETY: the driver copies the arguments in the call.
    let added = unsafe { sys::cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, &raw const params) };
    check("cuGraphAddKernelNode", added)?;
    for attribute in attributes {
        let mut value = [first, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: a value has so many words.
        check("cuGraphKernelNodeSetAttribute", unsafe { give(node, attribute, &raw mut value) })?;
    }
    let found = beside::fault(stage)?;
    let told: Vec<Value> = attributes
        .map(|attribute| {
            let mut value = [0; 8];
            // SAFETY: as above.
            let answer = code(unsafe { ask(node, attribute, &raw mut value) });
            json!([answer, value[0]])
        })
        .into();
    Ok(json!({ "found": found, "told": told }))
}
