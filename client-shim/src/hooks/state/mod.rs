//! What a program keeps outlives the program: what it may say of that, and how it takes over what another has left.
//!
//! ```text
//!  keep: a slab comes or goes ──changed()──► link (a thread) ══ socket `shim` ══► daemon and holder
//!  mps_state_…: a question   ──ask()─────►        ◄── answers, within a deadline
//! ```
//! There is no link unless `MPS_SHIM_NAME` names the program for its successors and memory is kept (`MPS_SHIM_KEEP`). It
//! begins with the first memory that is kept, on a thread of its own ([`crate::daemon::link`]) which takes no signals, so that no call
//! of the program waits for the daemon; without a daemon, or with one that knows no vault, it tries again now and then
//! and is silent. A forked child has none: the fork page does not know of it there, its copy of the socket is closed by
//! the handler for forks, and the daemon would not take it for its parent.
//!
//! | part | does |
//! |---|---|
//! | [`commits`] | `mps_state_…`: what a program can ask for, in C |
//! | [`shadow`] | copies of ranges as they were at a commit |
//! | [`adopt`] | maps what a predecessor left, at the same addresses |
//! | [`farewell`] | a program that ends well leaves nothing behind; one that does not says why to who started it |

mod adopt;
mod commits;
mod farewell;
mod shadow;

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
    time::{Duration, SystemTime},
};

use crate::process::panics::unpanicked;
use crate::process::settings::succession::{self, is_named};
use crate::{
    cuda::piece::Piece,
    daemon::link::{CHANGES, Link, Shared},
    keep,
    process::{descriptors, fork, glibc},
};

/// The word of the fork page that belongs to the process.
const PROCESS: usize = 0;
/// The link has been started in this process.
const LINKED: u32 = 1 << 16;
/// How long an allocation may wait for memory that the vault is letting go of.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// Memory is kept in this process from now on.
pub(crate) fn begin() {
    descriptors::on_change(changed);
    farewell::prepare();
}

/// A piece of memory has come or gone.
fn changed() {
    if !is_named() || !keep::is_on() {
        return;
    }
    CHANGES.fetch_add(1, Ordering::AcqRel);
    if let Some(shared) = linked() {
        shared.wake();
    }
}

/// The link of this process, started if need be; `None` if there is to be none, or can't be.
fn linked() -> Option<&'static Shared> {
    if !is_named() || !keep::is_on() {
        return None;
    }
    if fork::remember(PROCESS, LINKED) & LINKED == 0 {
        if fork::recall(PROCESS) & LINKED == 0 {
            // A process that can't tell itself from its children has no link.
            return None;
        }
        start();
    }
    started()
}

/// The link of this process, if it has one.
#[expect(unsafe_code, reason = "what is shared with the link is never freed")]
fn started() -> Option<&'static Shared> {
    if fork::recall(PROCESS) & LINKED == 0 {
        return None;
    }
    // SAFETY: it is either null or a box that was leaked.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

fn start() {
    let Some((name, shared)) = succession::name().zip(Shared::new()) else { return };
    let shared: &'static Shared = Box::leak(Box::new(shared));
    let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let salt = u64::from(std::process::id() ^ nanoseconds.rotate_left(7) ^ (1 << 31));
    let link = Link::new(shared, pieces, name, salt);
    if glibc::detached_thread(Box::new(move || {
        // Without the link nothing more is kept outside; everything else goes on.
        let _ended = unpanicked(|| link.work());
    })) {
        SHARED.store(ptr::from_ref(shared).cast_mut(), Ordering::Release);
    }
}

/// What there is for the vault. The descriptors are copied under the store's lock.
fn pieces(is_wanted: &dyn Fn(u64) -> bool, most: usize) -> Option<Vec<Piece>> {
    keep::outside(is_wanted, most).ok()
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
    let progress = started()?.progress();
    let why = progress.why.map_or_else(|| "null".to_owned(), |why| format!("\"{why}\""));
    Some(format!(
        r#"{{"is_connected":{},"connections":{},"kept":{},"kept_bytes":{},"escrows":{},"refused":{},"why":{why},"server":{},"server_state":{}}}"#,
        progress.is_connected,
        progress.connections,
        progress.kept,
        progress.bytes,
        progress.escrows,
        progress.refused,
        progress.server,
        progress.state,
    ))
}

/// Ranges that the program has registered as no longer written, address and size.
pub(crate) fn constant_ranges() -> Vec<(u64, u64)> {
    if started().is_some() { commits::constant_ranges() } else { Vec::new() }
}
