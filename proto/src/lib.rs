//! Wire types: NVIDIA's MPS control packets ([`mps`]), the text commands and their exact answers ([`admin`]).
//!
//! Nothing here does I/O, reads a clock or knows the daemon: bytes in, values out, and back. Every number that a peer
//! sends is an open enum ([`open_enum!`]), so an unknown value is a value and never undefined behaviour or a panic.
#![forbid(unsafe_code)]

pub mod admin;
pub mod holder;
pub mod join;
pub mod mps;
pub mod notice;
mod open_enum;
pub mod sentinel;
pub mod shim;
pub mod who;
