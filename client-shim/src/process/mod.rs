//! The ground floor: this process and the system under it, and nothing of CUDA or of the daemon.
//!
//! | file | is about |
//! |---|---|
//! | [`glibc`] | functions of the C library, in versions that glibc 2.17 has |
//! | [`maps`] | what is mapped where |
//! | [`imports`] | what a loaded library imports, led elsewhere |
//! | [`descriptors`] | those of the library, out of the program's way |
//! | [`directory`] | whether what is in the pipe directory may be the daemon's |
//! | [`fork`] | what a forked child must not take for its own |
//! | [`lifeline`] | whether another process lives |
//! | [`log`] | lines on standard error |
//! | [`packets`] | packets with descriptors |
//! | [`pages`] | pages that several processes map |
//! | [`panics`] | panics, which stay inside |
//! | [`passing`] | descriptors that other processes of the user ask for |
//! | [`peek`] | memory by addresses that may be none |
//! | [`settings`] | the environment variables, read when they are needed |
//! | [`silent`] | what stands in the place of a dead driver's descriptors |
//! | [`signals`] | a signal that must end nobody meanwhile |
//! | [`user`], [`who`] | who the program and its user are to the daemon, before it is asked |
//! | [`window`] | moments in which nobody forks |
//! | [`failpoint`] | steps at which a test ends or stops the process |

pub(crate) mod birth;
pub(crate) mod descriptors;
pub(crate) mod directory;
pub(crate) mod failpoint;
pub(crate) mod fork;
pub(crate) mod glibc;
pub(crate) mod imports;
pub(crate) mod lifeline;
pub(crate) mod log;
pub(crate) mod maps;
pub(crate) mod packets;
pub(crate) mod pages;
pub(crate) mod panics;
pub(crate) mod passing;
pub(crate) mod peek;
pub(crate) mod settings;
pub(crate) mod signals;
pub(crate) mod silent;
mod user;
mod who;
pub(crate) mod window;
