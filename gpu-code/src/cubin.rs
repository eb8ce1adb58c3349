//! Cubins: the sections and symbols of compiled code.
//!
//! | section | is |
//! |---|---|
//! | `.nv.global`, `.nv.global.init` | variables, which begin with zeros, or with a value |
//! | `.nv.constant3` | constants of the program |
//! | other `.nv.constant…` | arguments of kernels, addresses, literals: the compiler's, nobody can write them |
//! | `.nv.shared…`, `.nv.local…` | memory of a block or thread while a kernel runs |
//! | `.nv.merc…`, `.nv.capmerc…` | the same code once more, for another release of a GPU |
//! | any other that can be written | not known |
//!
//! A variable has a symbol of type `OBJECT`, or of none in older code; bit 2 of its `st_other` says that it is managed. `ptxas` puts the addresses
//! of all of them into `.nv.constant4`, used or not, so nothing here says which kernel writes which.
//!
//! Sections `.nv.info…` have records: how it is laid out, what it says, and two bytes that are its value, or the length of
//! one that follows. [`MIN_STACK_SIZE`] has a symbol's number and the bytes of stack that a kernel needs with all that it
//! calls, or [`UNKNOWN_STACK`](crate::UNKNOWN_STACK) where it is recursive, allocates on its stack or calls by an address
//! that `ptxas` cannot follow (seen with `ptxas` 12.1 and 13.5).

use std::collections::BTreeMap;

use object::LittleEndian;
use object::elf::{
    FileHeader64, SHF_ALLOC, SHF_WRITE, SHN_UNDEF, SHT_SYMTAB, STB_LOCAL, STT_FUNC, STT_NOTYPE, STT_OBJECT, STT_SECTION,
};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};

use crate::{Contents, Place, UNKNOWN_STACK, is_heap, is_launch, is_message};

/// `e_machine` of compiled GPU code.
const EM_CUDA: u16 = 190;
/// In `st_other`: a managed variable.
const STO_MANAGED: u8 = 4;

const VARIABLES: &str = ".nv.global";
const INITIALISED: &str = ".nv.global.init";
const CONSTANTS: &str = ".nv.constant3";
/// Beginnings of the names of writable sections in which nothing stays when a kernel has ended, or nothing is written.
const PASSING: [&str; 4] = [".nv.shared", ".nv.local", ".nv.merc", ".nv.capmerc"];
/// In `st_other`: a kernel.
const STO_ENTRY: u8 = 0x10;
/// Where kernels' numbers are.
const INFORMATION: &str = ".nv.info";
/// A record's layout with a value behind it, whose length it has, and one record of such.
const WITH_VALUE: u8 = 4;
const MIN_STACK_SIZE: u8 = 0x12;
/// Most bytes between two variables: no alignment is larger.
const WIDEST_GAP: u64 = 4096;

/// What a cubin has.
pub(crate) fn contents(image: &[u8]) -> Contents {
    read(image).unwrap_or_else(|_| Contents::unread("a cubin that cannot be read"))
}

/// A section with something of the module's, and where its symbols say that bytes are used.
struct Section<'a> {
    name: &'a str,
    place: Place,
    size: u64,
    /// First byte and length.
    used: Vec<(u64, u64)>,
}

impl Section<'_> {
    /// Whether its symbols leave no more free than alignment does.
    fn is_named(&mut self) -> bool {
        self.used.sort_unstable();
        let mut end = 0_u64;
        for (start, size) in &self.used {
            if start.saturating_sub(end) >= WIDEST_GAP {
                return false;
            }
            end = end.max(start.saturating_add(*size));
        }
        !self.used.is_empty() && self.size.saturating_sub(end) < WIDEST_GAP
    }
}

