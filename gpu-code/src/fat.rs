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
mod tests;
