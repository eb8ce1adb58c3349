//! Modules and kernels.

use crate::abi::{In, Out, Text, entry_points};
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::driver::{Tables, driver};
use crate::graphs::{Launch, Task};
use crate::kernel::Kernel;
use crate::ptx::Module;
use crate::stream::Stream;
use crate::variables;
use remps_gpu_code::{ELF, FAT};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

/// Most threads of a block.
const MAX_THREADS: u64 = 1024;

/// Reads a PTX text up to its NUL, or a fat binary; of a cubin only the first bytes are looked at.
pub(super) fn read_image(image: &In<u8>) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut length = None;
    for index in 0..Module::max_text() {
        if length == Some(bytes.len()) {
            return Ok(bytes);
        }
        let byte = image.at(index)?;
        // No text begins as one of the others does.
        let is_text = !(bytes.starts_with(&ELF) || bytes.starts_with(&FAT));
        if byte == 0 && is_text {
            return Ok(bytes);
        }
        bytes.push(byte);
        if let Ok(start) = <[u8; 16]>::try_from(bytes.as_slice())
            && !is_text
        {
            length = Module::length(start);
        }
    }
    Err(Code::INVALID_IMAGE)
}

fn load(handle: &Out<usize>, image: &[u8]) -> Outcome {
    handle.put(loaded(image)?)
}

/// Loads a module into the current context; its handle.
pub(super) fn loaded(image: &[u8]) -> Outcome<usize> {
    let (driver, context) = current()?;
    let mut module = Module::parse(image, context.home)?;
    let number = driver.new_handle();
    let mut tables = driver.tables();
    variables::place(&mut tables, &mut module, context.device)?;
    tables.modules.insert(number, Arc::new(module));
    Ok(number)
}

/// Unloads a module.
pub(super) fn unload(tables: &mut Tables, module: usize) -> Outcome {
    let unloaded = tables.modules.remove(&module).ok_or(Code::INVALID_HANDLE)?;
    let ended: Vec<_> = tables.functions.extract_if(|_, (of, _)| Arc::ptr_eq(of, &unloaded)).collect();
    tables.spare_functions.extend(ended.into_iter().map(|(function, _)| function));
    variables::free(tables, &unloaded);
    Ok(())
}

