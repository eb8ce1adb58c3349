//! Blocks of memory of each kind: how they are made, copied, read and given back.
#![expect(unsafe_code, reason = "the host's own memory is given back as it was made")]

use super::super::api::Answer;
use super::super::program::{BLOCK, CELL, Memory, Place, Queue};
use super::super::wrong::Bytes;
use super::arrays::{self, Seen};
use super::{Machine, write_word};
use std::ffi::CStr;
use std::ptr;
use std::sync::OnceLock;

/// `CU_MEMHOSTALLOC_PORTABLE`, and with it `CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE: u32 = 1;
pub(in super::super) const FOR_KERNELS: u32 = 3;
/// Bytes of a page of the host's, and of a piece of memory that a device maps.
pub(in super::super) const PAGE: usize = 4096;
const PIECE: usize = 2 << 20;
/// The beginnings of `CUmemPoolProps` and `CUmemAllocationProp`: memory of a device that is pinned, for nobody else.
const ALLOCATION: [u32; 22] = {
    let mut words = [0; 22];
    (words[0], words[2]) = (1, 1);
    words
};
/// Where the device's number stands there.
const OF_DEVICE: usize = 3;
/// `CUmemAccessDesc`: a device, its number, reads and writes.
const ACCESS: [u32; 3] = [1, 0, 3];
/// Images with a variable of a block's size each, with the name `it`.
const VARIABLE: &CStr = c".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .u32 it[32];\n";
const CONSTANT: &CStr =
    c".version 8.0\n.target sm_80\n.address_size 64\n.visible .const .align 4 .u32 it[32] = {1, 2, 3, 4};\n";
const TEXT: &CStr =
    c".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 4 .b8 it[128] = {97, 98, 99};\n";
const NAME: &CStr = c"it";

/// Zeroes of the host's on a page of their own.
pub(in super::super) fn page() -> usize {
    pages(PAGE)
}

/// The same of so many bytes.
pub(in super::super) fn pages(size: usize) -> usize {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, wherever the kernel puts it.
    let pages = unsafe { libc::mmap(ptr::null_mut(), size, access, flags, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    pages.expose_provenance()
}

/// The page is gone for good: whoever still writes there dies by it, where that can be seen.
fn no_page(address: usize) {
    let page = ptr::with_exposed_provenance_mut(address);
    // SAFETY: it was mapped by `page`, and is taken out of the table.
    unsafe { libc::mprotect(page, PAGE, libc::PROT_NONE) };
}

/// A fat binary with the text of a variable, packed by LZ4 without a repetition: laid out as `fatbinary` of CUDA 13.5 does.
/// Its part's header has room for options, none, which a real driver reads where the header says.
fn fat_binary() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        const HEADER: u32 = 72;
        const OPTIONS: u32 = 64;
        let text = VARIABLE.to_bytes_with_nul();
        let more = u8::try_from(text.len() - 15).expect("a short text");
        let mut packed = [&[0xf0, more], text].concat();
        let length = u32::try_from(packed.len()).expect("a short text");
        packed.resize(packed.len().next_multiple_of(8), 0);
        let mut image = [0xba55_ed50_u32.to_le_bytes(), [1, 0, 16, 0]].concat();
        image.extend((u64::from(HEADER) + packed.len() as u64).to_le_bytes());
        let words = [0x0101_0001, HEADER, u32::try_from(packed.len()).expect("short"), 0, length, OPTIONS, 8, 80];
        image.extend(words.iter().flat_map(|word: &u32| word.to_le_bytes()));
        image.extend([0, 0x2011, 0, text.len() as u64, 0].iter().flat_map(|word: &u64| word.to_le_bytes()));
        image.extend(packed);
        image
    })
}

/// Memory of the program's.
#[derive(Debug, Clone)]
pub(in super::super) struct Block {
    pub(in super::super) address: usize,
    pub(super) memory: Memory,
    pub(super) device: u8,
    /// Module, library, pool or array.
    pub(super) owner: usize,
    /// Of an array, whose addresses count from 0.
    pub(super) seen: Seen,
}

