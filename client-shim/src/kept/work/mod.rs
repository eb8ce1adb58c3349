//! Work that was given to the GPU: how far it is known to have come, what it may have written, what can be done again.

pub(crate) mod doubt;
pub(crate) mod progress;
pub(crate) mod reissue;
