//! What the daemon shows of itself.

pub mod http;
pub mod journal;
pub mod log;
mod log_file;
mod log_stream;
pub(crate) mod metrics;
pub mod rate;
pub mod recorder;
pub(crate) mod trace;
