//! Variables of modules after a recovery: where the program knows them, and where the living copy of the driver has them.
//!
//! A driver puts variables into memory of its own, whose place differs from copy to copy (measured with 580.159.04 on an
//! H200), and nothing else can be put at an address there. So the program's addresses are translated, as handles are:
//! where one is an argument of a call, where it stands among a kernel's arguments, and in the nodes of graphs. A kernel's
//! arguments have no types; a word of eight bytes at a multiple of eight that is an address of a moved variable is taken for
//! one. What the program has put into the memory of the GPU nobody can find. It leads to where nothing is mapped in the
//! living copy, since the dead one's mapping there stays reserved, so a kernel that follows it ends with error 700.
//!
//! The table changes only while the gate is closed and nobody is inside, so whoever is inside reads it without a lock.
#![expect(unsafe_code, reason = "publishes a table by its address, and reads a launch's arguments")]

use std::{
    collections::BTreeMap,
    ffi::c_void,
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, Ordering},
    },
};

use super::layout::{Layout, ask_layout};
use crate::cuda::buffer::{self, Buffer};

/// A variable that has another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Its address of before.
    pub(crate) from: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Its address from now on.
    pub(crate) to: u64,
}

/// All of them, by where they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves(Vec<Move>);

impl Moves {
    /// These.
    pub(crate) fn new(mut moves: Vec<Move>) -> Self {
        moves.sort_unstable_by_key(|of| of.from);
        moves.dedup_by_key(|of| of.from);
        Self(moves)
    }

    /// Where they were: addresses and bytes.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().filter_map(|of| Some((usize::try_from(of.from).ok()?, usize::try_from(of.size).ok()?)))
    }

    fn reversed(&self) -> Self {
        Self::new(self.0.iter().map(|of| Move { from: of.to, size: of.size, to: of.from }).collect())
    }

    /// Where an address leads now.
    pub(crate) fn of(&self, address: u64) -> u64 {
        let after = self.0.partition_point(|of| of.from <= address);
        match after.checked_sub(1).map(|at| self.0[at]) {
            Some(of) if address - of.from < of.size => address - of.from + of.to,
            _ => address,
        }
    }

    /// Whether one of the words of eight bytes is to be translated.
    fn concern(&self, bytes: &[u8]) -> bool {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        words.any(|word| self.of(word) != word)
    }

    /// Translates each word of eight bytes.
    pub(crate) fn apply(&self, bytes: &mut [u8]) {
        for word in bytes.chunks_exact_mut(8) {
            let now = self.of(u64::from_ne_bytes((&*word).try_into().unwrap_or_default()));
            word.copy_from_slice(&now.to_ne_bytes());
        }
    }
}

