//! Who may reach whose memory, of which only is known who has asked for it: here each GPU reaches all memory.
//!
//! Copies between contexts. As documented they come after all that both contexts have, and before all that they are given
//! later: here they wait for both, and are done when the call returns.

use super::transfer::{copy_of_words, words_of_copy};
use crate::abi::{In, entry_points};
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::driver::Driver;
use std::ffi::c_uint;
use std::sync::Arc;

/// Where the contexts stand in `CUDA_MEMCPY3D_PEER`, which is `CUDA_MEMCPY3D` otherwise.
const CONTEXTS: [usize; 2] = [8, 19];

fn copy(words: &[u64; 25], contexts: [usize; 2]) -> Outcome {
    super::capture::unsafe_call()?;
    let (driver, context) = current()?;
    for of in contexts {
        let of = driver.tables().contexts.get(&of).cloned().ok_or(Code::INVALID_CONTEXT)?;
        of.check()?;
        of.drain()?;
    }
    copy_of_words(words)?(&context)
}

/// The current context, and another one on another device.
fn pair(peer: usize) -> Outcome<(&'static Driver, Arc<Context>, Arc<Context>)> {
    let (driver, context) = current()?;
    let peer = driver.tables().contexts.get(&peer).cloned().ok_or(Code::INVALID_CONTEXT)?;
    if peer.device == context.device { Err(Code::INVALID_DEVICE) } else { Ok((driver, context, peer)) }
}

entry_points! {
    fn cuCtxEnablePeerAccess(peer: usize, flags: c_uint) {
        let (driver, context, peer) = pair(peer)?;
        match flags {
            0 if driver.tables().peers.insert((context.handle, peer.handle)) => Ok(()),
            0 => Err(Code::PEER_ACCESS_ALREADY_ENABLED),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuCtxDisablePeerAccess(peer: usize) {
        let (driver, context, peer) = pair(peer)?;
        let was_enabled = driver.tables().peers.remove(&(context.handle, peer.handle));
        if was_enabled { Ok(()) } else { Err(Code::PEER_ACCESS_NOT_ENABLED) }
    }

    fn cuMemcpyPeer(to: usize, to_context: usize, from: usize, from_context: usize, size: usize) {
        copy(&words_of_copy(to, from, size), [from_context, to_context])
    }

    fn cuMemcpy3DPeer(asked: In<[u64; 25]>) {
        let words = asked.get()?;
        let [from, to] = CONTEXTS.map(|at| usize::try_from(words[at]).map_err(|_| Code::INVALID_VALUE));
        copy(&words, [from?, to?])
    }
}
