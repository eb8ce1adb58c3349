//! Which contexts are primary: asked once, since a context that has failed can no longer be asked.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::types::CUdevice;

/// Which contexts are primary.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// By device. A primary context has the same handle as long as the process lives.
    primary: BTreeMap<CUdevice, usize>,
    others: BTreeSet<usize>,
}

impl Contexts {
    /// Whether it is known what kind of context this is.
    pub(crate) fn is_known(&self, context: usize, device: CUdevice) -> bool {
        self.primary(device) == Some(context) || self.others.contains(&context)
    }

    /// Notes what kind of context this is.
    pub(crate) fn learn(&mut self, context: usize, device: CUdevice, is_primary: bool) {
        if is_primary {
            self.primary.insert(device, context);
        } else {
            self.others.insert(context);
        }
    }

    /// A device's primary context.
    pub(crate) fn primary(&self, device: CUdevice) -> Option<usize> {
        self.primary.get(&device).copied()
    }

    /// A context has ended: another one may get its handle.
    pub(crate) fn forget(&mut self, context: usize) {
        self.others.remove(&context);
        self.primary.retain(|_, of| *of != context);
    }
}

#[cfg(test)]
mod tests {
    use super::Contexts;

    const CONTEXT: usize = 0xc0;

    #[test]
    fn a_context_is_asked_once_what_kind_it_is() {
        let mut contexts = Contexts::default();
        assert!(!contexts.is_known(CONTEXT, 0));
        contexts.learn(CONTEXT, 0, true);
        contexts.learn(CONTEXT + 1, 0, false);
        assert_eq!((contexts.primary(0), contexts.primary(1)), (Some(CONTEXT), None));
        assert!(contexts.is_known(CONTEXT, 0) && contexts.is_known(CONTEXT + 1, 0));
        contexts.forget(CONTEXT);
        contexts.forget(CONTEXT + 1);
        assert!(!contexts.is_known(CONTEXT, 0) && !contexts.is_known(CONTEXT + 1, 0));
    }
}