/// Both ways.
#[derive(Debug)]
struct Table {
    current_by_name: Moves,
    name_by_current: Moves,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
/// Of functions of the living copy, as long as none ends.
static LAYOUTS: Mutex<BTreeMap<usize, Option<Layout>>> = Mutex::new(BTreeMap::new());

fn table() -> Option<&'static Table> {
    // SAFETY: it was published whole, and is freed only when nobody is inside the gate.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Whether any has moved.
pub(crate) fn is_any() -> bool {
    table().is_some()
}

/// The address in the living copy, by the program's.
pub(crate) fn current_of(address: u64) -> u64 {
    table().map_or(address, |table| table.current_by_name.of(address))
}

/// The program's address, by that in the living copy.
pub(crate) fn name_of(address: u64) -> u64 {
    table().map_or(address, |table| table.name_by_current.of(address))
}

/// Functions end: others may have their handles, and other arguments.
pub(crate) fn forget_layouts() {
    LAYOUTS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Puts another table in place, with the program's addresses as those of before.
///
/// # Safety
/// The gate is closed and nobody is inside.
pub(crate) unsafe fn publish(moves: Moves) {
    forget_layouts();
    let next = if moves.0.is_empty() {
        ptr::null_mut()
    } else {
        Box::into_raw(Box::new(Table { name_by_current: moves.reversed(), current_by_name: moves }))
    };
    let last = TABLE.swap(next, Ordering::AcqRel);
    if !last.is_null() {
        // SAFETY: it was made above in an earlier call, and by the contract nobody reads it.
        drop(unsafe { Box::from_raw(last) });
    }
}

/// A kernel's arguments with addresses of today.
#[derive(Debug)]
pub(crate) enum Arguments {
    /// One by one.
    Single {
        /// Where each is.
        places: Vec<*mut c_void>,
        /// What some of the places point to.
        _values: Vec<Vec<u64>>,
    },
    /// In a buffer.
    Buffer(Buffer),
}

impl Arguments {
    /// What the driver is given.
    pub(crate) fn list(&self) -> *mut *mut c_void {
        match self {
            Self::Single { places, .. } => places.as_ptr().cast_mut(),
            Self::Buffer(buffer) => buffer.list(),
        }
    }
}

fn layout_of(function: usize) -> Option<Layout> {
    let mut layouts = LAYOUTS.lock().unwrap_or_else(PoisonError::into_inner);
    layouts.entry(function).or_insert_with(|| ask_layout(function)).clone()
}

/// The arguments of a launch of this function of the living copy, if any of them is to be translated.
///
/// # Safety
/// They are the program's arguments for this function, one place for each.
pub(crate) unsafe fn arguments(function: usize, given: *const *mut c_void) -> Option<Arguments> {
    let table = table().filter(|_| !given.is_null())?;
    let layout = layout_of(function)?;
    let argument = |index: usize, size: usize| {
        // SAFETY: by the contract there is a place for each argument.
        let place = unsafe { given.wrapping_add(index).read() }.cast_const().cast::<u8>();
        // SAFETY: by the contract the argument is there.
        if place.is_null() { &[][..] } else { unsafe { std::slice::from_raw_parts(place, size) } }
    };
    let is_moved = |(index, (_, size)): (usize, &(usize, usize))| {
        Some(index).filter(|_| table.current_by_name.concern(argument(index, *size)))
    };
    // Nearly every launch ends here, and nothing was copied for it.
    let first = layout.iter().enumerate().find_map(is_moved)?;
    // SAFETY: by the contract there is a place for each argument.
    let mut places = unsafe { std::slice::from_raw_parts(given, layout.len()) }.to_vec();
    let mut values = Vec::new();
    for index in layout.iter().enumerate().skip(first).filter_map(is_moved) {
        let mut bytes = argument(index, layout[index].1).to_vec();
        table.current_by_name.apply(&mut bytes);
        let mut words = buffer::words(&bytes);
        places[index] = words.as_mut_ptr().cast();
        values.push(words);
    }
    Some(Arguments::Single { places, _values: values })
}

/// The arguments that a launch is given in a buffer, if any of them is to be translated.
///
/// # Safety
/// The program's list, or null.
pub(crate) unsafe fn buffer(extra: *const *mut c_void) -> Option<Arguments> {
    let table = table().filter(|_| !extra.is_null())?;
    // SAFETY: by the contract.
    let given = unsafe { buffer::read(extra) }?;
    table.current_by_name.concern(given).then(|| {
        let mut bytes = given.to_vec();
        table.current_by_name.apply(&mut bytes);
        Arguments::Buffer(Buffer::new(&bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::{Move, Moves, buffer, publish};
    use crate::cuda::buffer::{self as buffers, Buffer};

    #[test]
    fn addresses_in_a_variable_go_with_it_and_no_others() {
        let moves = Moves::new(vec![
            Move { from: 0x5000, size: 0x10, to: 0x9000 },
            Move { from: 0x1000, size: 0x100, to: 0x8000 },
        ]);
        assert_eq!([0xfff, 0x1000, 0x10ff, 0x1100].map(|at| moves.of(at)), [0xfff, 0x8000, 0x80ff, 0x1100]);
        assert_eq!([0x500f, 0x5010, u64::MAX].map(|at| moves.of(at)), [0x900f, 0x5010, u64::MAX]);
        for address in [0x1000, 0x10ff, 0x5008] {
            assert_eq!(moves.reversed().of(moves.of(address)), address);
        }
        assert_eq!(Moves::default().of(7), 7);
    }

    #[test]
    fn words_among_arguments_are_translated_where_they_are_aligned() {
        let moves = Moves::new(vec![Move { from: 0x1000, size: 0x100, to: 0x8000 }]);
        let mut bytes: Vec<u8> = [7_u64, 0x1004, 0x2000].iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend([4, 0x10, 0, 0]);
        assert!(moves.concern(&bytes));
        moves.apply(&mut bytes);
        let expected: Vec<u8> =
            [7_u64, 0x8004, 0x2000].iter().flat_map(|word| word.to_ne_bytes()).chain([4, 0x10, 0, 0]).collect();
        assert_eq!(bytes, expected);
        assert!(!moves.concern(&bytes));
    }

    #[test]
    fn arguments_in_a_buffer_are_copied_only_where_one_of_them_has_moved() {
        let bytes =
            |words: [u64; 2]| words.iter().flat_map(|word| word.to_ne_bytes()).chain([9, 9]).collect::<Vec<u8>>();
        let [given, other] = [bytes([7, 0x1004]), bytes([7, 0x2000])];
        // SAFETY: no other test reads the table.
        unsafe { publish(Moves::new(vec![Move { from: 0x1000, size: 0x100, to: 0x8000 }])) };
        // SAFETY: the lists are whole.
        let [moved, unmoved] = [&given, &other].map(|bytes| unsafe { buffer(Buffer::new(bytes).list()) });
        // SAFETY: as above, and null is no list.
        assert!(unmoved.is_none() && unsafe { buffer(std::ptr::null()) }.is_none());
        let list = moved.as_ref().expect("one has moved").list();
        // SAFETY: as above.
        assert_eq!(unsafe { buffers::read(list) }, Some(bytes([7, 0x8004]).as_slice()));
        // SAFETY: as above.
        unsafe { publish(Moves::default()) };
    }
}
