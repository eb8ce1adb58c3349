//! Arrays of all kinds with textures and surfaces on them: some that last, with every byte and every value compared, and
//! some that each round destroys and makes again, so that values have holes and come in other orders.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

pub(super) mod calls;

use super::failed;
use super::workload::pattern;
use crate::programs::gpu::{Argument, Gpu, GpuError, Kernel, Stream};
use crate::programs::memory_probe::{allocate, check};
use calls::{Array, Object, Shape, array_resource, linear_resource, surface, texture, words_of};
use cudarc::driver::sys;

/// Kernels that read textures and write surfaces; the simulated driver's alone.
const KERNELS: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry look(.param .u64 texture, .param .u64 to, .param .u32 count, .param .u32 key, .param .u32 first) { ret; }
.visible .entry paint(.param .u64 surface, .param .u64 from, .param .u32 count, .param .u32 key, .param .u32 first) { ret; }
\0";

/// Words that kernels read and write of each.
const WORDS: u32 = 128;
const BYTES: usize = WORDS as usize * 4;
/// `CUDA_ARRAY3D_LAYERED`, `…_SURFACE_LDST`, `…_CUBEMAP`, `…_TEXTURE_GATHER`, `…_COLOR_ATTACHMENT`.
const LAYERED: u32 = 1;
pub(super) const SURFACE: u32 = 2;
const CUBEMAP: u32 = 4;
const GATHER: u32 = 8;
const COLOUR: u32 = 0x20;

/// Those that last: sides, flags, levels. Elements have four bytes.
const LASTING: [([usize; 3], u32, u32); 8] = [
    ([64, 16, 0], 0, 1),
    ([256, 0, 0], 0, 1),
    ([16, 8, 4], SURFACE, 1),
    ([32, 8, 3], LAYERED, 1),
    ([64, 0, 4], LAYERED | SURFACE, 1),
    ([16, 16, 6], CUBEMAP, 1),
    ([64, 64, 0], GATHER, 1),
    ([64, 32, 0], 0, 4),
];
/// Which of them kernels write to.
const PAINTED: usize = 2;

/// What lasts.
struct Lasting {
    array: Array,
    bytes: Vec<Vec<u8>>,
    texture: Object,
}

/// All of it.
pub(super) struct Arrays {
    look: Kernel,
    paint: Kernel,
    lasting: Vec<Lasting>,
    surface: Object,
    /// Linear memory with two textures.
    memory: u64,
    linear: [Object; 2],
    /// Where kernels write what they have read.
    out: u64,
    /// What each round makes again, with the seed of its contents, and one that has outlived its array.
    changing: Option<(Array, Object, u8)>,
    left: Option<Object>,
    rounds: u32,
    /// Something else than what is known may be in the one that is painted.
    is_being_painted: bool,
}

fn seed(of: usize) -> u8 {
    u8::try_from(100 + of).unwrap_or_default()
}

