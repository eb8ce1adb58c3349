//! Variables of a module and of a library, made once: a table that the program writes by copies and sets, words that
//! kernels and a graph count up, and constants that keep the values of their image.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

mod graph;

use super::failed;
use super::workload::{pattern, words_are};
use crate::programs::gpu::{Argument, Gpu, GpuError, Kernel, Stream};
use crate::programs::memory_probe::{allocate, check};
use cudarc::driver::sys;
use graph::{Changing, Places};
use std::ffi::CStr;

/// The image.
const IMAGE: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 table[4096];
.visible .global .align 4 .u32 tally[1024];
.visible .global .align 4 .u32 mark[1024];
.visible .const .align 4 .u32 scale[16] = {1, 2, 3, 4, 5, 6, 7, 8};
\0";
/// Bytes of the table, words of the tally and the mark, bytes of the constants.
const TABLE: usize = 4096 * 4;
const TALLY: u32 = 1024;
const SCALE: usize = 16 * 4;
/// Bytes that a round writes, and how far the next one's are.
const PIECE: usize = 100;
const STEP: usize = 1_234;

/// What has the variables.
#[derive(Clone, Copy)]
enum Owner {
    Module(sys::CUmodule),
    Library(sys::CUlibrary),
}

impl Owner {
    fn module() -> Result<Self, GpuError> {
        let mut module = std::ptr::null_mut();
        // SAFETY: the result is a variable of ours, and the image ends with NUL.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, IMAGE.as_ptr().cast()) })?;
        Ok(Self::Module(module))
    }

    fn library() -> Result<Self, GpuError> {
        let mut library = std::ptr::null_mut();
        let (into, image) = (&raw mut library, IMAGE.as_ptr().cast());
        let (names, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (library_names, library_values) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: as above, and there are no options.
        let answer = unsafe { sys::cuLibraryLoadData(into, image, names, values, 0, library_names, library_values, 0) };
        check("cuLibraryLoadData", answer)?;
        Ok(Self::Library(library))
    }

    /// Address of a variable, which has so many bytes.
    fn variable(self, name: &CStr, bytes: usize) -> Result<u64, GpuError> {
        let (mut address, mut size) = (0, 0);
        let (into, length) = (&raw mut address, &raw mut size);
        let answer = match self {
            // SAFETY: the results are variables of ours.
            Self::Module(module) => unsafe { sys::cuModuleGetGlobal_v2(into, length, module, name.as_ptr()) },
            // SAFETY: as above.
            Self::Library(library) => unsafe { sys::cuLibraryGetGlobal(into, length, library, name.as_ptr()) },
        };
        check("cuModuleGetGlobal", answer)?;
        if size == bytes { Ok(address) } else { Err(failed("cuModuleGetGlobal", format_args!("{size} bytes"))) }
    }
}

/// The variables of a module or library.
pub(super) struct Variables {
    owner: Owner,
    /// Addresses of table, tally, scale.
    addresses: [u64; 3],
    /// What is in the table.
    table: Vec<u8>,
    scale: Vec<u8>,
    /// Works on the tally and the mark.
    graph: Changing,
    /// Memory that pieces are copied from, as long as two.
    source: u64,
    /// Pieces of the table that a device may have written last: a recovery does not put these back.
    from_device: Vec<usize>,
    count: u32,
    place: usize,
}

fn write(address: u64, bytes: &[u8]) -> Result<(), GpuError> {
    // SAFETY: the source is as long as the copy; the driver checks the destination.
    check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) })
}

fn read(address: u64, length: usize) -> Result<Vec<u8>, GpuError> {
    let mut bytes = vec![0; length];
    // SAFETY: the destination is as long as the copy; the driver checks the source.
    check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, length) })?;
    Ok(bytes)
}

/// Reads rows of a piece's length that lie one behind the other.
fn read_rows(address: u64, count: usize) -> Result<Vec<u8>, GpuError> {
    let mut bytes = vec![0_u8; PIECE * count];
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: address,
        srcArray: std::ptr::null_mut(),
        srcPitch: PIECE,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: bytes.as_mut_ptr().cast(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: PIECE,
        WidthInBytes: PIECE,
        Height: count,
    };
    // SAFETY: the destination is as long as the copy; the driver checks the source.
    check("cuMemcpy2DUnaligned", unsafe { sys::cuMemcpy2DUnaligned_v2(&raw const copy) })?;
    Ok(bytes)
}

impl Variables {
    /// Those of a module and those of a library.
    pub(super) fn both(increment: Kernel) -> Result<Vec<Self>, GpuError> {
        Ok(vec![Self::new(Owner::module()?, increment)?, Self::new(Owner::library()?, increment)?])
    }

    fn new(owner: Owner, increment: Kernel) -> Result<Self, GpuError> {
        let addresses = Self::ask(owner)?;
        let table = pattern(TABLE, 33);
        write(addresses[0], &table)?;
        let mut scale: Vec<u8> = (1_u32..=8).chain([0; 8]).flat_map(u32::to_le_bytes).collect();
        scale[40..60].fill(0xc3);
        write(addresses[2] + 40, &scale[40..60])?;
        let mark = owner.variable(c"mark", TALLY as usize * 4)?;
        let graph = Changing::new(increment, Places { mark, tally: addresses[1], words: TALLY })?;
        let source = allocate(2 * PIECE)?;
        let mut variables =
            Self { owner, addresses, table, scale, graph, source, from_device: Vec::new(), count: 0, place: 0 };
        variables.begin_anew()?;
        Ok(variables)
    }

