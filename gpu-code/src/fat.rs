//! Fat binaries: a header, then parts, each with a header of its own.
//!
//! | of the whole | at | | of a part | at |
//! |---|---|---|---|---|
//! | 0xba55ed50 | 0 | | what it is: 1 a text, 2 a cubin, 256 several cubins in one | 0 |
//! | its header's length | 6 | | its header's length | 4 |
//! | length of all parts | 8 | | its length in the file | 8 |
//! | | | | its length as compressed, without padding | 16 |
//! | | | | where a table or an option begins in its header | 20 |
//! | | | | architecture: 80 for `sm_80` | 28 |
//! | | | | flags: 0x2000 compressed by LZ4, 0x8000 by Zstandard, 0x1000 in an older way | 40 |
//! | | | | its length when it is unpacked | 56 |
//!
//! Several cubins in one have a table: how many, its length, then for each what it is, where it begins (at 4) and its
//! length (at 8), 64 bytes each, as in a part's header.
//!
//! The driver takes the cubin for the same generation, or a text for an earlier GPU where there is none. Parts for other
//! generations are not unpacked; of the others nobody here knows which one it takes, so what any has counts.

use std::borrow::Cow;

use crate::{Contents, FAT, cubin, text};

/// What a part is: a text.
pub const TEXT: u16 = 1;
const CUBIN: u16 = 2;
const SEVERAL: u16 = 256;

/// Flags that say how a part is packed.
const OLDER: u64 = 0x1000;
const LZ4: u64 = 0x2000;
const ZSTANDARD: u64 = 0x8000;

/// Longest part that is unpacked, in bytes, and how many times as long as when it was packed.
const LONGEST: u64 = 1 << 29;
const MOST_GAIN: u64 = 1024;
/// Length of a part's header without what some have behind it, and of an entry in a table.
const HEADER: usize = 64;

/// Compute capabilities of the GPUs that a module may be made for, as in `sm_90`: 90. None for any GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus(Vec<u32>);

impl Gpus {
    /// These.
    #[must_use]
    pub fn new(capabilities: Vec<u32>) -> Self {
        Self(capabilities)
    }

    /// Whether a cubin for this architecture runs on any.
    fn run(&self, architecture: u32) -> bool {
        self.0.is_empty() || self.0.iter().any(|of| of / 10 == architecture / 10 && *of >= architecture)
    }

    /// Whether a text for this architecture can be compiled for any.
    fn can_compile(&self, architecture: u32) -> bool {
        self.0.is_empty() || self.0.iter().any(|of| *of >= architecture)
    }

    /// Whether all have a cubin among these.
    fn are_served(&self, architectures: &[u32]) -> bool {
        let serves = |of: &u32, architecture: &u32| Self(vec![*of]).run(*architecture);
        !self.0.is_empty() && self.0.iter().all(|of| architectures.iter().any(|at| serves(of, at)))
    }
}

/// A part of a fat binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// What it is.
    pub kind: u16,
    /// The architecture that it is for.
    pub architecture: u32,
    /// How it is packed.
    pub flags: u64,
    header: &'a [u8],
    packed: &'a [u8],
    length: u64,
}