impl Machine<'_> {
    pub(super) fn read(&self, from: Place, is_own: bool) -> Answer<Bytes> {
        let mut bytes = [0; CELL];
        let place = bytes.as_mut_ptr().expose_provenance();
        if self.is_array(from)? {
            self.copy_row((arrays::HOST, place, 0), self.side(from)?, CELL, (is_own, 0), false)?;
            return Ok(bytes);
        }
        let address = self.at(from)?;
        if is_own {
            self.api.cuMemcpyDtoH_v2_ptds(place, address, CELL)?;
        } else {
            self.api.cuMemcpyDtoH_v2(place, address, CELL)?;
        }
        Ok(bytes)
    }

    pub(super) fn copy(
        &self,
        to: Place,
        from: Place,
        size: usize,
        on: Queue,
        is_async: bool,
        is_generic: bool,
    ) -> Answer {
        let (api, (is_own, stream)) = (self.api, self.on(on)?);
        if self.is_array(to)? || self.is_array(from)? {
            return self.copy_row(self.side(to)?, self.side(from)?, size, (is_own, stream), is_async);
        }
        let (target, source) = (self.at(to)?, self.at(from)?);
        match (is_generic, self.is_host(to)?, self.is_host(from)?, is_async, is_own) {
            (true, _, _, true, false) => api.cuMemcpyAsync(target, source, size, stream),
            (true, _, _, true, true) => api.cuMemcpyAsync_ptsz(target, source, size, stream),
            (true, _, _, false, false) => api.cuMemcpy(target, source, size),
            (true, _, _, false, true) => api.cuMemcpy_ptds(target, source, size),
            (_, false, true, true, false) => api.cuMemcpyHtoDAsync_v2(target, source, size, stream),
            (_, false, true, true, true) => api.cuMemcpyHtoDAsync_v2_ptsz(target, source, size, stream),
            (_, false, true, false, false) => api.cuMemcpyHtoD_v2(target, source, size),
            (_, false, true, false, true) => api.cuMemcpyHtoD_v2_ptds(target, source, size),
            (_, true, _, true, false) => api.cuMemcpyDtoHAsync_v2(target, source, size, stream),
            (_, true, _, true, true) => api.cuMemcpyDtoHAsync_v2_ptsz(target, source, size, stream),
            (_, true, _, false, false) => api.cuMemcpyDtoH_v2(target, source, size),
            (_, true, _, false, true) => api.cuMemcpyDtoH_v2_ptds(target, source, size),
            (_, false, false, true, false) => api.cuMemcpyDtoDAsync_v2(target, source, size, stream),
            (_, false, false, true, true) => api.cuMemcpyDtoDAsync_v2_ptsz(target, source, size, stream),
            (_, false, false, false, false) => api.cuMemcpyDtoD_v2(target, source, size),
            (_, false, false, false, true) => api.cuMemcpyDtoD_v2_ptds(target, source, size),
        }
    }

    pub(super) fn allocate(&self, memory: Memory, device: u8) -> Answer<Block> {
        let api = self.api;
        let (mut address, mut owner, mut size) = (0, 0, 0);
        let mut seen = Seen::default();
        match memory {
            Memory::Array => (owner, seen) = self.make_array(device)?,
            Memory::OfOwnPool => {
                let mut properties = ALLOCATION;
                properties[OF_DEVICE] = device.into();
                api.cuMemPoolCreate(&raw mut owner, properties.as_ptr())?;
                api.cuMemAllocFromPoolAsync(&raw mut address, BLOCK, owner, 0)?;
            }
            Memory::Mapped => address = self.map(device)?,
            Memory::Registered => {
                address = page();
                // What could not be registered stays.
                api.cuMemHostRegister_v2(address, PAGE, FOR_KERNELS)?;
            }
            Memory::Device => api.cuMemAlloc_v2(&raw mut address, BLOCK)?,
            Memory::Pooled => api.cuMemAllocAsync(&raw mut address, BLOCK, 0)?,
            Memory::Pinned => api.cuMemHostAlloc(&raw mut address, BLOCK, PORTABLE)?,
            Memory::Pageable => {
                address = page();
            }
            Memory::OfLibrary | Memory::OfFatBinary => {
                let image = if memory == Memory::OfLibrary { VARIABLE.as_ptr() } else { fat_binary().as_ptr().cast() };
                api.cuLibraryLoadData(&raw mut owner, image, 0, 0, 0, 0, 0, 0)?;
                api.cuLibraryGetGlobal(&raw mut address, &raw mut size, owner, NAME.as_ptr())?;
            }
            Memory::Variable | Memory::Constant | Memory::Text => {
                let is_of = |kind| memory == kind;
                let image = if is_of(Memory::Constant) {
                    CONSTANT
                } else if is_of(Memory::Text) {
                    TEXT
                } else {
                    VARIABLE
                };
                api.cuModuleLoadData(&raw mut owner, image.as_ptr())?;
                api.cuModuleGetGlobal_v2(&raw mut address, &raw mut size, owner, NAME.as_ptr())?;
            }
        }
        if memory.is_host() {
            // The driver does not promise zeros.
            (0..BLOCK / 4).for_each(|word| write_word(address + word * 4, 0));
        }
        Ok(Block { address, memory, device, owner, seen })
    }

    /// A piece of a device's memory in addresses of its own.
    fn map(&self, device: u8) -> Answer<usize> {
        let (api, mut address, mut handle) = (self.api, 0, 0);
        let (mut properties, mut access) = (ALLOCATION, ACCESS);
        properties[OF_DEVICE] = device.into();
        access[1] = device.into();
        api.cuMemCreate(&raw mut handle, PIECE, properties.as_ptr(), 0)?;
        api.cuMemAddressReserve(&raw mut address, PIECE, 0, 0, 0)?;
        api.cuMemMap(address, PIECE, 0, handle, 0)?;
        // The mapping keeps it.
        api.cuMemRelease(handle)?;
        api.cuMemSetAccess(address, PIECE, access.as_ptr(), 1)?;
        Ok(address)
    }

    pub(super) fn free(&self, block: &Block) -> Answer {
        match block.memory {
            Memory::Array => self.end_array(block.owner, block.seen),
            Memory::Device | Memory::Pooled => self.api.cuMemFree_v2(block.address),
            Memory::OfOwnPool => {
                self.api.cuMemFree_v2(block.address)?;
                self.api.cuMemPoolDestroy(block.owner)
            }
            Memory::Mapped => {
                self.api.cuMemUnmap(block.address, PIECE)?;
                self.api.cuMemAddressFree(block.address, PIECE)
            }
            Memory::Registered => {
                // What is still registered stays.
                self.api.cuMemHostUnregister(block.address)?;
                no_page(block.address);
                Ok(())
            }
            Memory::Pinned => self.api.cuMemFreeHost(block.address),
            Memory::Pageable => {
                no_page(block.address);
                Ok(())
            }
            Memory::OfLibrary | Memory::OfFatBinary => self.api.cuLibraryUnload(block.owner),
            Memory::Variable | Memory::Constant | Memory::Text => self.api.cuModuleUnload(block.owner),
        }
    }
}
