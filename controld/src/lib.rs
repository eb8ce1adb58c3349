//! The control daemon that replaces `nvidia-cuda-mps-control`.
//!
//! | module | is |
//! |---|---|
//! | [`run_program`] | the program from its first to its last line |
//! | [`cli`], [`ui`] | options and texts; the command line's side of a session |
//! | [`settings`] | environment and configuration file |
//! | [`core`] | every decision, without I/O |
//! | [`doctor`] | looks for what is wrong with MPS on this machine |
//! | [`explain`] | one page on one fault: the command `explain` |
//! | [`stop`] | ends clients without harm to others: the command `stop-client` |
//! | [`thin`] | a claim's daemon, which has joined the one of its node: the option `--join` |
//! | [`top`] | domains, servers and clients on a screen: the command `top` |
//! | [`driver`] | the one task that feeds the core and performs its effects |
//! | [`nearest`] | what a word that is not known was perhaps meant to be |
//! | [`io`], [`devices`], [`holder`] | sockets, processes, files; GPUs; the process that survives this one |
//! | [`observe`] | logs, the event journal, metrics, health |
//! | [`report`] | what the commands of ours are answered, from a picture of the daemon |
//! | [`failpoint`], [`patience`] | where tests kill the daemon; how long it waits for others in them |
//! | [`run`] | programs that are started again when a fault has ended them |
//! | [`door`] | the preload library's door: memory into the daemon's keeping, news of servers out |
//! | [`witness`] | what tells of faults, of ends, and of who a process is |
//! | [`sys`] | the system calls that need unsafe code |
//!
//! It is a program: what is public is [`run_program`] and, in [`parts`], what the tests, the benchmark and the programs
//! of `integration` drive by itself. So the compiler tells what nobody uses.

mod app;
mod cli;
mod core;
mod devices;
mod doctor;
mod door;
mod driver;
mod explain;
mod failpoint;
mod holder;
mod io;
mod nearest;
mod observe;
mod patience;
mod report;
mod run;
mod settings;
mod stop;
mod sys;
mod thin;
mod top;
mod ui;
mod witness;

pub mod parts;

pub use app::run as run_program;
