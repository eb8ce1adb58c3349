//! What each thread has in the driver: its stack of contexts, and what it was told.
//!
//! A copy of the driver knows nothing of the stacks that the one before it had. So they are noted here, by name, and put
//! on the new copy's when a thread comes in again.

use std::cell::{Cell, RefCell};

use super::{effects::Effect, names};
use crate::api::types::CUcontext;

thread_local! {
    /// Contexts by name, the current one last.
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// Of which copy of the driver this thread has been in last; `None` if it has been in none.
    static GENERATION: Cell<Option<u64>> = const { Cell::new(None) };
    /// In which copy it has been first.
    static FIRST: Cell<u64> = const { Cell::new(0) };
    /// Up to which recovery it was told of lost work.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Works on the stack. A thread that is ending has none.
fn with<T: Default>(work: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    STACK
        .try_with(|stack| stack.try_borrow_mut().map(|mut stack| work(&mut stack)).unwrap_or_default())
        .unwrap_or_default()
}

/// The current context by name, 0 if there is none.
pub(super) fn current() -> usize {
    with(|stack| stack.last().copied()).unwrap_or(0)
}

/// A context, by its handle, was made current in place of the one that is.
pub(crate) fn set(context: usize) {
    let name = names::name_of(context);
    with(|stack| {
        stack.pop();
        stack.extend((name != 0).then_some(name));
    });
}

/// A context was put on top.
pub(crate) fn push(context: usize) {
    let name = names::name_of(context);
    with(|stack| stack.push(name));
}

/// The top was taken off.
pub(crate) fn pop() {
    with(|stack| stack.truncate(stack.len().saturating_sub(1)));
}

/// A context was destroyed: where it is current it is taken off.
pub(crate) fn destroyed(context: usize) {
    let name = names::name_of(context);
    with(|stack| {
        if stack.last() == Some(&name) {
            stack.pop();
        }
    });
}

/// Brings this thread to the copy of this number: its stack is put there.
pub(super) fn arrive(generation: u64) {
    let before = GENERATION.replace(Some(generation));
    if before == Some(generation) {
        return;
    }
    if before.is_none() {
        // What was before its time others were told.
        FIRST.set(generation);
        TOLD.set(generation);
        return;
    }
    for (depth, name) in with(|stack| stack.clone()).into_iter().enumerate() {
        let context = CUcontext(names::current_of(name));
        // A context that cannot be made current is missed by the call that follows, which says so.
        let _refused = if depth == 0 {
            driver!(context::cuCtxSetCurrent(context))
        } else {
            driver!(context::cuCtxPushCurrent_v2(context))
        };
    }
}

/// Whether this thread was there before the recovery of this number and has not been told of it. It is told now, if the
/// call is one that tells.
pub(super) fn is_owed(lossy: u64, effect: Effect) -> bool {
    let is_owed = TOLD.get() < lossy && effect != Effect::Silent;
    if is_owed {
        TOLD.set(lossy);
    }
    is_owed
}

/// Whether this thread had not been there before the recovery of this number.
pub(super) fn came_after(lossy: u64) -> bool {
    FIRST.get() >= lossy
}

/// This thread was told of the recovery of this number.
pub(super) fn told(generation: u64) {
    TOLD.set(TOLD.get().max(generation));
}
