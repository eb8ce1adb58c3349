//! One file a socket, process or device: everything that touches the outside.

pub(crate) mod append;
pub(crate) mod blocking;
pub mod daemonize;
pub(crate) mod discard;
#[cfg(test)]
pub(crate) mod ends;
pub(crate) mod folder;
pub(crate) mod foreign_files;
pub(crate) mod join_link;
pub(crate) mod joined_place;
pub(crate) mod listener_owner;
pub mod log_fifo;
pub(crate) mod mode_records;
pub(crate) mod notify;
pub(crate) mod packets;
pub(crate) mod process;
pub(crate) mod program_defaults;
pub mod reaper;
pub mod runtime_dir;
pub(crate) mod seqpacket;
pub(crate) mod server_link;
pub mod server_process;
pub(crate) mod server_stderr;
pub(crate) mod server_version;
pub(crate) mod state_folder;
mod umask;
