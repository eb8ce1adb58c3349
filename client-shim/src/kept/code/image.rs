//! Where a module's image ends. The driver is given its beginning alone, and a copy must have all of it, since a program
//! may free an image once it is loaded.
//!
//! | begins with | is | its length |
//! |---|---|---|
//! | `\x7fELF` | a cubin | to the end of the last section or table |
//! | 0xba55ed50 | a fat binary | in its header |
//! | 0x466243b1 | a pointer to one | that one's |
//! | anything else | PTX text | to the NUL |
#![expect(unsafe_code, reason = "reads what the program gives to the driver, which reads it too")]

use std::ffi::{CStr, c_void};

use remps_gpu_code::{ELF, FAT};

/// First bytes of what the compiler puts in a program's data for a fat binary.
const WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();
/// `SHT_NOBITS`: a section without bytes in the file.
const NO_BITS: u32 = 8;
/// Longest image that is copied, in bytes.
const LONGEST: usize = 1 << 30;

/// Bytes of an ELF file's header, and of an entry in its table of sections.
const ELF_PART: usize = 64;
/// Bytes of a fat binary's header, and of a wrapper up to the end of its pointer.
const FAT_PART: usize = 16;

/// Whether the image begins with these bytes. Reads no further than to the first difference: a text may be shorter.
///
/// # Safety
/// It is an image.
unsafe fn begins_with(image: *const u8, magic: [u8; 4]) -> bool {
    // SAFETY: the byte before was as expected, so it was not the NUL of a text.
    magic.iter().enumerate().all(|(index, byte)| unsafe { image.wrapping_add(index).read() } == *byte)
}

/// # Safety
/// So many bytes are readable there.
unsafe fn part<const N: usize>(image: *const u8, offset: usize) -> [u8; N] {
    // SAFETY: by the contract.
    unsafe { image.wrapping_add(offset).cast::<[u8; N]>().read_unaligned() }
}

/// A number of two bytes in a part.
fn small(part: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([part[at], part[at + 1]]))
}

/// A number of eight bytes in a part.
fn large(part: &[u8], at: usize) -> Option<usize> {
    let bytes = <[u8; 8]>::try_from(&part[at..at + 8]).expect("eight bytes");
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

/// A copy of the image at `start`; `None` if it has no sensible length.
///
/// # Safety
/// It is an image that the driver has just loaded.
pub(crate) unsafe fn copy(start: *const c_void) -> Option<Vec<u8>> {
    let mut image = start.cast::<u8>();
    // SAFETY: by the contract.
    if unsafe { begins_with(image, WRAPPER) } {
        // SAFETY: the wrapper has a version after the magic, then the pointer.
        let wrapper = unsafe { part::<FAT_PART>(image, 0) };
        image = std::ptr::with_exposed_provenance(large(&wrapper, 8)?);
        if image.is_null() {
            return None;
        }
    }
    // SAFETY: by the contract, or the driver has followed the pointer.
    let length = if unsafe { begins_with(image, ELF) } {
        // SAFETY: as above.
        unsafe { elf_length(image) }?
        // SAFETY: as above.
    } else if unsafe { begins_with(image, FAT) } {
        // SAFETY: a fat binary has such a header at least.
        let header = unsafe { part::<FAT_PART>(image, 0) };
        small(&header, 6).checked_add(large(&header, 8)?)?
    } else {
        // SAFETY: what else the driver loads is a text with its NUL.
        unsafe { CStr::from_ptr(image.cast()) }.to_bytes_with_nul().len()
    };
    if length > LONGEST {
        return None;
    }
    // SAFETY: the image is as long as it says of itself, and the driver has read it.
    Some(unsafe { std::slice::from_raw_parts(image, length) }.to_vec())
}

/// The end of whatever comes last: the table of segments, that of sections, or a section.
///
/// # Safety
/// It is a cubin.
unsafe fn elf_length(image: *const u8) -> Option<usize> {
    // SAFETY: an ELF file of 64 bits has such a header.
    let header = unsafe { part::<ELF_PART>(image, 0) };
    let (segments, sections) = (large(&header, 32)?, large(&header, 40)?);
    let after_segments = segments.checked_add(small(&header, 54) * small(&header, 56))?;
    let (size, count) = (small(&header, 58), small(&header, 60));
    if count > 0 && size != ELF_PART {
        return None;
    }
    let mut end = after_segments.max(sections.checked_add(size * count)?);
    for index in 0..count {
        // SAFETY: the table lies in the file, as its header says.
        let section = unsafe { part::<ELF_PART>(image, sections + index * ELF_PART) };
        let kind = u32::from_le_bytes([section[4], section[5], section[6], section[7]]);
        if kind != NO_BITS {
            end = end.max(large(&section, 24)?.checked_add(large(&section, 32)?)?);
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::copy;

    fn copied(bytes: &[u8]) -> Option<Vec<u8>> {
        // SAFETY: each is an image, with bytes behind it that are none of it.
        unsafe { copy(bytes.as_ptr().cast()) }
    }

    #[test]
    fn a_text_ends_at_its_nul() {
        assert_eq!(copied(b".version 8.0\0rest"), Some(b".version 8.0\0".to_vec()));
        assert_eq!(copied(b"\0"), Some(b"\0".to_vec()));
        assert_eq!(copied(b"\x7f\0"), Some(b"\x7f\0".to_vec()), "only begins like another kind");
    }

    #[test]
    fn a_fat_binary_says_its_length() {
        let mut image = 0xba55_ed50_u32.to_le_bytes().to_vec();
        image.extend([1, 0, 16, 0]);
        image.extend(5_u64.to_le_bytes());
        image.extend(b"12345678");
        assert_eq!(copied(&image).as_deref(), Some(&image[..21]));
        let mut wrapper = 0x4662_43b1_u32.to_le_bytes().to_vec();
        wrapper.extend([1, 0, 0, 0]);
        wrapper.extend(image.as_ptr().expose_provenance().to_le_bytes());
        wrapper.extend([0; 8]);
        assert_eq!(copied(&wrapper).as_deref(), Some(&image[..21]));
        wrapper[8..16].fill(0);
        assert_eq!(copied(&wrapper), None);
    }

    #[test]
    fn a_cubin_ends_with_its_last_section_or_table() {
        let mut image = vec![0_u8; 300];
        image[..4].copy_from_slice(b"\x7fELF");
        image[40..48].copy_from_slice(&64_u64.to_le_bytes());
        image[58..60].copy_from_slice(&64_u16.to_le_bytes());
        image[60..62].copy_from_slice(&2_u16.to_le_bytes());
        // One section behind the table, one that has no bytes.
        image[64 + 24..64 + 32].copy_from_slice(&200_u64.to_le_bytes());
        image[64 + 32..64 + 40].copy_from_slice(&50_u64.to_le_bytes());
        image[128 + 4] = 8;
        image[128 + 24..128 + 32].copy_from_slice(&0x1000_u64.to_le_bytes());
        image[128 + 32..128 + 40].copy_from_slice(&0x1000_u64.to_le_bytes());
        assert_eq!(copied(&image).map(|copy| copy.len()), Some(250));
        image[60] = 0;
        assert_eq!(copied(&image).map(|copy| copy.len()), Some(64));
    }
}
