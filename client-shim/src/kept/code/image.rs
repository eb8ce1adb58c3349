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

/// First bytes of a cubin.
const ELF: [u8; 4] = *b"\x7fELF";
/// First bytes of a fat binary.
const FAT: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
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

/// Beginnings of a cubin's sections with variables, which begin with a value or with zeros, and with constants.
const VARIABLES: &[u8] = b".nv.global";
const CONSTANTS: &[u8] = b".nv.constant3";
/// What a kernel calls to have memory from the device's heap, which ends with its context.
const HEAP: &str = "malloc";
/// What compilers call the texts that they make for messages, in a text: nobody writes there.
const MESSAGES: [&str; 5] = ["$str", "_$_str", "__unnamed_", "assert", "printfFormat"];

/// What a module made of an image may have that begins anew in a module that is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Variables {
    /// Nothing.
    None,
    /// Constants. Nobody writes them who has not asked for their address.
    Constants,
    /// What kernels can write without asking: variables, or memory of the device's heap.
    Writable,
}

/// What a module made of this image may have. What cannot be told may be anything: the constants that compilers make for
/// messages are known in a text by their names, a cubin does not tell them apart, and a fat binary's parts are compressed.
pub(crate) fn variables(image: &[u8]) -> Variables {
    if image.starts_with(&ELF) {
        return elf_variables(image).unwrap_or(Variables::Writable);
    }
    if image.starts_with(&FAT) {
        return Variables::Writable;
    }
    text_variables(&plain(&String::from_utf8_lossy(image)))
}

/// A text without comments and without what is quoted.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"']) {
        plain.push_str(&rest[..at]);
        let (end, length) = match &rest[at..] {
            of if of.starts_with("//") => ("\n", 2),
            of if of.starts_with("/*") => ("*/", 2),
            of if of.starts_with('"') => ("\"", 1),
            _ => ("", 1),
        };
        let behind = &rest[at + length..];
        rest = behind.find(end).map_or("", |found| &behind[found + end.len()..]);
        plain.push(' ');
    }
    plain.push_str(rest);
    plain
}

fn text_variables(text: &str) -> Variables {
    let mut depth = 0_usize;
    let mut statement = String::new();
    let mut found = Variables::None;
    for character in text.chars() {
        match character {
            // An initialiser's braces belong to the statement.
            '{' if !statement.contains('=') => {
                depth += 1;
                statement.clear();
            }
            '}' if !statement.contains('=') => {
                depth = depth.saturating_sub(1);
                statement.clear();
            }
            ';' => {
                if depth == 0 {
                    found = found.max(of_statement(&statement));
                }
                statement.clear();
            }
            _ => statement.push(character),
        }
    }
    found
}

fn of_statement(statement: &str) -> Variables {
    let has = |word: &str| statement.split_whitespace().any(|of| of == word);
    let mut names = statement.split(|of: char| !(of.is_alphanumeric() || "_$.".contains(of)));
    if has(".func") {
        return if names.any(|name| name == HEAP) { Variables::Writable } else { Variables::None };
    }
    let is_message = has(".b8")
        && statement.contains('=')
        && !has(".visible")
        && names.any(|name| MESSAGES.iter().any(|prefix| name.starts_with(prefix)));
    match () {
        () if has(".extern") || is_message => Variables::None,
        () if has(".global") => Variables::Writable,
        () if has(".const") => Variables::Constants,
        () => Variables::None,
    }
}

/// What a cubin has; `None` if its sections cannot be read.
fn elf_variables(image: &[u8]) -> Option<Variables> {
    let count = small(image.get(..ELF_PART)?, 60);
    let sections: Vec<_> = elf_sections(image).collect();
    // With more sections than the header has room for, or one that lies elsewhere, nobody has seen them all.
    if count == 0 || sections.len() != count {
        return None;
    }
    let of = |(name, size): &(&[u8], usize)| match () {
        () if *size == 0 => Variables::None,
        () if name.starts_with(VARIABLES) => Variables::Writable,
        () if name.starts_with(CONSTANTS) => Variables::Constants,
        () => Variables::None,
    };
    let heap = format!("\0{HEAP}\0");
    let has_heap = image.windows(heap.len()).any(|bytes| bytes == heap.as_bytes());
    let of_heap = if has_heap { Variables::Writable } else { Variables::None };
    Some(sections.iter().map(of).max().unwrap_or(Variables::None).max(of_heap))
}

