//! The control daemon that replaces `nvidia-cuda-mps-control`.
//!
//! | module | is |
//! |---|---|
//! | [`app`] | the program from its first to its last line |
//! | [`cli`], [`ui`] | options and texts; the command line's side of a session |
//! | [`settings`] | environment and configuration file |
//! | [`core`] | every decision, without I/O |
//! | [`doctor`] | looks for what is wrong with MPS on this machine |
//! | [`stop`] | ends clients without harm to others: the command `stop-client` |
//! | [`driver`] | the one task that feeds the core and performs its effects |
//! | [`io`], [`devices`], [`holder`] | sockets, processes, files; GPUs; the process that survives this one |
//! | [`observe`] | logs, the event journal, metrics, health |
//! | [`report`] | what the commands of ours are answered, from a picture of the daemon |
//! | [`failpoint`], [`patience`] | where tests kill the daemon; how long it waits for others in them |
//! | [`run`] | programs that are started again when a fault has ended them |
//! | [`vault`] | where programs give their GPU memory into the daemon's keeping |
//! | [`witness`] | what tells of faults, of ends, and of who a process is |
//! | [`sys`] | the system calls that need unsafe code |

pub mod app;
pub mod cli;
pub mod core;
pub mod devices;
pub mod doctor;
pub mod driver;
pub mod failpoint;
pub mod holder;
pub mod io;
pub mod observe;
pub mod patience;
pub mod report;
pub mod run;
pub mod settings;
pub mod stop;
pub mod sys;
pub mod ui;
pub mod vault;
pub mod witness;
