//! Images for tests, made by hand: laid out as `ptxas` and `fatbinary` of CUDA 13.5 lay out theirs.

/// A section: its name, what it is (1 bytes, 8 none in the file), its flags, its length.
pub(crate) type Section<'a> = (&'a str, u32, u64, u64);
/// A symbol: its name, binding and type, `st_other`, its section (0 for none, else the number from 1), start and length.
pub(crate) type Symbol<'a> = (&'a str, u8, u8, u16, u64, u64);

/// Writable and in memory.
pub(crate) const WRITABLE: u64 = 3;
/// Bytes in the file, and none.
pub(crate) const BITS: u32 = 1;
pub(crate) const NO_BITS: u32 = 8;
/// Local and global objects, a global function.
pub(crate) const LOCAL: u8 = 0x01;
pub(crate) const GLOBAL: u8 = 0x11;
pub(crate) const FUNCTION: u8 = 0x12;

fn text(texts: &mut Vec<u8>, name: &str) -> u32 {
    let at = u32::try_from(texts.len()).expect("short");
    texts.extend(name.as_bytes());
    texts.push(0);
    at
}

/// A cubin with these sections, numbered from 1, and symbols.
pub(crate) fn cubin(sections: &[Section<'_>], symbols: &[Symbol<'_>]) -> Vec<u8> {
    let (mut names, mut strings) = (vec![0], vec![0]);
    let mut table = vec![0; 24];
    for (name, kind, other, section, start, size) in symbols {
        table.extend(text(&mut strings, name).to_le_bytes());
        table.extend([*kind, *other]);
        table.extend(section.to_le_bytes());
        table.extend(start.to_le_bytes());
        table.extend(size.to_le_bytes());
    }
    let count = sections.len() + 4;
    let mut headers = vec![0; 64];
    let mut header = |name: &str, kind: u32, flags: u64, start: usize, size: u64, link: u32, entry: u64| {
        headers.extend(text(&mut names, name).to_le_bytes());
        headers.extend(kind.to_le_bytes());
        [flags, 0, start as u64, size].iter().for_each(|word| headers.extend(word.to_le_bytes()));
        [link, 1].iter().for_each(|word| headers.extend(word.to_le_bytes()));
        [1, entry].iter().for_each(|word: &u64| headers.extend(word.to_le_bytes()));
    };
    let mut body = vec![0; 64];
    for (name, kind, flags, size) in sections {
        header(name, *kind, *flags, body.len(), *size, 0, 0);
        if *kind != NO_BITS {
            body.resize(body.len() + usize::try_from(*size).expect("short"), 7);
        }
    }
    let link = u32::try_from(sections.len() + 2).expect("few");
    header(".symtab", 2, 0, body.len(), table.len() as u64, link, 24);
    body.extend(table);
    header(".strtab", 3, 0, body.len(), strings.len() as u64, 0, 0);
    body.extend(strings);
    header(".shstrtab", 3, 0, body.len(), 0, 0, 0);
    let length = names.len() as u64;
    let place = headers.len() - 32;
    headers[place..place + 8].copy_from_slice(&length.to_le_bytes());
    body.extend(names);
    let start = body.len() as u64;
    body.extend(headers);
    body[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\x41\x08\0\0\0\0\0\0\0\x02\0\xbe\0");
    body[20..24].copy_from_slice(&1_u32.to_le_bytes());
    body[40..48].copy_from_slice(&start.to_le_bytes());
    body[52..64].copy_from_slice(
        &[64_u16, 0, 0, 64, u16::try_from(count).expect("few"), u16::try_from(count - 1).expect("few")]
            .map(u16::to_le_bytes)
            .concat(),
    );
    body
}

/// A part of a fat binary: what it is, for which architecture, flags, as packed, its length when unpacked.
pub(crate) fn part(kind: u16, architecture: u32, flags: u64, packed: &[u8], length: usize) -> Vec<u8> {
    part_with(kind, architecture, flags, packed, length, &[])
}

/// The same with a table behind its header.
pub(crate) fn part_with(
    kind: u16,
    architecture: u32,
    flags: u64,
    packed: &[u8],
    length: usize,
    table: &[u8],
) -> Vec<u8> {
    let number = |of: usize| u32::try_from(of).expect("short").to_le_bytes();
    let padded = packed.len().next_multiple_of(8);
    let mut bytes = [kind.to_le_bytes(), 0x101_u16.to_le_bytes()].concat();
    bytes.extend(number(64 + table.len()));
    bytes.extend((padded as u64).to_le_bytes());
    bytes.extend(number(packed.len()));
    bytes.extend(number(64));
    bytes.extend(number(0));
    bytes.extend(architecture.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(flags.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend((length as u64).to_le_bytes());
    bytes.extend(table);
    bytes.extend(packed);
    bytes.resize(bytes.len() + padded - packed.len(), 0);
    bytes
}

/// A fat binary of these parts.
pub(crate) fn fat(parts: &[Vec<u8>]) -> Vec<u8> {
    let parts = parts.concat();
    let mut bytes = [&crate::FAT[..], &[1, 0, 16, 0], &(parts.len() as u64).to_le_bytes()].concat();
    bytes.extend(parts);
    bytes
}

/// A block of LZ4 that repeats nothing.
pub(crate) fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0xf0];
    let mut more = bytes.len() - 15;
    while more >= 255 {
        block.push(255);
        more -= 255;
    }
    block.push(u8::try_from(more).expect("less than 255"));
    block.extend(bytes);
    block
}
