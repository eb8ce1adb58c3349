//! Arrays, external memory, texture and surface objects.

use super::memory::{account, discount};
use crate::abi::{In, Out, entry_points};
use crate::arrays::{self, ALIGNMENT, Array, External, Memory, SURFACE, Shape, Texture};
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::copies::deferred_arrays;
use crate::driver::Tables;
use crate::vmm::Allocation;
use std::ffi::{c_int, c_uint};

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const DESCRIPTOR: u64 = 1;
/// Most levels.
const MOST_LEVELS: c_uint = 18;

/// An array of this handle.
pub(super) fn find(tables: &Tables, handle: usize) -> Outcome<Array> {
    tables.arrays.arrays.get(&handle).copied().ok_or(Code::INVALID_HANDLE)
}

fn memory_for(tables: &mut Tables, shape: Shape, levels: u32, context: usize, device: u32) -> Outcome<Memory> {
    if shape.is_deferred() {
        let (_, most) = deferred_arrays();
        let is_room = most.is_none_or(|most| tables.arrays.deferred() < most);
        return if is_room { Ok(Memory::None) } else { Err(Code::OUT_OF_MEMORY) };
    }
    let size = shape.memory(levels)?;
    account(tables, device, size)?;
    match arrays::allocate(&mut tables.ranges, size, context, device) {
        Ok(bytes) => Ok(Memory::Own(bytes)),
        Err(error) => {
            discount(tables, device, size);
            Err(error)
        }
    }
}

/// What an array without memory is said to begin at multiples of.
fn alignment() -> Outcome<u64> {
    match deferred_arrays().0 {
        Some(0) => Err(Code::NOT_SUPPORTED),
        wanted => Ok(wanted.unwrap_or(ALIGNMENT as u64)),
    }
}

fn create(handle: &Out<usize>, words: [u64; 5]) -> Outcome {
    super::capture::unsafe_call()?;
    let (driver, context) = current()?;
    let shape = Shape::new(words)?;
    let mut tables = driver.tables();
    let memory = memory_for(&mut tables, shape, 1, context.home, context.device)?;
    let number = driver.new_handle();
    tables.arrays.add((context.home, context.device, shape), memory, number);
    handle.put(number)
}

fn freed(tables: &mut Tables, (memory, device): (Memory, u32)) -> Outcome {
    let size = arrays::give_back(&mut tables.ranges, memory)?;
    discount(tables, device, size);
    Ok(())
}

fn add_texture(value: &Out<u64>, texture: Texture) -> Outcome {
    let (driver, context) = current()?;
    let mut tables = driver.tables();
    let handle = usize::try_from(texture.resource[1]).map_err(|_| Code::INVALID_VALUE)?;
    let kind = texture.resource[0] & 0xffff_ffff;
    let shape = match kind {
        0 => Some(find(&tables, handle)?.shape),
        1 => Some(tables.arrays.mipmapped.get(&handle).ok_or(Code::INVALID_HANDLE)?.shape),
        // Linear memory must be there.
        2 | 3 if tables.ranges.is_accessible(handle, 1) => None,
        _ => return Err(Code::INVALID_VALUE),
    };
    let is_surface = texture.how.is_none();
    if is_surface && (kind != 0 || shape.is_none_or(|shape| shape.0[4] & SURFACE == 0)) {
        return Err(Code::INVALID_VALUE);
    }
    value.put(tables.arrays.add_texture(context.handle, texture))
}

fn texture(value: u64, is_surface: bool) -> Outcome<Texture> {
    let (driver, context) = current()?;
    let tables = driver.tables();
    let found = tables.arrays.textures.get(&(context.handle, value)).filter(|of| of.how.is_none() == is_surface);
    found.cloned().ok_or(Code::INVALID_VALUE)
}

fn remove_texture(value: u64) -> Outcome {
    let (driver, context) = current()?;
    driver.tables().arrays.remove_texture(context.handle, value, driver.is_under_mps())
}

