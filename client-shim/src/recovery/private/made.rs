//! What private functions have made and given to the program by its address.
//!
//! Nothing is known of such an object but who has made it. One that was made without any handle, and in which none is
//! found, is the host's alone: after a recovery the copy that has made it goes on with it, since a dead copy's code and
//! memory stay. One that was made of a handle, or holds one, belongs to what is no more: a call with it is refused.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::cuda::copies;

/// Objects that are remembered.
const MOST: usize = 4096;

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// The copy of the driver that has made it.
    pub(super) generation: u64,
    /// Whether a handle was passed when it was made.
    pub(super) is_of_handle: bool,
    /// Whether one was found in it.
    pub(super) holds_handle: bool,
}

impl Object {
    /// Whether a copy that is dead can go on with it.
    pub(super) const fn is_hosts_alone(self) -> bool {
        !self.is_of_handle && !self.holds_handle
    }
}

#[derive(Debug, Default)]
struct Made {
    objects: BTreeMap<u64, Object>,
    /// Where each stub led in a copy that is dead and has made objects.
    targets: BTreeMap<u64, Vec<usize>>,
}

static MADE: Mutex<Made> = Mutex::new(Made { objects: BTreeMap::new(), targets: BTreeMap::new() });

fn made() -> MutexGuard<'static, Made> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object at an address.
pub(super) fn at(address: u64) -> Option<Object> {
    made().objects.get(&address).copied()
}

/// Remembers an object; whether there is room. The copy that made it is never unloaded.
pub(super) fn remember(address: u64, object: Object) -> bool {
    copies::is_shown();
    let mut made = made();
    let has_room = made.objects.len() < MOST || made.objects.contains_key(&address);
    if has_room {
        made.objects.insert(address, object);
    }
    has_room
}

/// An object was given back, by what has become of its memory. What no other copy must ever see stays, since its memory
/// may have changed for another reason.
pub(super) fn forget(address: u64) {
    let mut made = made();
    if made.objects.get(&address).is_some_and(|object| object.is_hosts_alone()) {
        made.objects.remove(&address);
    }
}

/// A copy of the driver has lived until now, and its stubs have led there.
pub(crate) fn ended(generation: u64, targets: &[usize]) {
    let mut made = made();
    if made.objects.values().any(|object| object.generation == generation) {
        made.targets.insert(generation, targets.to_vec());
    }
}

/// Where a stub led in a copy of the driver that is dead.
pub(super) fn target(generation: u64, stub: usize) -> Option<usize> {
    made().targets.get(&generation)?.get(stub).copied().filter(|target| *target != 0)
}

#[cfg(test)]
mod tests {
    use super::{MOST, Object, at, ended, forget, remember, target};

    const HOSTS: Object = Object { generation: 3, is_of_handle: false, holds_handle: false };

    /// One test, since there is one list.
    #[test]
    fn objects_are_remembered_with_the_copy_that_made_them_until_they_are_given_back() {
        assert!(remember(0x10_0000, HOSTS));
        let of_handle = Object { is_of_handle: true, ..HOSTS };
        assert!(remember(0x20_0000, of_handle));
        ended(2, &[1, 2]);
        ended(3, &[0x30, 0]);
        assert_eq!((target(2, 0), target(3, 0), target(3, 1), target(3, 2)), (None, Some(0x30), None, None));
        forget(0x10_0000);
        forget(0x20_0000);
        assert_eq!((at(0x10_0000), at(0x20_0000)), (None, Some(of_handle)));
        assert!((1..MOST as u64).all(|number| remember(number << 32, HOSTS)));
        assert!(!remember(5, HOSTS) && remember(1 << 32, of_handle), "known ones may change");
    }
}
