//! What private functions have made and given to the program by its address.
//!
//! Nothing is known of such an object but who has made it. One that was made without any handle, and in which none is
//! found, is the host's alone: after a recovery the copy that has made it goes on with it, and its code and memory stay as
//! long as the program has one of them. One that was made of a handle, or holds one, belongs to what is no more: a call with
//! it is refused. So its copy is not needed for it, and is unloaded; the page in the copy's heap where the object lies
//! stays as it is, since whoever has got it may read there. cuBLAS 13 gets such objects anew in every copy ("context
//! queries", functions 39 and 51, with 580.159.04), and never gives them back.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::cuda::resources;

/// Objects of one copy that are remembered.
const MOST: usize = 4096;
/// Those of all copies.
const MOST_OF_ALL: usize = 16 * MOST;

/// So much of an object in a heap stays as it is: how large one is, nobody knows.
const PAGE: usize = 4096;

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

impl Made {
    fn count(&self) {
        COUNT.store(self.objects.len(), Ordering::Relaxed);
    }

    fn of(&self, generation: u64) -> impl Iterator<Item = (&u64, &Object)> {
        self.objects.iter().filter(move |(_, object)| object.generation == generation)
    }

    fn has_room_for(&self, object: Object) -> bool {
        let all = self.objects.len();
        all < MOST || all < MOST_OF_ALL && self.of(object.generation).count() < MOST
    }
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
    /// Dead copies that have made objects, by their numbers.
    dead: BTreeMap<u64, Dead>,
}

/// A copy that is dead.
#[derive(Debug)]
struct Dead {
    /// Where each stub led in it.
    targets: Vec<usize>,
    /// Calls that are in it.
    calls: usize,
}

static MADE: Mutex<Made> = Mutex::new(Made { objects: BTreeMap::new(), dead: BTreeMap::new() });

fn made() -> MutexGuard<'static, Made> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many objects are remembered.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The object at an address.
pub(super) fn at(address: u64) -> Option<Object> {
    made().objects.get(&address).copied()
}

/// Remembers an object; whether there is room. The copy that made it stays loaded as long as it is remembered.
pub(super) fn remember(address: u64, object: Object) -> bool {
    let mut made = made();
    let has_room = made.objects.contains_key(&address) || made.has_room_for(object);
    if has_room {
        made.objects.insert(address, object);
        made.count();
    }
    has_room
}

/// An object was given back, by what has become of its memory. What no other copy must ever see stays, since its memory
/// may have changed for another reason.
pub(super) fn forget(address: u64) {
    let mut made = made();
    if made.objects.get(&address).is_some_and(|object| object.is_hosts_alone()) {
        made.objects.remove(&address);
        made.count();
    }
}

/// A copy of the driver gives memory back to its heap: what was there is no more.
pub(crate) fn is_freed(address: usize) {
    if COUNT.load(Ordering::Relaxed) > 0 {
        let mut made = made();
        made.objects.remove(&(address as u64));
        made.count();
    }
}

/// A copy of the driver has lived until now, and its stubs have led there.
pub(crate) fn ended(generation: u64, targets: &[usize]) {
    let mut made = made();
    if made.of(generation).next().is_some() {
        made.dead.insert(generation, Dead { targets: targets.to_vec(), calls: 0 });
    }
}

/// Whether a copy that is dead may be unloaded, as far as it is for this module to say: none of what it has made alone is
/// there any more, and no call is in it. From then on there can be none. What lies in its heap and stays there: where each
/// begins, and its bytes.
///
/// # Errors
/// What it is needed for, in words.
pub(crate) fn lets_go(generation: u64) -> Result<Vec<(usize, usize)>, String> {
    let mut made = made();
    let (mut needed, mut staying) = (0, Vec::new());
    for (address, object) in made.of(generation) {
        let address = usize::try_from(*address).unwrap_or_default();
        if object.is_hosts_alone() || !resources::is_in_a_heap(address) {
            needed += 1;
        } else {
            staying.push((address, PAGE));
        }
    }
    let calls = made.dead.get(&generation).map_or(0, |dead| dead.calls);
    if needed > 0 || calls > 0 {
        return Err(format!("objects that its private functions have made: {needed}, calls of these in it: {calls}"));
    }
    made.dead.remove(&generation);
    Ok(staying)
}

/// A call of a copy that is dead, which is not unloaded meanwhile.
#[derive(Debug)]
pub(super) struct Call {
    generation: u64,
    /// Where the stub led.
    pub(super) target: usize,
}

impl Call {
    /// Begins one; `None` where the copy has no such function, or is unloaded.
    pub(super) fn begin(generation: u64, stub: usize) -> Option<Self> {
        let mut made = made();
        let dead = made.dead.get_mut(&generation)?;
        let target = dead.targets.get(stub).copied().filter(|target| *target != 0)?;
        dead.calls += 1;
        Some(Self { generation, target })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(dead) = made().dead.get_mut(&self.generation) {
            dead.calls -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, MOST, Object, at, ended, forget, is_freed, lets_go, remember};

    const HOSTS: Object = Object { generation: 3, is_of_handle: false, holds_handle: false };

    fn target(generation: u64, stub: usize) -> Option<usize> {
        Call::begin(generation, stub).map(|call| call.target)
    }

    /// One test, since there is one list.
    #[test]
    fn objects_are_remembered_with_the_copy_that_made_them_until_they_are_given_back() {
        assert!(remember(0x10_0000, HOSTS));
        let of_handle = Object { generation: 4, is_of_handle: true, ..HOSTS };
        assert!(remember(0x20_0000, of_handle));
        ended(2, &[1, 2]);
        ended(3, &[0x30, 0]);
        ended(4, &[0x40]);
        assert_eq!((target(2, 0), target(3, 0), target(3, 1), target(3, 2)), (None, Some(0x30), None, None));
        assert!(lets_go(2).is_ok() && lets_go(3).is_err() && lets_go(4).is_err());
        let call = Call::begin(3, 0).expect("it has the function");
        forget(0x10_0000);
        forget(0x20_0000);
        assert_eq!((at(0x10_0000), at(0x20_0000)), (None, Some(of_handle)));
        let why = lets_go(3).expect_err("a call is in it");
        assert_eq!(why, "objects that its private functions have made: 0, calls of these in it: 1");
        drop(call);
        assert!(lets_go(3).is_ok() && lets_go(4).is_err());
        assert_eq!(target(3, 0), None, "it is unloaded");
        is_freed(0x20_0000);
        assert!(at(0x20_0000).is_none() && lets_go(4).is_ok(), "its memory was given back");
        assert!((1..=MOST as u64).all(|number| remember(number << 32, HOSTS)));
        assert!(!remember(5, HOSTS) && remember(1 << 32, of_handle), "known ones may change");
        assert!(remember(5, Object { generation: 5, ..HOSTS }), "another copy has room of its own");
    }
}
