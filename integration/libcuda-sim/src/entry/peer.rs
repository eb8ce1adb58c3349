//! Copies between contexts. As documented they come after all that both contexts have, and before all that they are given
//! later: here they wait for both, and are done when the call returns.

use super::transfer::{copy_of_words, words_of_copy};
use crate::abi::{In, entry_points};
use crate::codes::{Code, Outcome};
use crate::contexts::current;

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

entry_points! {
    fn cuMemcpyPeer(to: usize, to_context: usize, from: usize, from_context: usize, size: usize) {
        copy(&words_of_copy(to, from, size), [from_context, to_context])
    }

    fn cuMemcpy3DPeer(asked: In<[u64; 25]>) {
        let words = asked.get()?;
        let [from, to] = CONTEXTS.map(|at| usize::try_from(words[at]).map_err(|_| Code::INVALID_VALUE));
        copy(&words, [from?, to?])
    }
}
