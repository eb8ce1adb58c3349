//! Which contexts are primary: asked once, since a context that has failed can no longer be asked. And which may reach
//! whose memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::cuda::types::CUdevice;

/// A device's primary context, as the program uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retained {
    /// Its handle; 0 before the program has it.
    pub(crate) context: usize,
    /// How often it is retained. 0 for one of which the program has the handle alone, or which has flags.
    pub(crate) count: u32,
    /// What `cuDevicePrimaryCtxSetFlags` has said.
    pub(crate) flags: Option<u32>,
}

/// Which contexts are primary.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    /// By device. A primary context has the same handle as long as the process lives.
    primary: BTreeMap<CUdevice, usize>,
    others: BTreeSet<usize>,
    retained: BTreeMap<CUdevice, Retained>,
    /// Contexts of green contexts: by handle, which green context's, and of which device.
    green: BTreeMap<usize, (usize, CUdevice)>,
    /// Whose memory which context has enabled access to, and has not disabled since: the owner, and the user.
    peers: BTreeSet<(usize, usize)>,
}

impl Contexts {
    /// Whether it is known what kind of context this is.
    pub(crate) fn is_known(&self, context: usize, device: CUdevice) -> bool {
        self.primary(device) == Some(context) || self.others.contains(&context)
    }

    /// Whether this is a context that something was made in, or a retained one.
    pub(crate) fn has(&self, context: usize) -> bool {
        self.others.contains(&context)
            || self.primary.values().any(|primary| *primary == context)
            || self.retained.values().any(|retained| retained.context == context)
    }

    /// A green context's context.
    pub(crate) fn name_green(&mut self, context: usize, green: usize, device: CUdevice) {
        self.green.insert(context, (green, device));
    }

    /// Whether it is a green context's.
    pub(crate) fn is_green(&self, context: usize) -> bool {
        self.green.contains_key(&context)
    }

    /// A green context ends: its context, and whose primary one may end with it.
    pub(crate) fn take_green(&mut self, green: usize) -> Option<(usize, CUdevice)> {
        let (context, device) = self.green.iter().find(|(_, (of, _))| *of == green).map(|(at, (_, on))| (*at, *on))?;
        self.green.remove(&context);
        Some((context, device))
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

    /// The program has retained a device's context.
    pub(crate) fn retain(&mut self, device: CUdevice, context: usize) {
        let retained = self.retained.entry(device).or_default();
        retained.context = context;
        retained.count += 1;
    }

    /// The program has its handle, by a private function that retains nothing.
    pub(crate) fn name(&mut self, device: CUdevice, context: usize) {
        self.retained.entry(device).or_default().context = context;
    }

    /// The program has released it.
    pub(crate) fn release(&mut self, device: CUdevice) {
        if let Some(retained) = self.retained.get_mut(&device) {
            retained.count = retained.count.saturating_sub(1);
        }
    }

    /// The program has reset it, and must retain it again.
    pub(crate) fn reset(&mut self, device: CUdevice) {
        if let Some(retained) = self.retained.get_mut(&device) {
            retained.count = 0;
        }
    }

    /// The program has set its flags.
    pub(crate) fn set_flags(&mut self, device: CUdevice, flags: u32) {
        self.retained.entry(device).or_default().flags = Some(flags);
    }

    /// All that are retained, have flags, or of which the program has the handle.
    pub(crate) fn retained(&self) -> impl Iterator<Item = (CUdevice, Retained)> {
        self.retained.iter().map(|(&device, &retained)| (device, retained))
    }

    /// `user` has enabled access to the memory of `owner`, or disabled it.
    pub(crate) fn reaches(&mut self, owner: usize, user: usize, does: bool) {
        if does {
            self.peers.insert((owner, user));
        } else {
            self.peers.remove(&(owner, user));
        }
    }

    /// Who has enabled access to whose memory: the owner, and the user.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (usize, usize)> {
        self.peers.iter().copied()
    }

    /// Contexts have other handles now.
    pub(crate) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        self.primary.values_mut().for_each(|context| *context = current(*context));
        self.retained.values_mut().for_each(|retained| retained.context = current(retained.context));
        self.others = self.others.iter().map(|context| current(*context)).collect();
        self.peers = self.peers.iter().map(|(owner, user)| (current(*owner), current(*user))).collect();
    }

    /// A context has ended: another one may get its handle.
    pub(crate) fn forget(&mut self, context: usize) {
        self.others.remove(&context);
        self.primary.retain(|_, of| *of != context);
        self.peers.retain(|(owner, user)| *owner != context && *user != context);
    }
}

#[cfg(test)]
mod tests {
    use super::Contexts;

    const CONTEXT: usize = 0xc0;

    #[test]
    fn a_handle_alone_retains_nothing() {
        let mut contexts = Contexts::default();
        contexts.name(1, CONTEXT);
        assert_eq!(
            contexts.retained().map(|(device, of)| (device, of.context, of.count)).collect::<Vec<_>>(),
            [(1, CONTEXT, 0)]
        );
        contexts.retain(1, CONTEXT);
        contexts.name(1, CONTEXT);
        assert_eq!(contexts.retained().map(|(_, of)| of.count).collect::<Vec<_>>(), [1]);
        contexts.release(1);
        assert_eq!(contexts.retained().map(|(_, of)| (of.context, of.count)).collect::<Vec<_>>(), [(CONTEXT, 0)]);
    }

    #[test]
    fn who_reaches_whom_ends_with_a_disabling_or_either_context() {
        let mut contexts = Contexts::default();
        for (owner, user) in [(1, 2), (2, 1), (1, 3), (3, 2)] {
            contexts.reaches(owner, user, true);
        }
        contexts.reaches(2, 1, false);
        contexts.rename(|context| context * 10);
        assert_eq!(contexts.peers().collect::<Vec<_>>(), [(10, 20), (10, 30), (30, 20)]);
        contexts.forget(30);
        assert_eq!(contexts.peers().collect::<Vec<_>>(), [(10, 20)]);
    }

    #[test]
    fn a_green_contexts_context_is_one_until_that_ends() {
        let mut contexts = Contexts::default();
        contexts.name_green(CONTEXT, 7, 1);
        contexts.name_green(CONTEXT, 7, 1);
        assert!(contexts.is_green(CONTEXT) && !contexts.is_green(7));
        assert_eq!((contexts.take_green(7), contexts.take_green(7)), (Some((CONTEXT, 1)), None));
        assert!(!contexts.is_green(CONTEXT));
    }

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
