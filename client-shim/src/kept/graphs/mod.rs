//! Graphs and executable graphs: what they are made of is noted as the program makes and changes them, so that a fresh
//! copy of the driver can be given the same.
//!
//! A graph is described by the driver's own answers ([`describe`]): whole when a capture has ended or it was cloned, and
//! node by node while a program builds it. An edit changes what is known by what it says, and nothing else of the graph is
//! read again. An executable graph does what its graph did when it was made, and what it was
//! told since ([`plan`]). What cannot be described is counted as not recoverable, with the reason, until it is destroyed.
//!
//! Not told by the driver is in which context a copy or a set is done ([`places`]). Of a capture it is taken to be the one
//! that is current when the capture ends.

mod build;
pub(crate) mod describe;
mod execute;
pub(crate) mod known;
mod places;
pub(crate) mod plan;
mod queries;
mod users;

use super::keeping::{Room, is_on};
use crate::{cuda::call::Bypass, process::settings};
use known::Graphs;

pub(crate) use build::*;
pub(crate) use execute::*;
pub(crate) use queries::*;
pub(crate) use users::user_object;

static GRAPHS: Room<Graphs> = Room::new();

/// Works on the graphs, if more is kept than memory.
pub(crate) fn graphs<T>(work: impl FnOnce(&mut Graphs) -> T) -> Result<T, Bypass> {
    if settings::is_recording() && is_on() { Ok(GRAPHS.with(work)) } else { Err(Bypass::NotKeeping) }
}