entry_points! {
    fn cuArray3DCreate_v2(handle: Out<usize>, asked: In<[u64; 5]>) {
        create(&handle, asked.get()?)
    }

    fn cuArrayCreate_v2(handle: Out<usize>, asked: In<[u64; 3]>) {
        let [width, height, format] = asked.get()?;
        create(&handle, [width, height, 0, format, 0])
    }

    fn cuArrayDestroy(handle: usize) {
        super::capture::unsafe_call()?;
        let (driver, context) = current()?;
        context.drain()?;
        let mut tables = driver.tables();
        let gone = tables.arrays.remove(handle)?;
        freed(&mut tables, gone)
    }

    fn cuArray3DGetDescriptor_v2(descriptor: Out<[u64; 5]>, array: usize) {
        let (driver, _) = current()?;
        descriptor.put(find(&driver.tables(), array)?.shape.0)
    }

    fn cuArrayGetDescriptor_v2(descriptor: Out<[u64; 3]>, array: usize) {
        let (driver, _) = current()?;
        let [width, height, _, format, _] = find(&driver.tables(), array)?.shape.0;
        descriptor.put([width, height, format])
    }

    fn cuArrayGetMemoryRequirements(needs: Out<[u64; 4]>, array: usize, device: c_int) {
        let (driver, _) = current()?;
        driver.device(device)?;
        let shape = find(&driver.tables(), array)?.shape;
        if !shape.is_deferred() {
            return Err(Code::INVALID_VALUE);
        }
        needs.put([shape.memory(1)? as u64, alignment()?, 0, 0])
    }

    fn cuMipmappedArrayGetMemoryRequirements(needs: Out<[u64; 4]>, array: usize, device: c_int) {
        let (driver, _) = current()?;
        driver.device(device)?;
        let tables = driver.tables();
        let array = tables.arrays.mipmapped.get(&array).ok_or(Code::INVALID_HANDLE)?;
        if !array.shape.is_deferred() {
            return Err(Code::INVALID_VALUE);
        }
        let levels = u32::try_from(array.levels.len()).map_err(|_| Code::UNKNOWN)?;
        needs.put([array.shape.memory(levels)? as u64, alignment()?, 0, 0])
    }

    fn cuMipmappedArrayCreate(handle: Out<usize>, asked: In<[u64; 5]>, levels: c_uint) {
        super::capture::unsafe_call()?;
        let (driver, context) = current()?;
        let shape = Shape::new(asked.get()?)?;
        if !(1..=MOST_LEVELS).contains(&levels) {
            return Err(Code::INVALID_VALUE);
        }
        let mut tables = driver.tables();
        let memory = memory_for(&mut tables, shape, levels, context.home, context.device)?;
        let number = driver.new_handle();
        let names = (0..levels).map(|_| driver.new_handle()).collect();
        tables.arrays.add_mipmapped((context.home, context.device, shape), (memory, 0), number, names)?;
        handle.put(number)
    }

    fn cuMipmappedArrayDestroy(handle: usize) {
        super::capture::unsafe_call()?;
        let (driver, context) = current()?;
        context.drain()?;
        let mut tables = driver.tables();
        let gone = tables.arrays.remove_mipmapped(handle)?;
        freed(&mut tables, gone)
    }

    fn cuMipmappedArrayGetLevel(level: Out<usize>, array: usize, number: c_uint) {
        let (driver, _) = current()?;
        let tables = driver.tables();
        let array = tables.arrays.mipmapped.get(&array).ok_or(Code::INVALID_HANDLE)?;
        level.put(*array.levels.get(number as usize).ok_or(Code::INVALID_VALUE)?)
    }

    fn cuImportExternalMemory(handle: Out<usize>, asked: In<[u64; 13]>) {
        let (driver, context) = current()?;
        let [kind, descriptor, _, size, ..] = asked.get()?;
        if kind & 0xffff_ffff != DESCRIPTOR {
            return Err(Code::NOT_SUPPORTED);
        }
        let descriptor = i32::try_from(descriptor & 0xffff_ffff).map_err(|_| Code::INVALID_VALUE)?;
        let allocation = Allocation::import(descriptor, context.device)?;
        if allocation.size as u64 != size {
            return Err(Code::INVALID_VALUE);
        }
        // From now on it is the driver's, which has a file of its own already.
        nix::unistd::close(descriptor).map_err(|_| Code::INVALID_VALUE)?;
        let number = driver.new_handle();
        driver.tables().arrays.external.insert(number, External { context: context.handle, allocation });
        handle.put(number)
    }

    fn cuDestroyExternalMemory(handle: usize) {
        let (driver, _) = current()?;
        driver.tables().arrays.external.remove(&handle).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    fn cuExternalMemoryGetMappedMipmappedArray(handle: Out<usize>, external: usize, asked: In<[u64; 15]>) {
        let (driver, _) = current()?;
        let [offset, width, height, depth, format, flags, levels, ..] = asked.get()?;
        let (shape, levels) = (Shape::new([width, height, depth, format, flags])?, (levels & 0xffff_ffff) as c_uint);
        let offset = usize::try_from(offset).map_err(|_| Code::INVALID_VALUE)?;
        let mut tables = driver.tables();
        let External { context, allocation } =
            tables.arrays.external.get(&external).cloned().ok_or(Code::INVALID_HANDLE)?;
        let is_inside = offset.checked_add(shape.memory(levels)?).is_some_and(|end| end <= allocation.size);
        if !(1..=MOST_LEVELS).contains(&levels) || shape.is_deferred() || !offset.is_multiple_of(ALIGNMENT) || !is_inside {
            return Err(Code::INVALID_VALUE);
        }
        let memory = Memory::View(allocation.map(allocation.size)?, allocation.size);
        let number = driver.new_handle();
        let names = (0..levels).map(|_| driver.new_handle()).collect();
        tables.arrays.add_mipmapped((context, allocation.device, shape), (memory, offset), number, names)?;
        handle.put(number)
    }

    fn cuTexObjectCreate(value: Out<u64>, resource: In<[u64; 18]>, how: In<[u64; 13]>, view: In<[u64; 14]>) {
        let view = if view.is_absent() { [0; 14] } else { view.get()? };
        add_texture(&value, Texture { resource: resource.get()?, how: Some(how.get()?), view })
    }

    fn cuTexObjectDestroy(value: u64) {
        remove_texture(value)
    }

    fn cuTexObjectGetResourceDesc(resource: Out<[u64; 18]>, value: u64) {
        resource.put(texture(value, false)?.resource)
    }

    fn cuTexObjectGetTextureDesc(how: Out<[u64; 13]>, value: u64) {
        how.put(texture(value, false)?.how.unwrap_or_default())
    }

    fn cuTexObjectGetResourceViewDesc(view: Out<[u64; 14]>, value: u64) {
        view.put(texture(value, false)?.view)
    }

    fn cuSurfObjectCreate(value: Out<u64>, resource: In<[u64; 18]>) {
        add_texture(&value, Texture { resource: resource.get()?, how: None, view: [0; 14] })
    }

    fn cuSurfObjectDestroy(value: u64) {
        remove_texture(value)
    }

    fn cuSurfObjectGetResourceDesc(resource: Out<[u64; 18]>, value: u64) {
        resource.put(texture(value, true)?.resource)
    }
}