fn read(image: &[u8]) -> object::read::Result<Contents> {
    let header = FileHeader64::<LittleEndian>::parse(image)?;
    let endian = header.endian()?;
    if header.e_machine(endian).0 != EM_CUDA {
        return Ok(Contents::unread("an ELF file that is no cubin"));
    }
    let sections = header.sections(endian, image)?;
    if sections.is_empty() {
        return Ok(Contents::unread("a cubin without sections"));
    }
    let mut contents = Contents::default();
    // By index: those that symbols may lie in.
    let mut found: Vec<Option<Section<'_>>> = Vec::new();
    for section in sections.iter() {
        let name = std::str::from_utf8(sections.section_name(endian, section)?).unwrap_or_default();
        let size = section.sh_size(endian);
        let flags = section.sh_flags(endian).0;
        let is_written = flags & SHF_WRITE.0 != 0 && flags & SHF_ALLOC.0 != 0;
        let is_under = |prefix: &&str| name.starts_with(*prefix);
        found.push(match name {
            _ if size == 0 => None,
            VARIABLES | INITIALISED => Some(Section { name, place: Place::Global, size, used: Vec::new() }),
            CONSTANTS => Some(Section { name, place: Place::Constant, size, used: Vec::new() }),
            _ if is_written && !PASSING.iter().any(is_under) => {
                contents.unread.insert(format!("section {name}"));
                None
            }
            _ => None,
        });
    }
    let mut stacks = BTreeMap::new();
    for section in sections.iter() {
        if sections.section_name(endian, section)?.starts_with(INFORMATION.as_bytes()) {
            note_stacks(section.data(endian, image)?, &mut stacks);
        }
    }
    let (mut kernels, mut are_launched) = (Vec::new(), false);
    let symbols = sections.symbols(endian, image, SHT_SYMTAB)?;
    for (index, symbol) in symbols.enumerate() {
        let name = std::str::from_utf8(symbols.symbol_name(endian, symbol)?);
        let kind = symbol.st_type();
        if symbol.st_shndx(endian) == SHN_UNDEF {
            contents.has_heap |= kind == STT_FUNC && name.is_ok_and(is_heap);
            are_launched |= kind == STT_FUNC && name.is_ok_and(is_launch);
            continue;
        }
        if kind == STT_FUNC && symbol.st_other().0 & STO_ENTRY != 0 {
            let needed = u32::try_from(index.0).ok().and_then(|index| stacks.get(&index)).copied();
            match name {
                Ok(name) => kernels.push((name.to_owned(), needed.unwrap_or(UNKNOWN_STACK))),
                Err(_) => drop(contents.unread.insert("a kernel without a name".to_owned())),
            }
        }
        let Some(at) = symbols.symbol_section(endian, symbol, index)? else { continue };
        let Some(Some(section)) = found.get_mut(at.0) else { continue };
        if kind == STT_SECTION {
            continue;
        }
        let (start, size) = (symbol.st_value(endian), symbol.st_size(endian));
        section.used.push((start, size));
        let Ok(name) = name.map(str::to_owned) else {
            contents.unread.insert("a variable without a name".to_owned());
            continue;
        };
        if !(kind == STT_OBJECT || kind == STT_NOTYPE) || name.is_empty() {
            contents.unread.insert(format!("symbol {name:?} in {}", section.name));
        } else if symbol.st_other().0 & STO_MANAGED != 0 {
            contents.add(&name, Place::Managed, size);
        } else if section.name == INITIALISED && symbol.st_bind() == STB_LOCAL && is_message(&name) {
            // A text of the compiler's.
        } else {
            contents.add(&name, section.place, size);
        }
    }
    for (name, needed) in kernels {
        contents.needs(&name, if are_launched { UNKNOWN_STACK } else { needed });
    }
    for section in found.iter_mut().flatten() {
        // The program's own constants are asked for by name, so whatever has none is not its.
        if section.place != Place::Constant && !section.is_named() {
            contents.unread.insert(format!("bytes of {} without a symbol", section.name));
        }
    }
    Ok(contents)
}

/// Notes the stack that kernels need, by the numbers of their symbols. What cannot be read says nothing.
fn note_stacks(mut records: &[u8], stacks: &mut BTreeMap<u32, u32>) {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    while let [layout, what, low, high, rest @ ..] = records {
        let length = if *layout == WITH_VALUE { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let Some((value, behind)) = rest.split_at_checked(length) else { return };
        if *what == MIN_STACK_SIZE
            && let (Some(symbol), Some(bytes)) = (word(value, 0), word(value, 4))
        {
            let known = stacks.entry(symbol).or_default();
            *known = bytes.max(*known);
        }
        records = behind;
    }
}

#[cfg(test)]
mod tests {
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
        let records =
            [stack(1, 0), record(3, 0x50, &[]), stack(2, 4096), stack(3, UNKNOWN_STACK), stack(5, 64)].concat();
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
}
