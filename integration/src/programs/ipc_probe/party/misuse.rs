//! What is refused with events that processes share.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::events::{event_handle, new_event};
use super::{Outcome, Party};
use crate::programs::memory_probe::check;
use cudarc::driver::sys;
use std::ptr;

impl Party {
    /// Codes of: a record of another's event, a time, a graph's node that waits for it, a wait in a capture.
    pub(super) fn misuse(&self) -> Outcome {
        let [stream, _] = self.streams;
        let (mut time, mut graph, mut node) = (0_f32, ptr::null_mut(), ptr::null_mut());
        // SAFETY: all are ours, and results variables of ours.
        let record = unsafe { sys::cuEventRecord(self.event, stream) };
        // SAFETY: as above.
        let elapsed = unsafe { sys::cuEventElapsedTime_v2(&raw mut time, self.event, self.event) };
        // SAFETY: as above.
        check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
        // SAFETY: as above.
        let waits = unsafe { sys::cuGraphAddEventWaitNode(&raw mut node, graph, ptr::null(), 0, self.event) };
        // SAFETY: as above; nobody uses it again.
        check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: as above.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })?;
        // SAFETY: as above.
        let captured = unsafe { sys::cuStreamWaitEvent(stream, self.event, 0) };
        let mut made = ptr::null_mut();
        // SAFETY: as above.
        let _ended = unsafe { sys::cuStreamEndCapture(stream, &raw mut made) };
        if !made.is_null() {
            // SAFETY: as above.
            check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(made) })?;
        }
        let codes = [record, elapsed, waits, captured].map(|code| (code as u32).to_string());
        Ok(codes.join(","))
    }
}

/// Code of a graph's node that would record an event which is for others and was given to none yet; it is given away then.
pub(super) fn premature() -> Outcome {
    let (event, mut graph, mut node) = (new_event()?, ptr::null_mut(), ptr::null_mut());
    // SAFETY: the result is a variable of ours.
    check("cuGraphCreate", unsafe { sys::cuGraphCreate(&raw mut graph, 0) })?;
    // SAFETY: all are ours, and the result a variable of ours.
    let records = unsafe { sys::cuGraphAddEventRecordNode(&raw mut node, graph, ptr::null(), 0, event) };
    // SAFETY: nobody uses it again.
    check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })?;
    event_handle(event)?;
    // SAFETY: as above.
    check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event) })?;
    Ok((records as u32).to_string())
}
