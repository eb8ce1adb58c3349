//! The control daemon that replaces `nvidia-cuda-mps-control`.

pub mod core;
pub mod devices;
pub mod io;
