//! Libraries: modules for all contexts, loaded into each when it is first used there.

use super::launch::{function_of, loaded, read_image, unload, variable_of};
use crate::abi::{In, Out, Text, entry_points};
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::driver::{Library, driver};
use crate::ptx::Module;
use crate::tables::Table;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

/// The library's module in the current context; its handle.
fn module(library: usize) -> Outcome<usize> {
    let (driver, context) = current()?;
    let (image, known) = {
        let tables = driver.tables();
        let library = tables.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        (library.image.clone(), library.modules.get(&context.home).copied())
    };
    if let Some(known) = known {
        return Ok(known);
    }
    let handle = loaded(&image)?;
    let mut tables = driver.tables();
    let library = tables.libraries.get_mut(&library).ok_or(Code::INVALID_HANDLE)?;
    library.modules.insert(context.home, handle);
    Ok(handle)
}

/// The function that is meant by a handle of one, or of a kernel, which stands for its function in the current context.
pub(super) fn function_meant_by(handle: usize) -> Outcome<usize> {
    // What is wrong with a kernel's context is its answer, and not that it is no function.
    let is_kernel = driver()?.tables().kernels.contains_key(&handle);
    if is_kernel { function_of_kernel(handle) } else { Ok(handle) }
}

/// The function that a kernel stands for in the current context.
fn function_of_kernel(kernel: usize) -> Outcome<usize> {
    let (library, name) = driver()?.tables().kernels.get(&kernel).cloned().ok_or(Code::INVALID_HANDLE)?;
    function_of(module(library)?, &name)
}

/// The handle of a kernel of a library: one that was asked for before has its own (OBSERVED.md).
fn kernel_of(library: usize, name: String) -> Outcome<usize> {
    let number = driver()?.new_handle();
    let mut tables = driver()?.tables();
    let known =
        tables.kernels.iter().find(|(_, (of, called))| *of == library && *called == name).map(|(kernel, _)| *kernel);
    let kernel = known.unwrap_or(number);
    tables.kernels.insert(kernel, (library, name));
    Ok(kernel)
}

entry_points! {
    fn cuLibraryLoadData(
        handle: Out<usize>, image: In<u8>, _options: *mut c_int, _values: *mut *mut c_void, _count: c_uint,
        _library_options: *mut c_int, _library_values: *mut *mut c_void, _library_count: c_uint,
    ) {
        let image = read_image(&image)?;
        Module::parse(&image, 0)?;
        let number = driver()?.new_handle();
        driver()?.tables().libraries.insert(number, Library { image, modules: Table::default() });
        handle.put(number)
    }

    fn cuLibraryUnload(library: usize) {
        let driver = driver()?;
        let mut tables = driver.tables();
        let unloaded = tables.libraries.remove(&library).ok_or(Code::INVALID_HANDLE)?;
        tables.kernels.retain(|_, (of, _)| *of != library);
        unloaded.modules.values().try_for_each(|module| unload(&mut tables, *module))
    }

    fn cuLibraryGetKernel(handle: Out<usize>, library: usize, name: Text) {
        let name = name.get()?;
        let image = driver()?.tables().libraries.get(&library).map(|of| of.image.clone()).ok_or(Code::INVALID_HANDLE)?;
        if !Module::parse(&image, 0)?.kernels.contains_key(name) {
            return Err(Code::NOT_FOUND);
        }
        handle.put(kernel_of(library, name.to_owned())?)
    }

    fn cuLibraryGetKernelCount(count: Out<c_uint>, library: usize) {
        let tables = driver()?.tables();
        let library = tables.libraries.get(&library).ok_or(Code::INVALID_HANDLE)?;
        let kernels = Module::parse(&library.image, 0)?.kernels.len();
        count.put(c_uint::try_from(kernels).map_err(|_| Code::INVALID_VALUE)?)
    }

    fn cuLibraryEnumerateKernels(list: usize, room: c_uint, library: usize) {
        let image = driver()?.tables().libraries.get(&library).map(|of| of.image.clone()).ok_or(Code::INVALID_HANDLE)?;
        let names = Module::parse(&image, 0)?.kernels.into_keys();
        for (index, name) in names.take(room as usize).enumerate() {
            Out::at(list + index * size_of::<usize>()).put(kernel_of(library, name)?)?;
        }
        Ok(())
    }

    fn cuKernelGetName(place: Out<*const c_char>, kernel: usize) {
        let mut tables = driver()?.tables();
        let (_, name) = tables.kernels.get(&kernel).cloned().ok_or(Code::INVALID_HANDLE)?;
        let text = CString::new(name).map_err(|_| Code::UNKNOWN)?;
        place.put(tables.names.entry(kernel).or_insert(text).as_ptr())
    }

    fn cuLibraryGetModule(handle: Out<usize>, library: usize) {
        handle.put(module(library)?)
    }

    fn cuLibraryGetGlobal(address: Out<usize>, size: Out<usize>, library: usize, name: Text) {
        let (start, length) = variable_of(module(library)?, name.get()?)?;
        address.put_if_wanted(start);
        size.put_if_wanted(length);
        Ok(())
    }

    fn cuKernelGetFunction(function: Out<usize>, kernel: usize) {
        current()?;
        function.put(function_of_kernel(kernel)?)
    }
}