impl Arrays {
    pub(super) fn new() -> Result<Self, GpuError> {
        let mut module = std::ptr::null_mut();
        // SAFETY: the result is a variable of ours, and the image ends with NUL.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()) })?;
        let kernel = |name: &std::ffi::CStr| {
            let mut function = std::ptr::null_mut();
            // SAFETY: as above.
            let found = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
            check("cuModuleGetFunction", found).map(|()| Kernel(function))
        };
        let (look, paint) = (kernel(c"look")?, kernel(c"paint")?);
        let mut lasting = Vec::new();
        let mut holes = Vec::new();
        for (index, (sides, flags, levels)) in LASTING.into_iter().enumerate() {
            let array = Array::new(Shape { sides, flags, levels })?;
            let mut bytes = Vec::new();
            for level in 0..levels {
                let content = pattern(array.shape.level_bytes(level), seed(index).wrapping_add(level.to_le_bytes()[0]));
                array.write(level, &content)?;
                bytes.push(content);
            }
            let resource = array.resource();
            holes.push(texture(&resource)?);
            lasting.push(Lasting { array, bytes, texture: texture(&resource)? });
        }
        let surface = surface(&lasting[PAINTED].array.resource())?;
        let (memory, out) = (allocate(BYTES)?, allocate(BYTES)?);
        let bytes = pattern(BYTES, 55);
        // SAFETY: the source is as long as the copy; the driver checks the destination.
        check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(memory, bytes.as_ptr().cast(), BYTES) })?;
        let linear =
            [texture(&linear_resource(memory, BYTES, false))?, texture(&linear_resource(memory, BYTES, true))?];
        // The highest stays, so that a copy has holes to fill.
        holes.into_iter().rev().try_for_each(Object::destroy)?;
        Ok(Self {
            look,
            paint,
            lasting,
            surface,
            memory,
            linear,
            out,
            changing: None,
            left: None,
            rounds: 0,
            is_being_painted: false,
        })
    }

    /// Textures read what is there, surfaces write, and what changes is made again.
    pub(super) fn round(&mut self, gpu: &Gpu, stream: Stream) -> Result<(), GpuError> {
        self.rounds += 1;
        // Where the last round was told of lost work meanwhile it is in doubt, and this program's to write again.
        if self.is_being_painted {
            let of = &self.lasting[PAINTED];
            of.array.write(0, &of.bytes[0])?;
        }
        for index in 0..self.lasting.len() {
            let of = &self.lasting[index];
            self.is_seen(gpu, stream, of.texture, &of.bytes[0][..BYTES], &format!("texture {index}"))?;
        }
        for (index, object) in self.linear.into_iter().enumerate() {
            self.is_seen(gpu, stream, object, &pattern(BYTES, 55), &format!("linear texture {index}"))?;
        }
        self.is_being_painted = true;
        self.is_painted(gpu, stream)?;
        self.is_being_painted = false;
        self.change(gpu, stream)
    }

    /// Has a kernel read a texture.
    fn is_seen(&self, gpu: &Gpu, stream: Stream, texture: Object, expected: &[u8], what: &str) -> Result<(), GpuError> {
        gpu.clear(self.out, BYTES)?;
        let key = self.rounds;
        let arguments = [
            Argument::U64(texture.value),
            Argument::U64(self.out),
            Argument::U32(WORDS),
            Argument::U32(key),
            Argument::U32(0),
        ];
        gpu.launch_in(stream, self.look, 1, &arguments)?;
        gpu.synchronize()?;
        let found = gpu.read(self.out, WORDS as usize)?;
        let expected: Vec<u32> = words_of(expected).map(|word| word.wrapping_add(key)).collect();
        if found == expected { Ok(()) } else { Err(failed("look", format!("{what} reads something else"))) }
    }

    /// Has a kernel write to a surface, and puts back what was there.
    fn is_painted(&self, gpu: &Gpu, stream: Stream) -> Result<(), GpuError> {
        let of = &self.lasting[PAINTED];
        of.array.write(0, &of.bytes[0])?;
        let (object, key) = (self.surface.value, self.rounds);
        let arguments = [
            Argument::U64(object),
            Argument::U64(self.memory),
            Argument::U32(WORDS),
            Argument::U32(key),
            Argument::U32(0),
        ];
        gpu.launch_in(stream, self.paint, 1, &arguments)?;
        gpu.synchronize()?;
        let found = of.array.read(0)?;
        let source = pattern(BYTES, 55);
        let painted = words_of(&of.bytes[0][..BYTES])
            .zip(words_of(&source))
            .flat_map(|(word, other)| word.wrapping_mul(5).wrapping_add(other).wrapping_add(key).to_le_bytes());
        let expected: Vec<u8> = painted.chain(of.bytes[0][BYTES..].iter().copied()).collect();
        of.array.write(0, &of.bytes[0])?;
        if found == expected { Ok(()) } else { Err(failed("paint", "a surface has something else")) }
    }

    /// Ends an array under its texture, and makes others.
    fn change(&mut self, gpu: &Gpu, stream: Stream) -> Result<(), GpuError> {
        if let Some(object) = self.left.take() {
            object.destroy()?;
        }
        if let Some((array, object, seed)) = self.changing.take() {
            let bytes = pattern(array.shape.level_bytes(0), seed);
            if array.read(0)? != bytes {
                return Err(failed("cuMemcpy3D", "an array that was made again has something else"));
            }
            array.destroy()?;
            self.left = Some(object);
        }
        let sides = [64 + 16 * (self.rounds as usize % 5), 8, 0];
        let array = Array::new(Shape { sides, flags: 0, levels: 1 })?;
        let seed = self.rounds.to_le_bytes()[0];
        let bytes = pattern(array.shape.level_bytes(0), seed);
        array.write(0, &bytes)?;
        let object = texture(&array_resource(array.first_level()))?;
        let others = self.lasting.iter().map(|of| of.texture).chain(self.linear).chain([self.surface]).chain(self.left);
        if others.into_iter().any(|other| other.value == object.value) {
            return Err(failed("cuTexObjectCreate", format!("{} is another one's value", object.value)));
        }
        self.is_seen(gpu, stream, object, &bytes[..BYTES], "a new texture")?;
        self.changing = Some((array, object, seed));
        Ok(())
    }

    /// What is not as it was.
    pub(super) fn wrong(&self) -> Result<Vec<String>, GpuError> {
        let mut wrong = Vec::new();
        for (index, of) in self.lasting.iter().enumerate() {
            for (level, expected) in (0..).zip(&of.bytes) {
                let is_in_doubt = self.is_being_painted && (index, level) == (PAINTED, 0);
                if !is_in_doubt && of.array.read(level)? != *expected {
                    wrong.push(format!("level {level} of array {index}"));
                }
            }
            if !of.array.is_described()? {
                wrong.push(format!("array {index} is described otherwise"));
            }
            if of.texture.array()? != of.array.resource_handle() {
                wrong.push(format!("texture {index} is said to be of another array"));
            }
        }
        Ok(wrong)
    }
}

/// Makes an array of a kind that is not made again.
pub(super) fn leave_a_strange_one() -> Result<(), GpuError> {
    Array::new(Shape { sides: [64, 64, 0], flags: COLOUR, levels: 1 }).map(drop)
}
