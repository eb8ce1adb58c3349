//! How much work there is in sum: what was given, what is not known to be done, and what is lost with it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kept::work::places;

/// All work of a context, by name, is done: it was waited for while the gate was closed.
pub(crate) fn finished_context(name: usize) {
    places::of(name).for_each(|(_, place)| place.counts().complete_all());
}

/// How many streams have work that is not known to be done. Nobody gives any meanwhile: the gate is closed.
pub(crate) fn busy() -> usize {
    places::used().filter(|(_, place)| place.counts().is_busy()).count()
}

/// Calls of functions of which nobody knows whether they give work.
static ASIDE: AtomicU64 = AtomicU64::new(0);

/// Such a call begins.
pub(crate) fn aside() {
    ASIDE.fetch_add(1, Ordering::SeqCst);
}

/// How much work there has been so far. It is another number from each call on that gives some, or may.
pub(crate) fn given() -> u64 {
    places::given().wrapping_add(ASIDE.load(Ordering::SeqCst))
}

/// Streams with work that is not known to be done, by name and with their contexts, as far as other threads can name
/// them; 0 is a context's default stream.
pub(crate) fn busy_streams() -> Vec<(usize, usize)> {
    places::used().filter(|(_, place)| place.counts().is_busy()).filter_map(|(_, place)| place.named()).collect()
}

/// How many pieces of work are not known to be done. The gate is closed.
pub(crate) fn lost() -> u64 {
    places::used().map(|(_, place)| place.counts().open()).sum()
}
