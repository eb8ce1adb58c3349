//! Cubins as `ptxas` makes them, and others.

use super::{MIN_STACK_SIZE, STO_ENTRY, WITH_VALUE, note_stacks};
use crate::made::{BITS, FUNCTION, GLOBAL, LOCAL, NO_BITS, Section, Symbol, WRITABLE, cubin};
use crate::{Contents, Gpus, Place, UNKNOWN_STACK};

fn contents(sections: &[Section<'_>], symbols: &[Symbol<'_>]) -> Contents {
    Contents::of(&cubin(sections, symbols), &Gpus::default())
}

fn names(contents: &Contents) -> Vec<(&str, Place)> {
    contents.variables.iter().map(|(name, place)| (name.as_str(), *place)).collect()
}

#[test]
fn variables_and_constants_are_found_by_their_symbols() {
    let sections = [
        (".text.k", BITS, 6, 128),
        (".nv.constant4", BITS, 2, 8),
        (".nv.constant3", BITS, 2, 16),
        (".nv.global.init", BITS, WRITABLE, 27),
        (".nv.shared.k", NO_BITS, WRITABLE, 64),
        (".nv.global", NO_BITS, WRITABLE, 21),
    ];
    let symbols = [
        ("k", FUNCTION, 0x10, 1, 0, 128),
        ("scale", GLOBAL, 0, 3, 0, 16),
        ("table", LOCAL, 0, 4, 0, 16),
        ("begun", GLOBAL, 0, 4, 16, 4),
        ("$str$1", LOCAL, 0, 4, 20, 7),
        ("counter", GLOBAL, 0, 6, 0, 4),
        ("many", LOCAL, 0, 6, 4, 16),
        ("_ZN2_1E", LOCAL, 0, 6, 20, 1),
        ("vprintf", FUNCTION, 0, 0, 0, 0),
    ];
    let found = contents(&sections, &symbols);
    let expected = [
        ("_ZN2_1E", Place::Global),
        ("begun", Place::Global),
        ("counter", Place::Global),
        ("many", Place::Global),
        ("scale", Place::Constant),
        ("table", Place::Global),
    ];
    assert_eq!(names(&found), expected);
    assert_eq!((found.unread.len(), found.has_heap, found.is_fixed()), (0, false, false));
    assert_eq!(found.bytes, 57);
}

#[test]
fn code_with_constants_and_messages_alone_is_fixed() {
    let sections = [(".nv.constant3", BITS, 2, 4), (".nv.global.init", BITS, WRITABLE, 7), (".nv.global", 8, 3, 0)];
    let message = ("$str", LOCAL, 0, 2, 0, 7);
    assert!(contents(&sections, &[("scale", GLOBAL, 0, 1, 0, 4), message]).is_fixed());
    assert!(contents(&[(".text.k", BITS, 6, 128)], &[]).is_fixed());
    // A variable of the program's may be called so, and whoever knows its name may write it.
    assert!(!contents(&sections, &[("$str", GLOBAL, 0, 2, 0, 7)]).is_fixed());
}

#[test]
fn managed_variables_and_the_heap_are_known() {
    let sections = [(".nv.global", NO_BITS, WRITABLE, 8)];
    let managed = contents(&sections, &[("m", GLOBAL, 4, 1, 0, 8)]);
    assert_eq!(names(&managed), [("m", Place::Managed)]);
    let heap = contents(&[(".text.k", BITS, 6, 128)], &[("malloc", FUNCTION, 0, 0, 0, 0)]);
    assert!(heap.has_heap && !heap.is_fixed());
    assert!(contents(&[(".text.malloc", BITS, 6, 8)], &[("malloc", FUNCTION, 0, 1, 0, 8)]).is_fixed(), "its own");
}