/// Names and sizes of a cubin's sections.
fn elf_sections(image: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let bytes = |at: usize, length: usize| image.get(at..at.checked_add(length)?);
    let header = bytes(0, ELF_PART);
    let (table, count, names) =
        header.and_then(|header| Some((large(header, 40)?, small(header, 60), small(header, 62)))).unwrap_or_default();
    let section = move |index: usize| bytes(table.checked_add(index * ELF_PART)?, ELF_PART);
    let text_start = section(names).and_then(|section| large(section, 24)).unwrap_or(usize::MAX);
    (0..count).filter_map(move |index| {
        let section = section(index)?;
        let name = usize::try_from(u32::from_le_bytes(section[..4].try_into().ok()?)).ok()?;
        let name = image.get(text_start.checked_add(name)?..)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        Some((&name[..end], large(section, 32)?))
    })
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
    use super::{Variables, copy, variables};

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
    fn what_begins_anew_is_found_in_a_text() {
        let text = |text: &str| variables(format!(".version 8.0\n.target sm_80\n{text}\0").as_bytes());
        for none in [
            "",
            ".global .align 1 .b8 $str$1[7] = {97, 98};",
            ".global .align 1 .b8 assertFile_0[3] = {97, 98};",
            "// .global .u32 no;\n.extern .global .u32 other;",
            "/* .const .u32 no; { */ .extern .const .u32 other;",
            ".entry k(.param .u64 .ptr .global .align 4 a) { ld.global.u32 %r1, [%rd1]; .reg .global; }",
            ".extern .func (.param .b64 r) vprintf (.param .b64 a, .param .b64 b);",
        ] {
            assert_eq!(text(none), Variables::None, "{none}");
        }
        for writable in [
            ".visible .global .align 4 .u32 counter;",
            ".global .align 4 .u32 counter = 5;",
            ".entry k() { ret; }\n.global .b32 after[4];",
            ".global .align 4 .b8 settings[8] = {1, 0, 0, 0, 2, 0, 0, 0};",
            ".visible .global .align 1 .b8 $str[2] = {97, 98};",
            "/* { */ .global .u32 behind;",
            ".file 1 \"a{b;c\"\n.global .u32 behind;",
            ".const .u32 c;\n.global .u32 g;\n.const .u32 d;",
            ".extern .func (.param .b64 r) malloc (.param .b64 a);",
        ] {
            assert_eq!(text(writable), Variables::Writable, "{writable}");
        }
        assert_eq!(text(".visible .const .align 4 .u32 scale[4] = {1, 2};"), Variables::Constants);
        assert_eq!(variables(&0xba55_ed50_u32.to_le_bytes()), Variables::Writable);
    }

    #[test]
    fn what_begins_anew_is_found_in_a_cubin() {
        // With the table at 64: names first, then a section by that name.
        let cubin = |name: &str, size: u8| {
            let mut image = vec![0_u8; 64 + 2 * 64];
            image[..4].copy_from_slice(b"\x7fELF");
            image[40..48].copy_from_slice(&64_u64.to_le_bytes());
            image[60..62].copy_from_slice(&2_u16.to_le_bytes());
            let names = image.len() as u64;
            image[64 + 24..64 + 32].copy_from_slice(&names.to_le_bytes());
            image[128..132].copy_from_slice(&1_u32.to_le_bytes());
            image[128 + 32] = size;
            image.extend([b"\0", name.as_bytes(), b"\0"].concat());
            image
        };
        for (name, size, expected) in [
            (".nv.global", 0, Variables::None),
            (".nv.global", 4, Variables::Writable),
            (".nv.global.init", 4, Variables::Writable),
            (".nv.constant3", 4, Variables::Constants),
            (".nv.constant0.kernel", 4, Variables::None),
            ("malloc", 0, Variables::Writable),
        ] {
            assert_eq!(variables(&cubin(name, size)), expected, "{name}");
        }
        let mut image = cubin(".text", 4);
        image[60..62].copy_from_slice(&0_u16.to_le_bytes());
        assert_eq!(variables(&image), Variables::Writable, "its sections are counted elsewhere");
        image[60..62].copy_from_slice(&9_u16.to_le_bytes());
        assert_eq!(variables(&image), Variables::Writable, "some are missing");
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
