//! Handles: what the program calls an object, and what it is called in the copy of the driver that lives now.
//!
//! An object's name is the handle that the program was given when it was made. As long as the copy that made it lives,
//! that is also its handle. After a recovery the object has been made again and has another handle, and each call's
//! arguments are translated, by their types ([`arguments`](super::arguments)).
//!
//! No handle of a living copy is equal to the name of another object: a name is the address of an object of a dead copy,
//! which was alive when the copy died, and whose addresses no other copy gets
//! ([`resources`](super::resources)). An object that ends leaves its name in the table until the next recovery. The driver gives
//! its handle to another one then, which so has that name for the program: whatever the driver writes is named on its way out,
//! that of a new object, too. Who has to know whether an object is new asks what is kept, and not the table.
//!
//! The table changes only while the gate is closed and nobody is inside, so whoever is inside reads it without a lock.
#![expect(unsafe_code, reason = "publishes a table by its address")]

use std::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// Both ways, sorted.
#[derive(Debug, Default)]
struct Table {
    current_by_name: Vec<(usize, usize)>,
    name_by_current: Vec<(usize, usize)>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

fn find(list: &[(usize, usize)], key: usize) -> usize {
    list.binary_search_by_key(&key, |(from, _)| *from).map_or(key, |at| list[at].1)
}

fn table() -> Option<&'static Table> {
    // SAFETY: it was published whole, and is freed only when nobody is inside the gate.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// The handle of an object by its name. What has no other name is called by its handle.
pub(crate) fn current_of(name: usize) -> usize {
    table().map_or(name, |table| find(&table.current_by_name, name))
}

/// The same of one that was made again at the last recovery; `None` for what has ended or was made since.
pub(crate) fn made_again(name: usize) -> Option<usize> {
    let list = &table()?.current_by_name;
    list.binary_search_by_key(&name, |(from, _)| *from).ok().map(|at| list[at].1)
}

/// The name of an object by its handle.
pub(crate) fn name_of(current: usize) -> usize {
    table().map_or(current, |table| find(&table.name_by_current, current))
}

/// Puts another table in place: pairs of a name and a handle.
///
/// # Safety
/// The gate is closed and nobody is inside.
pub(crate) unsafe fn publish(pairs: impl Iterator<Item = (usize, usize)>) {
    let mut current_by_name: Vec<_> = pairs.collect();
    let mut name_by_current: Vec<_> = current_by_name.iter().map(|&(name, current)| (current, name)).collect();
    current_by_name.sort_unstable();
    name_by_current.sort_unstable();
    let next = Box::into_raw(Box::new(Table { current_by_name, name_by_current }));
    let last = TABLE.swap(next, Ordering::AcqRel);
    if !last.is_null() {
        // SAFETY: it was made above in an earlier call, and by the contract nobody reads it.
        drop(unsafe { Box::from_raw(last) });
    }
}

#[cfg(test)]
mod tests {
    use super::{current_of, name_of, publish};

    #[test]
    fn a_name_lasts_and_what_has_none_is_called_by_its_handle() {
        assert_eq!((current_of(7), name_of(7)), (7, 7));
        // SAFETY: no other test reads the table.
        unsafe { publish([(0x900, 0x20), (0x100, 0x10)].into_iter()) };
        assert_eq!([0x100, 0x900, 0x10, 0, 2].map(current_of), [0x10, 0x20, 0x10, 0, 2]);
        assert_eq!([0x10, 0x20, 0x30].map(name_of), [0x100, 0x900, 0x30]);
        // SAFETY: as above.
        unsafe { publish([(0x100, 0x44)].into_iter()) };
        assert_eq!([0x100, 0x900].map(current_of), [0x44, 0x900]);
    }
}
