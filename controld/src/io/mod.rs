//! One file a socket, process or device: everything that touches the outside.

pub mod append;
pub mod blocking;
pub mod daemonize;
#[cfg(test)]
pub(crate) mod ends;
pub mod folder;
pub mod guests;
pub(crate) mod listener_of;
pub mod log_fifo;
pub mod mode_records;
pub mod notify;
pub mod process;
pub mod reaper;
pub mod runtime_dir;
pub mod seqpacket;
pub mod server_link;
pub mod server_process;
pub mod server_stderr;
pub mod server_version;
mod umask;
mod unwanted;
