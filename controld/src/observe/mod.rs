//! What the daemon shows of itself.

pub(crate) mod cluster;
pub(crate) mod http;
mod incidents;
pub(crate) mod journal;
pub(crate) mod log;
mod log_file;
mod log_stream;
pub(crate) mod metrics;
pub(crate) mod rate;
pub(crate) mod recorder;
pub(crate) mod trace;
