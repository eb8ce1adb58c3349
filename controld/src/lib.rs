//! The control daemon that replaces `nvidia-cuda-mps-control`.
//!
//! | module | is |
//! |---|---|
//! | [`app`] | the program from its first to its last line |
//! | [`cli`], [`ui`] | options and texts; the command line's side of a session |
//! | [`settings`] | environment and configuration file |
//! | [`core`] | every decision, without I/O |
//! | [`driver`] | the one task that feeds the core and performs its effects |
//! | [`io`], [`devices`], [`holder`] | sockets, processes, files; GPUs; the process that survives this one |
//! | [`observe`] | logs |
//! | [`failpoint`] | where tests kill the daemon |
//! | [`sys`] | the system calls that need unsafe code |

pub mod app;
pub mod cli;
pub mod core;
pub mod devices;
pub mod driver;
pub mod failpoint;
pub mod holder;
pub mod io;
pub mod observe;
pub mod settings;
pub mod sys;
pub mod ui;
