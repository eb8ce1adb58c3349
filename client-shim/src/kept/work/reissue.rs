//! Work that may still be on its way and could be done again, with `MPS_SHIM_REISSUE`, and `mps_shim_idempotent`.
//!
//! The last copies, sets and launches are noted. When a fault of somebody else's ends the context and *all* work that
//! is not known to be done is noted, the recovery does it again, one piece after the other in the order in which
//! it was given, and the program hears of nothing. Each piece may have run in full, in part or not at all before, so that
//! is only right if
//!
//! - no piece writes what itself or one before it reads: a copy would then be of what it has made of its source;
//! - nothing that is known to be done was given after the first of them: doing an older piece again would undo it;
//! - no memory was freed or mapped since, so that each address means what it did.
//!
//! | piece | again |
//! |---|---|
//! | sets, in one dimension | yes |
//! | copies within the device | yes |
//! | copies from the host, up to 64 KiB | with the bytes as they were |
//! | `cuLaunchKernel` of a kernel that the program has said to be idempotent | with its arguments as they were |
//! | anything else: copies to the host, whose destination may be freed by now, graphs, host functions | never, and then nothing is |
//!
//! What does not fit is forgotten, oldest first, and then nothing is done again either.
#![expect(unsafe_code, reason = "reads a launch's arguments, calls the driver, and exports a C function")]

mod operation;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{CStr, c_char, c_int},
    ptr,
};

use super::progress;
use crate::cuda::{
    layout::{Layout, ask_layout},
    names,
};
use crate::process::panics::unpanicked;
use crate::{
    cuda::{functions::Function, types::CUcontext},
    kept::{KEPT, is_kept, recipes},
    process::settings,
};
use operation::{Operation, Span};

/// Most pieces.
const MOST: usize = 1024;
/// Most bytes of all pieces.
const MOST_BYTES: usize = 4 << 20;
/// Most kernels that are idempotent, and the longest name of one.
const MOST_KERNELS: usize = 4096;
const LONGEST_NAME: usize = 4096;

/// A piece of work.
#[derive(Clone, Debug)]
struct Entry {
    /// Which of all pieces it is, of those that cannot be done again too.
    order: u64,
    /// Its place and number.
    piece: (usize, u64),
    operation: Operation,
}

/// The last pieces of work, and what is known of kernels.
#[derive(Debug, Default)]
pub(crate) struct Reissue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// How many pieces there were, and how often memory was freed.
    order: u64,
    idempotent: BTreeSet<Vec<u8>>,
    /// By name of the function; `None` for those that are not idempotent.
    layouts: BTreeMap<usize, Option<Layout>>,
}

fn reissue<T>(work: impl FnOnce(&mut Reissue) -> T) -> T {
    KEPT.reissue.with(work)
}

/// Whether any are noted.
pub(crate) fn is_on() -> bool {
    settings::is_reissuing()
}

