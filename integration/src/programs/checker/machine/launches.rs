//! Launches of kernels, with and without attributes.

use super::super::api::Answer;
use super::super::program::Queue;
use super::Machine;
use std::ffi::c_void;

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`, `…_PROGRAMMATIC_EVENT`, `…_LAUNCH_COMPLETION_EVENT`.
const EARLY: u32 = 6;
const ENDED: u32 = 7;
const BEGUN: u32 = 12;

/// `CUlaunchAttribute`.
#[repr(C)]
struct Attribute {
    id: u32,
    value: [u64; 8],
}

/// `CUlaunchConfig`.
#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: usize,
    attributes: *const Attribute,
    count: u32,
}

fn places_of(arguments: &[u64]) -> Vec<*mut c_void> {
    arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect()
}

impl Machine<'_> {
    pub(in super::super) fn launch(&self, function: usize, on: Queue, arguments: &[u64]) -> Answer {
        let (is_own, stream) = self.on(on)?;
        self.launch_in(function, is_own, stream, arguments)
    }

    pub(in super::super) fn launch_in(
        &self,
        function: usize,
        is_own: bool,
        stream: usize,
        arguments: &[u64],
    ) -> Answer {
        let mut places = places_of(arguments);
        let places = places.as_mut_ptr();
        if is_own {
            self.api.cuLaunchKernel_ptsz(function, 1, 1, 1, 32, 1, 1, 0, stream, places, 0)
        } else {
            self.api.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, places, 0)
        }
    }

    /// With an event that comes when the kernel has ended, one that comes when it begins, and if it may begin early.
    pub(super) fn launch_besides(
        &self,
        function: usize,
        on: Queue,
        arguments: &[u64],
        (ended, begun, is_early): (Option<u8>, Option<u8>, bool),
    ) -> Answer {
        let (is_own, stream) = self.on(on)?;
        let event = |id: u32, event: Option<u8>| {
            event.map(|event| Ok(Attribute { id, value: [self.event(event)? as u64, 0, 0, 0, 0, 0, 0, 0] })).transpose()
        };
        let early = is_early.then_some(Attribute { id: EARLY, value: [1, 0, 0, 0, 0, 0, 0, 0] });
        let attributes: Vec<Attribute> =
            [event(ENDED, ended)?, event(BEGUN, begun)?, early].into_iter().flatten().collect();
        let config = Config {
            grid: [1; 3],
            block: [32, 1, 1],
            shared: 0,
            stream,
            attributes: attributes.as_ptr(),
            count: u32::try_from(attributes.len()).unwrap_or_default(),
        };
        let mut places = places_of(arguments);
        let config = (&raw const config).expose_provenance();
        if is_own {
            self.api.cuLaunchKernelEx_ptsz(config, function, places.as_mut_ptr(), 0)
        } else {
            self.api.cuLaunchKernelEx(config, function, places.as_mut_ptr(), 0)
        }
    }
}
