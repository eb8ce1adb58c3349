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
mod tests;