/// Whether a function takes an address from what had it.
fn is_freeing(name: &[u8]) -> bool {
    [&b"cuMemFree"[..], b"cuMemUnmap", b"cuMemMap", b"cuMemAddressFree", b"cuModuleUnload", b"cuLibraryUnload"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A call has succeeded; the piece of work that it has given, if any. `numbers` are its arguments.
pub(crate) fn note(called: &'static Function, piece: Option<(usize, u64)>, numbers: &dyn Fn() -> Vec<u64>) {
    let name = called.name.to_bytes();
    let Some(piece) = piece else {
        if is_freeing(name) {
            reissue(|reissue| {
                reissue.order += 1;
                reissue.layouts.clear();
            });
        }
        return;
    };
    let operation = Operation::of(name, &numbers(), launch);
    reissue(|reissue| reissue.add(piece, operation));
}

/// A launch with its arguments, if its kernel is idempotent and the driver tells what they are.
fn launch(numbers: &[u64]) -> Option<Operation> {
    let &[function, gx, gy, gz, bx, by, bz, shared, _stream, places, extra] = numbers else { return None };
    let function = usize::try_from(function).ok()?;
    let layout = layout_of(function)?;
    if extra != 0 || (places == 0 && !layout.is_empty()) {
        return None;
    }
    let places: *const *const u8 = ptr::with_exposed_provenance(usize::try_from(places).ok()?);
    let argument = |(at, (_, size)): (usize, &(usize, usize))| {
        // SAFETY: the driver has just read as many places there.
        let place = unsafe { places.wrapping_add(at).read() };
        // SAFETY: the driver has just read so many bytes there.
        unsafe { std::slice::from_raw_parts(place, *size) }.to_vec()
    };
    let arguments = layout.iter().enumerate().map(argument).collect();
    let mut shape = [0; 7];
    for (to, from) in shape.iter_mut().zip([gx, gy, gz, bx, by, bz, shared]) {
        *to = u32::try_from(from).ok()?;
    }
    Some(Operation::Launch { function, shape, arguments })
}

/// Where the arguments of an idempotent kernel lie.
fn layout_of(function: usize) -> Option<Layout> {
    let known = reissue(|reissue| reissue.layouts.get(&function).cloned());
    if let Some(known) = known {
        return known;
    }
    let current = names::current_of(function);
    let name = recipes(|recipes| recipes.kernel_name(current).map(|name| name.to_bytes().to_vec())).ok()?;
    let is_idempotent = name.is_some_and(|name| reissue(|reissue| reissue.idempotent.contains(&name)));
    let layout = if is_idempotent { ask_layout(current) } else { None };
    reissue(|reissue| reissue.layouts.insert(function, layout.clone()));
    layout
}

impl Reissue {
    fn add(&mut self, piece: (usize, u64), operation: Option<Operation>) {
        self.order += 1;
        let Some(operation) = operation else { return };
        let size = operation.size();
        if self.entries.len() >= MOST || self.bytes + size > MOST_BYTES {
            self.entries.retain(|entry| progress::is_open(entry.piece));
            self.bytes = self.entries.iter().map(|entry| entry.operation.size()).sum();
        }
        while self.entries.len() >= MOST || self.bytes + size > MOST_BYTES {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.operation.size();
        }
        self.bytes += size;
        self.entries.push_back(Entry { order: self.order, piece, operation });
    }

    /// What is open, if there are so many pieces, and nothing else has come since the first of them.
    fn open(&self, count: u64) -> Option<Vec<Entry>> {
        let open: Vec<Entry> = self.entries.iter().filter(|entry| progress::is_open(entry.piece)).cloned().collect();
        let first = open.first()?.order;
        let is_all = open.len() as u64 == count && self.order - first + 1 == count;
        (is_all && !has_hazard(&open)).then_some(open)
    }
}

/// Whether a piece writes what itself or one before it reads.
fn has_hazard(entries: &[Entry]) -> bool {
    let spans: Vec<_> = entries.iter().map(|entry| entry.operation.spans()).collect();
    spans.iter().enumerate().any(|(at, (read, _))| {
        let meets = |(base, size): Span| {
            let (from, bytes) = read.unwrap_or((0, 0));
            from < base.saturating_add(size) && base < from.saturating_add(bytes)
        };
        spans[at..].iter().filter_map(|(_, written)| *written).any(meets)
    })
}

/// Work to be done again.
#[derive(Debug)]
pub(crate) struct Open(Vec<Entry>);

/// All work that is not known to be done, if all of it can be done again. The gate is closed.
pub(crate) fn take() -> Option<Open> {
    let open = reissue(|reissue| reissue.open(progress::lost()))?;
    let is_kept = |span: Option<Span>| span.is_none_or(|(base, size)| size == 0 || is_kept(base, size));
    let is_there = |entry: &Entry| {
        let (read, written) = entry.operation.spans();
        is_kept(read) && is_kept(written)
    };
    (is_on() && open.iter().all(is_there)).then_some(Open(open))
}

impl Open {
    /// Does all of it in the copy that has just been made, and says how much that was; `None` if the driver refuses.
    pub(crate) fn redo(mut self) -> Option<u64> {
        let mut is_done = true;
        for entry in &mut self.0 {
            let context = CUcontext(names::current_of(progress::context_of(entry.piece.0)));
            is_done = driver!(context::cuCtxSetCurrent(context)).is_success()
                && entry.operation.redo().is_success()
                && driver!(context::cuCtxSynchronize()).is_success();
            if !is_done {
                break;
            }
        }
        let _nothing_to_do = driver!(context::cuCtxSetCurrent(CUcontext(0)));
        is_done.then_some(self.0.len() as u64)
    }
}

/// Everything in it is of the past.
pub(crate) fn forget() {
    reissue(|reissue| {
        reissue.entries.clear();
        reissue.layouts.clear();
        reissue.bytes = 0;
    });
}

/// Notes that all kernels of this name may be launched again.
///
/// # Safety
/// A C string, or null.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "called from outside"))]
unsafe extern "C" fn mps_shim_idempotent(kernel: *const c_char) -> c_int {
    if kernel.is_null() {
        return 1;
    }
    // SAFETY: by the contract.
    let name = unsafe { CStr::from_ptr(kernel) }.to_bytes().to_vec();
    let noted = unpanicked(|| {
        reissue(|reissue| {
            let is_sound = (1..=LONGEST_NAME).contains(&name.len()) && reissue.idempotent.len() < MOST_KERNELS;
            if is_sound {
                reissue.idempotent.insert(name);
                reissue.layouts.clear();
            }
            is_sound
        })
    });
    c_int::from(noted != Some(true))
}

#[cfg(test)]
mod tests {
    use super::{Entry, MOST, MOST_BYTES, Operation, Reissue, has_hazard};

    fn entry(operation: Operation) -> Entry {
        Entry { order: 0, piece: (0, 0), operation }
    }

    fn set(to: u64, count: u64) -> Operation {
        Operation::Set { to, value: 0, element: 4, count }
    }

    fn copy(to: u64, from: u64, bytes: u64) -> Operation {
        Operation::Copy { to, from, bytes }
    }

    #[test]
    fn what_would_copy_what_was_made_of_its_source_is_a_hazard() {
        let is = |operations: &[Operation]| has_hazard(&operations.iter().cloned().map(entry).collect::<Vec<_>>());
        assert!(!is(&[set(0, 10), copy(100, 0, 40), set(200, 4)]));
        assert!(is(&[copy(100, 0, 40), set(36, 1)]), "the source is set later");
        assert!(is(&[copy(20, 0, 40)]), "it writes into its own source");
        assert!(!is(&[set(36, 1), copy(100, 0, 40)]), "the source is set before");
        assert!(is(&[copy(100, 0, 40), copy(200, 100, 40), copy(8, 200, 4)]));
        assert!(!is(&[copy(100, 0, 40), set(40, 1)]));
    }

    #[test]
    fn it_is_bounded_in_pieces_and_bytes() {
        let mut reissue = Reissue::default();
        for number in 1..=(MOST as u64 + 5) {
            reissue.add((1000, number), Some(set(0, 1)));
        }
        assert_eq!((reissue.entries.len(), reissue.entries[0].piece.1, reissue.order), (MOST, 6, MOST as u64 + 5));
        for number in 0..100 {
            reissue.add((1000, 5000 + number), Some(Operation::Write { to: 0, bytes: vec![0; 60 << 10] }));
        }
        assert!(reissue.bytes <= MOST_BYTES, "{}", reissue.bytes);
        assert_eq!(reissue.bytes, reissue.entries.iter().map(|entry| entry.operation.size()).sum::<usize>());
    }

    #[test]
    fn only_the_whole_end_of_all_work_can_be_done_again() {
        let mut reissue = Reissue::default();
        reissue.add((1001, 1), Some(set(0, 1)));
        reissue.add((1001, 2), Some(set(8, 1)));
        assert_eq!(reissue.open(2).map(|open| open.len()), Some(2));
        assert!(reissue.open(3).is_none(), "there is work that is not in it");
        reissue.order += 1;
        assert!(reissue.open(2).is_none(), "memory was freed, or something given that is done");
    }
}