/// Numbers in a header.
fn small(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn middle(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn large(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A part of the bytes, where it is as long as somebody says.
fn piece(bytes: &[u8], start: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

impl<'a> Part<'a> {
    /// The first of these bytes, and the rest.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let header = piece(bytes, 0, middle(bytes, 4)?.into()).filter(|header| header.len() >= HEADER)?;
        let (_, behind) = bytes.split_at_checked(header.len())?;
        let all = piece(behind, 0, large(header, 8)?)?;
        let (_, rest) = behind.split_at_checked(all.len())?;
        let flags = large(header, 40)?;
        let is_packed = flags & (OLDER | LZ4 | ZSTANDARD) != 0;
        // What is not packed ends with padding, which harms nobody.
        let packed = if is_packed { piece(all, 0, middle(header, 16)?.into())? } else { all };
        let length = if is_packed { large(header, 56)? } else { large(header, 8)? };
        let part = Self { kind: small(header, 0)?, architecture: middle(header, 28)?, flags, header, packed, length };
        Some((part, rest))
    }

    /// What is in it.
    ///
    /// # Errors
    /// Why it cannot be unpacked.
    pub fn unpacked(&self) -> Result<Cow<'a, [u8]>, &'static str> {
        if self.flags & (OLDER | LZ4 | ZSTANDARD) == 0 {
            return Ok(Cow::Borrowed(self.packed));
        }
        let most = LONGEST.min(MOST_GAIN * u64::try_from(self.packed.len()).unwrap_or(LONGEST));
        let length = usize::try_from(self.length).ok().filter(|_| self.length <= most);
        let length = length.ok_or("a part of a fat binary that is too long")?;
        let mut bytes = vec![0; length];
        let unpacked = match self.flags & (OLDER | LZ4 | ZSTANDARD) {
            LZ4 => lz4_flex::block::decompress_into(self.packed, &mut bytes).ok(),
            ZSTANDARD => ruzstd::decoding::FrameDecoder::new().decode_all(self.packed, &mut bytes).ok(),
            _ => return Err("a part of a fat binary that is packed in an unknown way"),
        };
        match unpacked {
            Some(unpacked) if unpacked == length => Ok(Cow::Owned(bytes)),
            _ => Err("a part of a fat binary that cannot be unpacked"),
        }
    }

    /// Cubins of one part with several: their architectures, and where each lies.
    fn table(&self) -> Option<Vec<(u32, u64, u64)>> {
        let at = usize::try_from(middle(self.header, 20)?).ok()?;
        let count = usize::try_from(middle(self.header, at)?).ok()?;
        let entries = self.header.get(at.checked_add(8)?..)?.chunks_exact(HEADER);
        if entries.len() < count {
            return None;
        }
        let entry = |entry: &[u8]| {
            let of = (middle(entry, 28)?, u64::from(middle(entry, 4)?), large(entry, 8)?);
            (small(entry, 0)? == CUBIN && large(entry, 40)? & (OLDER | LZ4 | ZSTANDARD) == 0).then_some(of)
        };
        entries.take(count).map(entry).collect()
    }

    /// The architectures of the cubins that it has.
    fn architectures(&self) -> Vec<u32> {
        match self.kind {
            CUBIN => vec![self.architecture],
            SEVERAL => self.table().unwrap_or_default().into_iter().map(|(architecture, ..)| architecture).collect(),
            _ => Vec::new(),
        }
    }

    /// What it has, for these GPUs; whether a text may be compiled says `is_text_taken`.
    fn contents(&self, gpus: &Gpus, is_text_taken: bool) -> Contents {
        let is_for_them = match self.kind {
            TEXT => is_text_taken && gpus.can_compile(self.architecture),
            CUBIN => gpus.run(self.architecture),
            SEVERAL => self.table().is_none_or(|table| table.iter().any(|(architecture, ..)| gpus.run(*architecture))),
            kind => return Contents::unread(format!("a part of a fat binary of kind {kind}")),
        };
        if !is_for_them {
            return Contents::default();
        }
        let bytes = match self.unpacked() {
            Ok(bytes) => bytes,
            Err(why) => return Contents::unread(why),
        };
        match self.kind {
            TEXT => text::contents(&String::from_utf8_lossy(&bytes)),
            CUBIN => cubin::contents(&bytes),
            _ => {
                let Some(table) = self.table() else {
                    return Contents::unread("a part of a fat binary with several cubins and no table");
                };
                let mut contents = Contents::default();
                for (_, start, length) in table.into_iter().filter(|(architecture, ..)| gpus.run(*architecture)) {
                    contents.merge(match piece(&bytes, start, length) {
                        Some(image) => cubin::contents(image),
                        None => Contents::unread("a cubin beyond its part of a fat binary"),
                    });
                }
                contents
            }
        }
    }
}

/// The parts of a fat binary; `None` if it cannot be read to its end.
#[must_use]
pub fn parts(image: &[u8]) -> Option<Vec<Part<'_>>> {
    if !image.starts_with(&FAT) {
        return None;
    }
    let mut rest = piece(image, small(image, 6)?.into(), large(image, 8)?)?;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (part, behind) = Part::first(rest)?;
        parts.push(part);
        rest = behind;
    }
    Some(parts)
}

/// What a fat binary has, for these GPUs.
pub(crate) fn contents(image: &[u8], gpus: &Gpus) -> Contents {
    let Some(parts) = parts(image) else { return Contents::unread("a fat binary that cannot be read") };
    let architectures: Vec<u32> = parts.iter().flat_map(Part::architectures).collect();
    let is_text_taken = !gpus.are_served(&architectures);
    let mut contents = Contents::default();
    parts.iter().for_each(|part| contents.merge(part.contents(gpus, is_text_taken)));
    contents
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            why(LZ4 | ZSTANDARD, &packed, image.len()),
            "a part of a fat binary that is packed in an unknown way"
        );
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
}
