//! Sessions of the command line.

pub(super) mod conversation;
pub(super) mod rights;