    fn ask(owner: Owner) -> Result<[u64; 3], GpuError> {
        Ok([
            owner.variable(c"table", TABLE)?,
            owner.variable(c"tally", TALLY as usize * 4)?,
            owner.variable(c"scale", SCALE)?,
        ])
    }

    /// Writes pieces of the table in several ways and counts the tally up, on a stream; waits, and compares.
    pub(super) fn round(&mut self, gpu: &Gpu, increment: Kernel, stream: Stream) -> Result<(), GpuError> {
        let at = self.next();
        let bytes = pattern(PIECE, at.to_le_bytes()[0]);
        let place = self.addresses[0] + at as u64;
        // SAFETY: the source is as long as the copy; the driver checks the destination.
        let answer = unsafe { sys::cuMemcpyHtoDAsync_v2(place, bytes.as_ptr().cast(), PIECE, stream.0) };
        check("cuMemcpyHtoDAsync", answer)?;
        self.table[at..at + PIECE].copy_from_slice(&bytes);
        let at = self.next();
        // SAFETY: the driver checks the destination.
        let answer = unsafe { sys::cuMemsetD32Async(self.addresses[0] + at as u64, 0x1234_5678, PIECE / 4, stream.0) };
        check("cuMemsetD32Async", answer)?;
        self.table[at..at + PIECE].copy_from_slice(&0x1234_5678_u32.to_le_bytes().repeat(PIECE / 4));
        self.copy_in_a_batch(stream)?;
        gpu.launch_in(stream, increment, TALLY, &[Argument::U64(self.addresses[1]), Argument::U32(TALLY)])?;
        // SAFETY: it lives as long as the process.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0) })?;
        let rows = read_rows(self.addresses[0], TABLE / PIECE)?;
        if rows != self.table[..rows.len()] {
            return Err(failed("cuMemcpy2DUnaligned", "a byte of a variable is wrong"));
        }
        self.count += 1;
        if words_are(&gpu.read(self.addresses[1], TALLY as usize)?, self.count) {
            self.count += 1;
            self.graph.round(gpu, stream, self.count)
        } else {
            Err(failed("increment", "a word of a variable is wrong"))
        }
    }

    /// Writes two pieces of the table by one call with a list of addresses.
    fn copy_in_a_batch(&mut self, stream: Stream) -> Result<(), GpuError> {
        let places = [self.next(), self.next()];
        let bytes = pattern(2 * PIECE, places[0].to_le_bytes()[0]);
        write(self.source, &bytes)?;
        let mut to = places.map(|at| self.addresses[0] + at as u64);
        let mut from = [self.source, self.source + PIECE as u64];
        let (mut sizes, mut first) = ([PIECE; 2], 0);
        // SAFETY: numbers and enumerations that zeros are of.
        let mut attributes = unsafe { std::mem::zeroed::<sys::CUmemcpyAttributes>() };
        attributes.srcAccessOrder = sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
        let (attributes, first) = (&raw mut attributes, &raw mut first);
        self.from_device.extend(places);
        // SAFETY: two of each, and one attribute from the first copy on; the driver checks the addresses.
        let answer = unsafe { sys::cuMemcpyBatchAsync_v2(to, from, sizes, 2, attributes, first, 1, stream.0) };
        check("cuMemcpyBatchAsync", answer)?;
        // SAFETY: it lives as long as the process.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0) })?;
        for (at, piece) in places.into_iter().zip(bytes.chunks(PIECE)) {
            let address = self.addresses[0] + at as u64;
            if read(address, PIECE)? != piece {
                return Err(failed("cuMemcpyBatchAsync", "a byte of a variable is wrong"));
            }
            // What comes from a device is not put back after a recovery, what comes from the host is.
            write(address, piece)?;
            self.table[at..at + PIECE].copy_from_slice(piece);
        }
        self.from_device.clear();
        Ok(())
    }

    /// Where the next piece of the table is, a multiple of four.
    fn next(&mut self) -> usize {
        self.place = (self.place + STEP) % (TABLE - PIECE);
        self.place & !3
    }

    /// What the device has written is in doubt after a recovery.
    pub(super) fn begin_anew(&mut self) -> Result<(), GpuError> {
        self.count = 0;
        for at in &self.from_device {
            write(self.addresses[0] + *at as u64, &self.table[*at..at + PIECE])?;
        }
        self.from_device.clear();
        // SAFETY: the driver checks the destination.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(self.addresses[1], 0, TALLY as usize * 4) })
    }

    /// What is not as the program has written it.
    pub(super) fn wrong(&self) -> Result<Option<String>, GpuError> {
        let [table, _, scale] = self.addresses;
        if Self::ask(self.owner)? != self.addresses {
            return Ok(Some("a variable has another address".to_owned()));
        }
        let are_right = read(table, TABLE)? == self.table && read(scale, SCALE)? == self.scale;
        Ok((!are_right).then(|| format!("a variable near {table:#x} has other bytes")))
    }
}
