//! An attribute of a graph's node that its executable form has and the graph no longer, and the other way round.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::{GpuError, Stage, WORDS, check};
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
