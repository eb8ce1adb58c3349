//! The control daemon that replaces `nvidia-cuda-mps-control`.

pub mod cli;
pub mod core;
pub mod devices;
pub mod holder;
pub mod io;
pub mod observe;
pub mod sys;
pub mod ui;