#[test]
fn kernels_say_how_much_stack_they_need() {
    let record = |layout: u8, what: u8, value: &[u8]| {
        let length = if layout == WITH_VALUE { u16::try_from(value.len()).unwrap() } else { 7 };
        [&[layout, what][..], &length.to_le_bytes(), value].concat()
    };
    let stack = |symbol: u32, bytes: u32| {
        record(WITH_VALUE, MIN_STACK_SIZE, &[symbol.to_le_bytes(), bytes.to_le_bytes()].concat())
    };
    // The symbols' numbers begin with 1.
    let records = [stack(1, 0), record(3, 0x50, &[]), stack(2, 4096), stack(3, UNKNOWN_STACK), stack(5, 64)].concat();
    let mut stacks = std::collections::BTreeMap::new();
    note_stacks(&records, &mut stacks);
    assert_eq!(stacks, [(1, 0), (2, 4096), (3, UNKNOWN_STACK), (5, 64)].into());
    for length in 0..records.len() {
        // One that is cut off ends it.
        let mut cut = std::collections::BTreeMap::new();
        note_stacks(&records[..length], &mut cut);
        assert!(cut.iter().all(|(symbol, bytes)| stacks.get(symbol) == Some(bytes)));
    }
}

#[test]
fn a_kernel_of_which_nothing_is_said_may_need_any() {
    let entry = |name| (name, FUNCTION, STO_ENTRY, 1, 0, 128);
    let found = contents(&[(".text.k", BITS, 6, 128)], &[entry("k"), ("f", FUNCTION, 0, 1, 0, 8)]);
    assert_eq!(found.stacks, [("k".to_owned(), UNKNOWN_STACK)].into());
    assert_eq!((found.stack("k"), found.stack("f")), (UNKNOWN_STACK, 0));
    assert_eq!(Contents::unread("why").stack("k"), UNKNOWN_STACK);
}

#[test]
fn a_kernel_that_nobody_asks_for_may_be_launched_by_another() {
    // What is said of the first symbol lies behind the file's header.
    let said = [&[WITH_VALUE, MIN_STACK_SIZE, 8, 0][..], &1_u32.to_le_bytes(), &16_u32.to_le_bytes()].concat();
    let sections = [(".nv.info", BITS, 0, 12), (".text.k", BITS, 6, 128)];
    let stacks = |called| {
        let symbols = [("k", FUNCTION, STO_ENTRY, 2, 0, 128), (called, FUNCTION, 0, 0, 0, 0)];
        let mut image = cubin(&sections, &symbols);
        image[64..76].copy_from_slice(&said);
        Contents::of(&image, &Gpus::default()).stacks
    };
    assert_eq!(stacks("vprintf"), [("k".to_owned(), 16)].into());
    for launch in ["cudaLaunchDevice", "cudaGetParameterBuffer", "__cudaCDP2LaunchDeviceV2"] {
        assert_eq!(stacks(launch), [("k".to_owned(), UNKNOWN_STACK)].into(), "{launch}");
    }
}

#[test]
fn what_has_no_symbol_or_is_not_known_is_said_by_name() {
    let global = (".nv.global", NO_BITS, WRITABLE, 1 << 20);
    let unread = |sections: &[Section<'_>], symbols: &[Symbol<'_>]| {
        contents(sections, symbols).unread.into_iter().collect::<Vec<_>>().join("; ")
    };
    assert_eq!(unread(&[global], &[]), "bytes of .nv.global without a symbol");
    assert_eq!(unread(&[global], &[("a", GLOBAL, 0, 1, 0, 8)]), "bytes of .nv.global without a symbol");
    assert_eq!(unread(&[(".nv.new", NO_BITS, WRITABLE, 8)], &[]), "section .nv.new");
    assert_eq!(unread(&[(".nv.new", NO_BITS, 2, 8)], &[]), "", "nobody writes it");
    assert!(unread(&[global], &[("f", FUNCTION, 0, 1, 0, 1 << 20)]).contains("symbol \"f\" in .nv.global"));
}

#[test]
fn what_cannot_be_read_is_said_by_name() {
    let whole = cubin(&[(".nv.global", NO_BITS, WRITABLE, 4)], &[("a", GLOBAL, 0, 1, 0, 4)]);
    let unread = |image: &[u8]| {
        let found = Contents::of(image, &Gpus::default());
        assert!(!found.is_fixed());
        found.unread.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(unread(&whole), Vec::<String>::new());
    assert_eq!(unread(&whole[..whole.len() - 1]), ["a cubin that cannot be read"]);
    assert_eq!(unread(&whole[..4]), ["a cubin that cannot be read"]);
    let mut other = whole.clone();
    other[18] = 62;
    assert_eq!(unread(&other), ["an ELF file that is no cubin"]);
    let mut empty = whole;
    empty[40..48].fill(0);
    empty[60..62].fill(0);
    assert_eq!(unread(&empty), ["a cubin without sections"]);
}
