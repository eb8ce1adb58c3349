//! Arrays, mipmapped arrays, memory of other interfaces that they may be views of, texture and surface objects.
//!
//! As measured with 580.159.04 on an H100 (`OBSERVED.md`): an array's memory is a multiple of 64 KiB, begins at one, and
//! cannot be exported; a view of exported memory shows the same as any other view of it by the same description; an array
//! without memory is a fault (719) for whoever works on it. A texture object's value counts from 1 in each context,
//! together with surfaces, the lowest free one first; without MPS those just destroyed are free when an array is.
//!
//! Rows lie one after the other, which no program can see.

use crate::allocations::{Owner, Ranges};
use crate::codes::{Code, Outcome};
use crate::copies;
use crate::tables::Table;
use crate::vmm::{self, Allocation};
use std::collections::BTreeSet;

/// What arrays begin at multiples of, and take multiples of, in bytes.
pub(crate) const ALIGNMENT: usize = 64 << 10;
/// `CUDA_ARRAY3D_LAYERED`, `…_SURFACE_LDST`, `…_CUBEMAP`, `…_COLOR_ATTACHMENT`, `…_DEFERRED_MAPPING`.
const LAYERED: u64 = 1;
pub(crate) const SURFACE: u64 = 2;
const CUBEMAP: u64 = 4;
const DEFERRED: u64 = 0x80;
/// The same with `…_TEXTURE_GATHER`: flags that there are here.
const FLAGS: u64 = 0x20 | 0x80 | 0xf;
/// Longest side.
const LONGEST: u64 = 131_072;
/// `CU_RESOURCE_TYPE_ARRAY`, `…_MIPMAPPED_ARRAY`, `…_LINEAR`, `…_PITCH2D`.
const OF_ARRAY: u64 = 0;
const OF_MIPMAPPED: u64 = 1;
const OF_PITCHED: u64 = 3;
const LOWER: u64 = 0xffff_ffff;

/// A description: `CUDA_ARRAY3D_DESCRIPTOR` in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(pub(crate) [u64; 5]);

impl Shape {
    /// A sound one.
    pub(crate) fn new([width, height, depth, format, flags]: [u64; 5]) -> Outcome<Self> {
        let shape = Self([width, height, depth, format, flags & LOWER]);
        let is_sound = width > 0
            && [width, height, depth].iter().all(|side| *side <= LONGEST)
            && shape.0[4] & !FLAGS == 0
            && shape.element() > 0
            && (shape.0[4] & CUBEMAP == 0 || (width == height && depth.is_multiple_of(6) && depth > 0));
        is_sound.then_some(shape).ok_or(Code::INVALID_VALUE)
    }

    /// Bytes of an element, 0 for what there is none of.
    pub(crate) fn element(self) -> u64 {
        let channels = self.0[3] >> 32;
        let bytes = match self.0[3] & LOWER {
            1 | 8 => 1,
            2 | 9 | 0x10 => 2,
            3 | 10 | 0x20 => 4,
            _ => 0,
        };
        if matches!(channels, 1 | 2 | 4) { bytes * channels } else { 0 }
    }

    /// Whether memory is to be given to it later.
    pub(crate) fn is_deferred(self) -> bool {
        self.0[4] & DEFERRED != 0
    }

    /// A level's.
    fn level(self, level: u32) -> Self {
        let half = |side: u64| if side == 0 { 0 } else { (side >> level).max(1) };
        let [width, height, depth, format, flags] = self.0;
        let is_layered = flags & (LAYERED | CUBEMAP) != 0;
        Self([half(width), half(height), if is_layered { depth } else { half(depth) }, format, flags])
    }

    /// Bytes of a row.
    pub(crate) fn row(self) -> u64 {
        self.0[0] * self.element()
    }

