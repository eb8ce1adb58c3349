//! What a program keeps outlives the program: what it may say of that, and how it takes over what another has left.
//!
//! ```text
//!  keep: a slab comes or goes ──changed()──► link (a thread) ══ socket `shim` ══► daemon and holder
//!  mps_state_…: a question   ──ask()─────►        ◄── answers, within a deadline
//! ```
//! Nothing goes there unless `MPS_SHIM_NAME` names the program for its successors and memory is kept (`MPS_SHIM_KEEP`).
//! The [link](crate::daemon::link) begins with the first memory that is kept, on a thread of its own which takes no
//! signals, so that no call of the program waits for the daemon; without a daemon, or with one that knows no vault, it
//! tries again now and then and is silent. A forked child has no memory that is kept.
//!
//! | part | does |
//! |---|---|
//! | [`commits`] | `mps_state_…`: what a program can ask for, in C |
//! | [`shadow`] | copies of ranges as they were at a commit |
//! | [`adopt`] | maps what a predecessor left, at the same addresses |
//! | [`process_end`] | a program that ends well leaves nothing behind; one that does not says why to who started it |

mod adopt;
mod commits;
mod process_end;
mod shadow;

use std::{sync::atomic::Ordering, time::Duration};

use crate::process::settings::succession::is_named;
use crate::{
    cuda::piece::Piece,
    daemon::{
        link::{self, CHANGES, Link},
        news,
    },
    kept,
    process::descriptors,
};

/// How long an allocation may wait for memory that the vault is letting go of.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// Memory is kept in this process from now on.
pub(crate) fn begin() {
    link::give(pieces);
    descriptors::on_change(changed);
    process_end::prepare();
}

/// A piece of memory has come or gone.
fn changed() {
    if !is_named() || !kept::is_on() {
        return;
    }
    CHANGES.fetch_add(1, Ordering::AcqRel);
    if let Some(link) = linked() {
        link.wake();
    }
}

/// The link of this process, started if need be; `None` if nothing of it outlives it, or there can't be one.
fn linked() -> Option<&'static Link> {
    if is_named() && kept::is_on() { link::linked() } else { None }
}

/// The link of this process, if it has one for what outlives it.
fn started() -> Option<&'static Link> {
    if is_named() { link::started() } else { None }
}

/// What there is for the vault. The descriptors are copied under the store's lock.
fn pieces(is_wanted: &dyn Fn(u64) -> bool, most: usize) -> Option<Vec<Piece>> {
    kept::outside(is_wanted, most).ok()
}

/// Memory is short: waits until the vault has let go of what the program has freed. Without a link it does nothing.
pub(crate) fn settle() {
    if let Some(shared) = started()
        && shared.progress().is_connected
    {
        let _in_time = shared.settle(RELEASE_PATIENCE);
    }
}

/// What the report says of the vault; `None` without a link.
pub(crate) fn report() -> Option<String> {
    let (progress, (server, state)) = (started()?.progress(), news::said());
    let why = progress.why.map_or_else(|| "null".to_owned(), |why| format!("\"{why}\""));
    Some(format!(
        r#"{{"is_connected":{},"connections":{},"kept":{},"kept_bytes":{},"escrows":{},"refused":{},"why":{why},"server":{},"server_state":{}}}"#,
        progress.is_connected,
        progress.connections,
        progress.kept,
        progress.bytes,
        progress.escrows,
        progress.refused,
        server,
        state.0,
    ))
}

/// Ranges that the program has registered as no longer written, address and size.
pub(crate) fn constant_ranges() -> Vec<(u64, u64)> {
    if started().is_some() { commits::constant_ranges() } else { Vec::new() }
}
