//! What the daemon shows of itself.

pub mod log;
mod log_file;
mod log_stream;
pub mod rate;
pub mod trace;
