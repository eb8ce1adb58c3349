//! Parts packed in every way that is known, and in none.

use super::{CUBIN, LZ4, OLDER, SEVERAL, TEXT, ZSTANDARD, parts};
use crate::made::{BITS, GLOBAL, NO_BITS, WRITABLE, cubin, fat, lz4, part, part_with};
use crate::{Contents, Gpus};

/// A cubin with a variable of this name.
fn with(name: &str) -> Vec<u8> {
    cubin(&[(".nv.global", NO_BITS, WRITABLE, 4)], &[(name, GLOBAL, 0, 1, 0, 4)])
}

fn without() -> Vec<u8> {
    cubin(&[(".text.k", BITS, 6, 16)], &[])
}

fn found(image: &[u8], gpu: u32) -> Result<Vec<String>, Vec<String>> {
    let contents = Contents::of(image, &Gpus::new(vec![gpu]));
    let names = contents.variables.keys().cloned().collect();
    if contents.unread.is_empty() { Ok(names) } else { Err(contents.unread.into_iter().collect()) }
}

/// A frame of Zstandard with one block that is not compressed, by RFC 8878.
fn zstandard(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short");
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend(length.to_le_bytes());
    frame.extend(&((length << 3) | 1).to_le_bytes()[..3]);
    frame.extend(bytes);
    frame
}

#[test]
fn parts_are_unpacked_by_each_way_that_is_known() {
    let image = with("counter");
    for (flags, packed) in [(0, image.clone()), (LZ4, lz4(&image)), (ZSTANDARD, zstandard(&image))] {
        let whole = fat(&[part(CUBIN, 90, flags | 0x11, &packed, image.len())]);
        assert_eq!(found(&whole, 90), Ok(vec!["counter".to_owned()]), "{flags:#x}");
        let all = parts(&whole).expect("it is whole");
        let unpacked = all[0].unpacked().expect("it is known");
        assert_eq!(unpacked[..image.len()], image, "with padding where it was not packed");
    }
}

#[test]
fn what_cannot_be_unpacked_is_said_by_name() {
    let image = with("counter");
    let packed = lz4(&image);
    let why = |flags: u64, packed: &[u8], length: usize| {
        found(&fat(&[part(CUBIN, 90, flags, packed, length)]), 90).expect_err("it is wrong").concat()
    };
    assert_eq!(why(OLDER, &packed, image.len()), "a part of a fat binary that is packed in an unknown way");
    assert_eq!(why(LZ4 | ZSTANDARD, &packed, image.len()), "a part of a fat binary that is packed in an unknown way");
    assert_eq!(why(LZ4, &packed, image.len() + 1), "a part of a fat binary that cannot be unpacked");
    assert_eq!(why(LZ4, &packed, image.len() - 1), "a part of a fat binary that cannot be unpacked");
    assert_eq!(why(ZSTANDARD, &packed, image.len()), "a part of a fat binary that cannot be unpacked");
    assert_eq!(why(LZ4, &packed, usize::MAX), "a part of a fat binary that is too long");
    assert_eq!(why(0, b"\x7fELF", 4), "a cubin that cannot be read");
    let unknown = fat(&[part(8, 90, 0, &image, 0), part(CUBIN, 90, 0, &without(), 0)]);
    assert_eq!(found(&unknown, 90), Err(vec!["a part of a fat binary of kind 8".to_owned()]));
    let whole = fat(&[part(CUBIN, 90, 0, &image, 0)]);
    for cut in [1, 8, whole.len() - 17, whole.len() - 16] {
        let cut = &whole[..whole.len() - cut];
        assert_eq!(found(cut, 90), Err(vec!["a fat binary that cannot be read".to_owned()]), "{}", cut.len());
    }
}

#[test]
fn what_another_gpu_is_meant_by_does_not_count() {
    let text = b".version 8.0\n.target sm_80\n.global .u32 of_text;\n\0";
    let whole = fat(&[
        part(CUBIN, 80, 0, &with("of_80"), 0),
        part(CUBIN, 86, 0, &with("of_86"), 0),
        part(CUBIN, 100, OLDER, &with("of_100"), 0),
        part(TEXT, 80, 0, text, 0),
    ]);
    let names = |list: &[&str]| Ok(list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(found(&whole, 80), names(&["of_80"]));
    assert_eq!(found(&whole, 89), names(&["of_80", "of_86"]), "either may be taken");
    assert_eq!(found(&whole, 90), names(&["of_text"]), "there is none for it but the text");
    assert!(found(&whole, 103).is_err(), "its own cannot be unpacked");
    let all = Contents::of(&whole, &Gpus::default());
    assert_eq!((all.variables.len(), all.unread.len()), (3, 1), "for a GPU of which nothing is known");
}

#[test]
fn several_cubins_in_one_part_are_told_apart_by_its_table() {
    let (first, second) = (with("first"), with("second"));
    let entry = |architecture: u32, start: usize, length: usize| {
        let mut entry = part(CUBIN, architecture, 0x11, &[], 0);
        entry[4..8].copy_from_slice(&u32::try_from(start).expect("short").to_le_bytes());
        entry[8..16].copy_from_slice(&(length as u64).to_le_bytes());
        entry
    };
    let head = |count: u32| [count.to_le_bytes(), 0x88_u32.to_le_bytes()].concat();
    let entries = [entry(80, 0, first.len()), entry(90, first.len(), second.len())].concat();
    let bytes = [first.clone(), second].concat();
    let packed = lz4(&bytes);
    let made = |table: &[u8]| fat(&[part_with(SEVERAL, 0, LZ4, &packed, bytes.len(), table)]);
    let whole = made(&[head(2), entries.clone()].concat());
    assert_eq!(found(&whole, 80), Ok(vec!["first".to_owned()]));
    assert_eq!(found(&whole, 90), Ok(vec!["second".to_owned()]));
    assert_eq!(found(&whole, 100), Ok(Vec::new()));
    assert!(found(&made(&[head(3), entries].concat()), 90).is_err(), "the table is too short");
    let beyond = entry(90, first.len(), bytes.len());
    assert!(found(&made(&[head(1), beyond].concat()), 90).is_err(), "one is not there");
}