    /// All bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.row() * self.0[1].max(1) * self.0[2].max(1)
    }

    /// How far a place is from the first byte: bytes of the row, row, layer.
    pub(crate) fn offset(self, [x, y, z]: [u64; 3]) -> u64 {
        (z * self.0[1].max(1) + y) * self.row() + x
    }

    /// Bytes of memory for so many levels.
    pub(crate) fn memory(self, levels: u32) -> Outcome<usize> {
        let all: u64 = (0..levels).map(|level| self.level(level).bytes()).sum();
        usize::try_from(all).map(|all| all.next_multiple_of(ALIGNMENT)).map_err(|_| Code::INVALID_VALUE)
    }
}

/// Where the bytes of an array are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory {
    /// Nowhere yet.
    None,
    /// The driver's own, from this address on.
    Own(usize),
    /// A view of other memory: where all of that is mapped, and its size.
    View(usize, usize),
}

/// An array, or a level of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array {
    /// The context's handle.
    pub(crate) context: usize,
    /// Device ordinal.
    pub(crate) device: u32,
    /// What it was asked for by.
    pub(crate) shape: Shape,
    /// The first byte, 0 for one without memory.
    pub(crate) bytes: usize,
    /// The mipmapped array that it is a level of.
    of: Option<usize>,
    memory: Memory,
}

/// A mipmapped array.
#[derive(Debug, Clone)]
pub(crate) struct Mipmapped {
    pub(crate) context: usize,
    pub(crate) device: u32,
    pub(crate) shape: Shape,
    /// Handles of the levels.
    pub(crate) levels: Vec<usize>,
    memory: Memory,
}

/// Imported memory.
#[derive(Debug, Clone)]
pub(crate) struct External {
    pub(crate) context: usize,
    pub(crate) allocation: Allocation,
}

/// A texture or surface object.
#[derive(Debug, Clone)]
pub(crate) struct Texture {
    /// `CUDA_RESOURCE_DESC`, `CUDA_TEXTURE_DESC`, `CUDA_RESOURCE_VIEW_DESC`.
    pub(crate) resource: [u64; 18],
    pub(crate) how: Option<[u64; 13]>,
    pub(crate) view: [u64; 14],
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    pub(crate) arrays: Table<usize, Array>,
    pub(crate) mipmapped: Table<usize, Mipmapped>,
    pub(crate) external: Table<usize, External>,
    /// By context and value.
    pub(crate) textures: Table<(usize, u64), Texture>,
    /// Values that were just destroyed, without MPS.
    resting: BTreeSet<(usize, u64)>,
}

impl Arrays {
    /// How many are without memory: those of one level, and mipmapped ones.
    pub(crate) fn deferred(&self) -> usize {
        let plain = self.arrays.values().filter(|array| array.of.is_none() && array.shape.is_deferred()).count();
        plain + self.mipmapped.values().filter(|array| array.shape.is_deferred()).count()
    }

    /// Makes an array, or levels of one, in such memory.
    pub(crate) fn add(&mut self, array: (usize, u32, Shape), memory: Memory, handle: usize) {
        let (context, device, shape) = array;
        let bytes = first_byte(memory, 0);
        self.arrays.insert(handle, Array { context, device, shape, bytes, of: None, memory });
    }

    /// Makes a mipmapped one; in a view from this byte on.
    pub(crate) fn add_mipmapped(
        &mut self,
        (context, device, shape): (usize, u32, Shape),
        (memory, offset): (Memory, usize),
        handle: usize,
        levels: Vec<usize>,
    ) -> Outcome {
        let mut at = first_byte(memory, offset);
        for (level, number) in (0..).zip(&levels) {
            let shape = shape.level(level);
            let of = Some(handle);
            self.arrays.insert(*number, Array { context, device, shape, bytes: at, of, memory: Memory::None });
            if at != 0 {
                at += usize::try_from(shape.bytes()).map_err(|_| Code::INVALID_VALUE)?;
            }
        }
        self.mipmapped.insert(handle, Mipmapped { context, device, shape, levels, memory });
        Ok(())
    }

