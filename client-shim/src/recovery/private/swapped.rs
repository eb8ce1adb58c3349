//! Handles of the living copy that stand in a program's memory, in the place of the program's names, while private
//! functions that may read them are called.
//!
//! Calls of several threads may have one structure: the first one puts the handle there, and the last one puts the name
//! back. What the program, or the function, has written there meanwhile stays.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::process::peek;

/// A word that was changed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    name: u64,
    current: u64,
    /// Calls that need it so.
    calls: usize,
}

/// By address.
static CHANGED: Mutex<BTreeMap<u64, Changed>> = Mutex::new(BTreeMap::new());

fn changed() -> MutexGuard<'static, BTreeMap<u64, Changed>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The words that one call needs.
#[derive(Debug, Default)]
pub(super) struct Swapped(Vec<u64>);

impl Swapped {
    /// Has a handle stand at an address for this call, where a name was found that is another one, or where another call
    /// has put it.
    pub(super) fn put(&mut self, address: u64, found: u64, current: u64) {
        // Two arguments may point into one structure.
        if self.0.contains(&address) {
            return;
        }
        let mut changed = changed();
        if let Some(known) = changed.get_mut(&address).filter(|known| [known.name, known.current].contains(&found)) {
            known.calls += 1;
            self.0.push(address);
        } else if current != found && peek::write(address, current) {
            changed.insert(address, Changed { name: found, current, calls: 1 });
            self.0.push(address);
        }
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        let mut changed = changed();
        for address in &self.0 {
            let Some(known) = changed.get_mut(address) else { continue };
            known.calls -= 1;
            if known.calls > 0 {
                continue;
            }
            let mut word = [0];
            if matches!(peek::read(*address, &mut word), Ok(1)) && word[0] == known.current {
                let _left = peek::write(*address, known.name);
            }
            changed.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Swapped;

    const NAME: u64 = 0x1111_0000;
    const CURRENT: u64 = 0x2222_0000;

    /// A word that others may write.
    struct Word(Box<u64>);

    impl Word {
        fn new() -> Self {
            Self(Box::new(NAME))
        }

        fn address(&self) -> u64 {
            (&raw const *self.0).expose_provenance() as u64
        }

        fn value(&self) -> u64 {
            let mut word = [0];
            assert_eq!(super::peek::read(self.address(), &mut word).unwrap(), 1);
            word[0]
        }
    }

    #[test]
    fn a_handle_stands_there_until_the_last_call_that_needs_it_is_over() {
        let word = Word::new();
        let (mut first, mut second) = (Swapped::default(), Swapped::default());
        first.put(word.address(), NAME, CURRENT);
        first.put(word.address(), NAME, CURRENT);
        assert_eq!(word.value(), CURRENT);
        // The second one finds what the first one has put there, which is no name.
        second.put(word.address(), CURRENT, CURRENT);
        drop(first);
        assert_eq!(word.value(), CURRENT);
        drop(second);
        assert_eq!(word.value(), NAME);
    }

    #[test]
    fn what_is_written_meanwhile_stays_and_what_is_no_name_is_left_alone() {
        let word = Word::new();
        let mut swapped = Swapped::default();
        swapped.put(word.address(), NAME, NAME);
        assert_eq!(word.value(), NAME);
        swapped.put(word.address(), NAME, CURRENT);
        assert!(super::peek::write(word.address(), 7));
        drop(swapped);
        assert_eq!(word.value(), 7);
    }
}
