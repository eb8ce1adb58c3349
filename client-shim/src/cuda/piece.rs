//! GPU memory that one descriptor holds, as those know it who keep it and those who give it away.

use std::ffi::c_int;

use crate::process::descriptors::Held;

/// A piece of memory that is held by one descriptor.
#[derive(Debug)]
pub(crate) struct Piece {
    /// A number that no other one has, or had.
    pub(crate) serial: u64,
    /// Ordinal of its device.
    pub(crate) device: c_int,
    /// Bytes.
    pub(crate) size: u64,
    /// Where all of it is mapped; 0 if it is not, or in parts.
    pub(crate) address: u64,
    /// A copy of its descriptor, for those that are wanted.
    pub(crate) copy: Option<Held>,
}