    /// Takes an array out; what is to be done with its memory.
    pub(crate) fn remove(&mut self, handle: usize) -> Outcome<(Memory, u32)> {
        let array = self.arrays.get(&handle).filter(|array| array.of.is_none()).ok_or(Code::INVALID_HANDLE)?;
        let gone = (array.memory, array.device);
        self.arrays.remove(&handle);
        self.resting.clear();
        Ok(gone)
    }

    /// The same of a mipmapped one.
    pub(crate) fn remove_mipmapped(&mut self, handle: usize) -> Outcome<(Memory, u32)> {
        let gone = self.mipmapped.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        self.arrays.retain(|_, array| array.of != Some(handle));
        self.resting.clear();
        Ok((gone.memory, gone.device))
    }

    /// Everything of a context goes; views among it, where they are mapped.
    pub(crate) fn end(&mut self, context: usize) -> Vec<(usize, usize)> {
        let of_arrays = self.arrays.extract_if(|_, array| array.context == context).map(|(_, array)| array.memory);
        let of_mipmapped = self.mipmapped.extract_if(|_, array| array.context == context).map(|(_, of)| of.memory);
        let views = of_arrays.chain(of_mipmapped).filter_map(|memory| match memory {
            Memory::View(bytes, size) => Some((bytes, size)),
            Memory::None | Memory::Own(_) => None,
        });
        let views = views.collect();
        self.external.retain(|_, of| of.context != context);
        self.textures.retain(|(of, _), _| *of != context);
        self.resting.retain(|(of, _)| *of != context);
        views
    }

    /// Gives an object the lowest value that is free.
    pub(crate) fn add_texture(&mut self, context: usize, texture: Texture) -> u64 {
        let is_free = |value: &u64| {
            let key = (context, *value);
            !self.textures.contains_key(&key) && !self.resting.contains(&key)
        };
        let value = (copies::first_texture()..).find(is_free).expect("there are more values than objects");
        self.textures.insert((context, value), texture);
        value
    }

    /// Ends an object. Its value can be given again at once under MPS.
    pub(crate) fn remove_texture(&mut self, context: usize, value: u64, is_under_mps: bool) -> Outcome {
        self.textures.remove(&(context, value)).ok_or(Code::INVALID_VALUE)?;
        if !is_under_mps {
            self.resting.insert((context, value));
        }
        Ok(())
    }

    /// Where the bytes are that an object reads or writes, and how many there are; `None` if there are none.
    pub(crate) fn seen_by(&self, context: usize, value: u64, is_written: bool) -> Option<(usize, usize)> {
        let texture = self.textures.get(&(context, value)).filter(|of| of.how.is_none() == is_written)?;
        let [kind, first, _, third, fourth, fifth, ..] = texture.resource;
        let number = |word: u64| usize::try_from(word).ok();
        let of_array = |array: &Array| Some((array.bytes, number(array.shape.bytes())?));
        match kind & LOWER {
            OF_ARRAY => of_array(self.arrays.get(&number(first)?)?),
            OF_MIPMAPPED => of_array(self.arrays.get(self.mipmapped.get(&number(first)?)?.levels.first()?)?),
            OF_PITCHED => Some((number(first)?, number(fourth * fifth)?)),
            _ => Some((number(first)?, number(third)?)),
        }
        .filter(|(bytes, _)| *bytes != 0)
    }
}

fn first_byte(memory: Memory, offset: usize) -> usize {
    match memory {
        Memory::None => 0,
        Memory::Own(bytes) | Memory::View(bytes, _) => bytes + offset,
    }
}

/// Memory of the driver's own.
pub(crate) fn allocate(ranges: &mut Ranges, size: usize, context: usize, device: u32) -> Outcome<usize> {
    ranges.allocate(size, Owner::Context(context), device)
}

/// Gives memory back; bytes of it that are free then.
pub(crate) fn give_back(ranges: &mut Ranges, memory: Memory) -> Outcome<usize> {
    match memory {
        Memory::None => Ok(0),
        Memory::Own(bytes) => ranges.free(bytes).map(|range| range.size),
        Memory::View(bytes, size) => vmm::unmap(bytes, size).map(|()| 0),
    }
}

#[cfg(test)]
mod tests;