/// The function of this name in a module; its handle.
pub(super) fn function_of(module: usize, name: &str) -> Outcome<usize> {
    let driver = driver()?;
    let mut tables = driver.tables();
    let module = tables.modules.get(&module).cloned().ok_or(Code::INVALID_HANDLE)?;
    if !module.kernels.contains_key(name) {
        return Err(Code::NOT_FOUND);
    }
    if !Kernel::exists(name) {
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    // One that was asked for before has its handle (OBSERVED.md).
    let is_it = |(_, (of, called)): &(&usize, &(Arc<Module>, String))| Arc::ptr_eq(of, &module) && called == name;
    if let Some((known, _)) = tables.functions.iter().find(is_it) {
        return Ok(*known);
    }
    let number = tables.spare_functions.pop().unwrap_or_else(|| driver.new_handle());
    tables.functions.insert(number, (module, name.to_owned()));
    Ok(number)
}

/// Names of a module's functions that this driver can run.
fn enumerable(module: &Module) -> impl Iterator<Item = &String> {
    module.kernels.keys().filter(|name| Kernel::exists(name))
}

/// Where a module's variable of this name is, and its size.
pub(super) fn variable_of(module: usize, name: &str) -> Outcome<(usize, usize)> {
    let module = driver()?.tables().modules.get(&module).cloned().ok_or(Code::INVALID_HANDLE)?;
    let variable = module.variables.iter().find(|variable| variable.name == name).ok_or(Code::NOT_FOUND)?;
    Ok((module.base + variable.offset, variable.bytes.len()))
}

/// Loads a module that cudart has wrapped, from the image at this address.
pub(super) fn load_wrapped(handle: &Out<usize>, image: usize) -> Outcome {
    load(handle, &read_image(&In::placed(image))?)
}

/// Arguments of a function, or of a kernel in its place, each in the bytes that it has.
pub(super) fn read_arguments(function: usize, arguments: &In<*const u8>) -> Outcome<Vec<Vec<u8>>> {
    let sizes = sizes_of(function)?;
    let values = sizes.iter().enumerate().map(|(index, &size)| {
        let value = arguments.argument(index, size)?;
        Ok(value.to_le_bytes()[..size].to_vec())
    });
    values.collect()
}

/// Sizes of the parameters of a function, or of a kernel in its place.
fn sizes_of(function: usize) -> Outcome<Vec<usize>> {
    let function = super::library::function_meant_by(function)?;
    let (module, name) = driver()?.tables().functions.get(&function).cloned().ok_or(Code::INVALID_HANDLE)?;
    module.kernels.get(&name).cloned().ok_or(Code::NOT_FOUND)
}

/// The function that is launched in this shape.
pub(super) fn shape_of(function: usize, shape: [c_uint; 7]) -> Outcome<usize> {
    let function = super::library::function_meant_by(function)?;
    let threads: u64 = shape[3..6].iter().map(|&count| u64::from(count)).product();
    if shape[..3].contains(&0) || threads == 0 || threads > MAX_THREADS {
        return Err(Code::INVALID_VALUE);
    }
    Ok(function)
}

/// Runs a launch on a stream.
pub(super) fn run(context: &Arc<Context>, stream: &Arc<Stream>, launch: &Launch) -> Outcome {
    let driver = driver()?;
    let (_, name) = driver.tables().functions.get(&launch.function).cloned().ok_or(Code::INVALID_HANDLE)?;
    let number = |bytes: &Vec<u8>| {
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    };
    let values: Vec<u64> = launch.values.iter().map(number).collect();
    let kernel = Kernel::new(&name, &values)?;
    let operation = move |context: &Context| kernel.run(driver, context);
    stream.enqueue(context, Box::new(operation)).map(drop)
}

/// A launch on a stream, with events that come when the kernel begins, and when it has ended.
pub(super) fn launch(
    function: usize,
    shape: [c_uint; 7],
    stream: usize,
    arguments: &In<*const u8>,
    events: [&[usize]; 2],
) -> Outcome {
    let (driver, context) = current()?;
    let values = read_arguments(function, arguments)?;
    let launch = Launch::new(shape_of(function, shape)?, shape, values);
    let found = super::stream::find(&context, stream)?;
    let [at_begin, at_end] = events;
    if !events.concat().is_empty() && driver.tables().graphs.captures.contains_key(&stream) {
        return Err(Code::NOT_SUPPORTED);
    }
    if driver.is_captured(stream, &Task::Launch(launch.clone()))? {
        return Ok(());
    }
    at_begin.iter().try_for_each(|event| super::event::record_in(&found, *event))?;
    run(&context, &found, &launch)?;
    at_end.iter().try_for_each(|event| super::event::record_in(&found, *event))
}

entry_points! {
    fn cuModuleLoadData(module: Out<usize>, image: In<u8>) {
        load(&module, &read_image(&image)?)
    }

    fn cuModuleLoadDataEx(
        module: Out<usize>, image: In<u8>, _count: c_uint, _options: *mut c_int, _values: *mut *mut c_void,
    ) {
        load(&module, &read_image(&image)?)
    }

    fn cuModuleLoad(module: Out<usize>, path: Text) {
        let image = std::fs::read(path.get()?).map_err(|_| Code::FILE_NOT_FOUND)?;
        let text = image.split(|&byte| byte == 0).next().unwrap_or_default();
        load(&module, if text.len() >= 4 { text } else { &image })
    }

    fn cuModuleUnload(module: usize) {
        let (driver, _) = current()?;
        unload(&mut driver.tables(), module)
    }

    fn cuModuleGetFunction(function: Out<usize>, module: usize, name: Text) {
        current()?;
        function.put(function_of(module, name.get()?)?)
    }

    fn cuModuleGetGlobal_v2(address: Out<usize>, size: Out<usize>, module: usize, name: Text) {
        current()?;
        let (start, length) = variable_of(module, name.get()?)?;
        address.put_if_wanted(start);
        size.put_if_wanted(length);
        Ok(())
    }

    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_int, function: usize) {
        let (driver, _) = current()?;
        if !driver.tables().functions.contains_key(&function) {
            return Err(Code::INVALID_HANDLE);
        }
        // Most threads of a block, registers, PTX and binary version; the kernels use no other memory.
        value.put(match attribute { 0 => 1024, 4 => 16, 5 | 6 => 80, 1..=15 => 0, _ => return Err(Code::INVALID_VALUE) })
    }

    fn cuFuncGetParamInfo(function: usize, index: usize, offset: Out<usize>, size: Out<usize>) {
        let sizes = sizes_of(function)?;
        size.put_if_wanted(*sizes.get(index).ok_or(Code::INVALID_VALUE)?);
        let before = sizes[..index].iter().fold(0_usize, |end, size| end.next_multiple_of((*size).max(1)) + size);
        offset.put(before.next_multiple_of(sizes[index].max(1)))
    }

    fn cuFuncGetName(place: Out<*const c_char>, function: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        let (_, name) = tables.functions.get(&function).cloned().ok_or(Code::INVALID_HANDLE)?;
        let text = CString::new(name).map_err(|_| Code::UNKNOWN)?;
        place.put(tables.names.entry(function).or_insert(text).as_ptr())
    }

    fn cuLinkCreate_v2(_count: c_uint, _options: *mut c_int, _values: *mut *mut c_void, linker: Out<usize>) {
        let (driver, _) = current()?;
        let number = driver.new_handle();
        driver.tables().linkers.insert(number);
        linker.put(number)
    }

    fn cuLinkDestroy(linker: usize) {
        if driver()?.tables().linkers.remove(&linker) { Ok(()) } else { Err(Code::INVALID_HANDLE) }
    }

    fn cuModuleGetFunctionCount(count: Out<c_uint>, module: usize) {
        let module = driver()?.tables().modules.get(&module).cloned().ok_or(Code::INVALID_HANDLE)?;
        count.put(c_uint::try_from(enumerable(&module).count()).map_err(|_| Code::INVALID_VALUE)?)
    }

    fn cuModuleEnumerateFunctions(list: usize, room: c_uint, module: usize) {
        let of = driver()?.tables().modules.get(&module).cloned().ok_or(Code::INVALID_HANDLE)?;
        for (index, name) in enumerable(&of).take(room as usize).enumerate() {
            Out::at(list + index * size_of::<usize>()).put(function_of(module, name)?)?;
        }
        Ok(())
    }

    fn cuFuncGetModule(place: Out<usize>, function: usize) {
        let driver = driver()?;
        let tables = driver.tables();
        let (module, _) = tables.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        let handle = tables.modules.iter().find(|(_, of)| Arc::ptr_eq(of, module)).map(|(handle, _)| *handle);
        place.put(handle.ok_or(Code::INVALID_HANDLE)?)
    }

    fn cuFuncSetAttribute(function: usize, _attribute: c_int, _value: c_int) {
        let (driver, _) = current()?;
        if driver.tables().functions.contains_key(&function) { Ok(()) } else { Err(Code::INVALID_HANDLE) }
    }

    fn cuLaunchKernel(
        function: usize,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_memory: c_uint,
        stream: usize,
        arguments: In<*const u8>,
        extra: In<usize>,
    ) {
        if !extra.is_absent() {
            return Err(Code::NOT_SUPPORTED);
        }
        launch(function, [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_memory], stream, &arguments, [&[], &[]])
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>, function: usize, block_size: c_int, _shared_memory: usize,
    ) {
        /// Threads of a multiprocessor and most blocks on it.
        const THREADS: c_int = 2048;
        const BLOCKS: c_int = 32;
        let (driver, _) = current()?;
        if !driver.tables().functions.contains_key(&function) {
            return Err(Code::INVALID_HANDLE);
        }
        blocks.put(THREADS.checked_div(block_size).filter(|_| block_size > 0).ok_or(Code::INVALID_VALUE)?.min(BLOCKS))
    }
}
