//! Launches by a configuration, with attributes.
//!
//! As documented: an event of a launch has no time. One of attribute 12, and one of 7 that says so, comes when the kernel
//! begins, any other one of 7 when all its blocks have ended. A kernel that may begin before the one in front of it has
//! ended need not. All other attributes are taken and do nothing.

use super::launch::launch;
use super::per_thread::own;
use crate::abi::{In, entry_points};
use crate::codes::{Code, Outcome};
use crate::driver::driver;
use std::ffi::c_uint;

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`, `…_LAUNCH_COMPLETION_EVENT`.
const PROGRAMMATIC_EVENT: c_uint = 7;
const COMPLETION_EVENT: c_uint = 12;

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_memory: c_uint,
    stream: usize,
    attributes: usize,
    count: c_uint,
}

/// `CUlaunchAttribute`: the number, and the words of its value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: c_uint,
    value: [u64; 8],
}

impl Config {
    /// The events that come when the kernel begins, and when it has ended.
    fn events(&self) -> Outcome<[Vec<usize>; 2]> {
        let (attributes, driver) = (In::<Attribute>::placed(self.attributes), driver()?);
        let [mut at_begin, mut at_end] = [Vec::new(), Vec::new()];
        for index in 0..self.count as usize {
            let Attribute { id, value } = attributes.at(index)?;
            let comes = match id {
                COMPLETION_EVENT => &mut at_begin,
                // The second half of this word says that it comes when the blocks begin.
                PROGRAMMATIC_EVENT if value[1] >> 32 != 0 => &mut at_begin,
                PROGRAMMATIC_EVENT => &mut at_end,
                _ => continue,
            };
            let event = usize::try_from(value[0]).map_err(|_| Code::INVALID_VALUE)?;
            // With which error one that has a time is refused is assumed.
            if super::event::find(driver, event)?.has_time {
                return Err(Code::INVALID_VALUE);
            }
            comes.push(event);
        }
        Ok([at_begin, at_end])
    }
}

fn launch_in(config: &Config, function: usize, stream: usize, arguments: &In<*const u8>, extra: &In<usize>) -> Outcome {
    if !extra.is_absent() {
        return Err(Code::NOT_SUPPORTED);
    }
    let ([x, y, z], [width, height, depth]) = (config.grid, config.block);
    let shape = [x, y, z, width, height, depth, config.shared_memory];
    let [at_begin, at_end] = config.events()?;
    launch(function, shape, stream, arguments, [&at_begin, &at_end])
}

entry_points! {
    fn cuLaunchKernelEx(config: In<Config>, function: usize, arguments: In<*const u8>, extra: In<usize>) {
        let config = config.get()?;
        launch_in(&config, function, config.stream, &arguments, &extra)
    }

    fn cuLaunchKernelEx_ptsz(config: In<Config>, function: usize, arguments: In<*const u8>, extra: In<usize>) {
        let config = config.get()?;
        launch_in(&config, function, own(config.stream), &arguments, &extra)
    }
}
