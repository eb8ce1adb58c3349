//! Errors' names, and functions by name.

use super::{address, private};
use crate::abi::{In, Out, Text, entry_points};
use crate::codes::{Code, Outcome};
use std::ffi::{c_char, c_int, c_ulonglong, c_void};

/// From this version on `cuCtxCreate` means `cuCtxCreate_v4`.
const CONTEXT_PARAMETERS: c_int = 13000;
/// Newest first.
const SUFFIXES: [&str; 3] = ["_v4", "_v2", ""];

/// The function that a program built for this version of CUDA means.
fn look_up(name: &str, version: c_int, is_per_thread: bool) -> Option<*const c_void> {
    let variants: &[&str] = if is_per_thread { &["_ptsz", "_ptds", ""] } else { &[""] };
    SUFFIXES
        .iter()
        .filter(|suffix| **suffix != "_v4" || version >= CONTEXT_PARAMETERS)
        // It takes a context, which no version of CUDA means by the plain name.
        .filter(|suffix| **suffix != "_v2" || name != "cuCtxSynchronize")
        .find_map(|suffix| variants.iter().find_map(|variant| address(&format!("{name}{suffix}{variant}"))))
}

fn get(function: &Out<*const c_void>, name: &Text, version: c_int, flags: c_ulonglong) -> Outcome<c_int> {
    /// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
    const PER_THREAD: c_ulonglong = 2;
    /// `CU_GET_PROC_ADDRESS_SUCCESS` and `…_SYMBOL_NOT_FOUND`.
    const FOUND: c_int = 0;
    const NOT_FOUND: c_int = 1;
    match look_up(name.get()?, version, flags & PER_THREAD != 0) {
        Some(address) => function.put(address).map(|()| FOUND),
        None => function.put(std::ptr::null()).map(|()| NOT_FOUND),
    }
}

entry_points! {
    fn cuGetErrorName(code: u32, text: Out<*const c_char>) {
        match Code(code).describe() {
            Some((name, _)) => text.put(name.as_ptr()),
            None => text.put(std::ptr::null()).and(Err(Code::INVALID_VALUE)),
        }
    }

    fn cuGetErrorString(code: u32, text: Out<*const c_char>) {
        match Code(code).describe() {
            Some((_, description)) => text.put(description.as_ptr()),
            None => text.put(std::ptr::null()).and(Err(Code::INVALID_VALUE)),
        }
    }

    fn cuGetProcAddress(name: Text, function: Out<*const c_void>, version: c_int, flags: c_ulonglong) {
        match get(&function, &name, version, flags)? {
            0 => Ok(()),
            _ => Err(Code::NOT_FOUND),
        }
    }

    fn cuGetProcAddress_v2(
        name: Text, function: Out<*const c_void>, version: c_int, flags: c_ulonglong, status: Out<c_int>,
    ) {
        let found = get(&function, &name, version, flags)?;
        status.put_if_wanted(found);
        if found == 0 { Ok(()) } else { Err(Code::NOT_FOUND) }
    }

    fn cuGetExportTable(table: Out<*const c_void>, id: In<[u8; 16]>) {
        // A program that needs another one is told that this driver has none.
        let found = private::table(&id.get()?);
        table.put(found.unwrap_or(std::ptr::null()))?;
        found.map(drop).ok_or(Code::NOT_FOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_the_function_that_its_version_of_cuda_means() {
        let known = |name| address(name).expect("it is exported");
        assert_eq!(look_up("cuMemAlloc", 13000, false), Some(known("cuMemAlloc_v2")));
        assert_eq!(look_up("cuInit", 12000, false), Some(known("cuInit")));
        assert_eq!(look_up("cuCtxCreate", 12000, false), Some(known("cuCtxCreate_v2")));
        assert_eq!(look_up("cuCtxCreate", 13000, false), Some(known("cuCtxCreate_v4")));
        assert_eq!(look_up("cuNoSuchFunction", 13000, false), None);
        assert_eq!(look_up("cuMemcpyDtoH", 13000, true), Some(known("cuMemcpyDtoH_v2_ptds")));
        assert_eq!(look_up("cuStreamQuery", 13000, true), Some(known("cuStreamQuery_ptsz")));
        assert_eq!(look_up("cuMemAlloc", 13000, true), Some(known("cuMemAlloc_v2")));
    }

    #[test]
    fn before_initialisation_everything_but_the_version_is_refused() {
        let initialised = crate::driver::driver().map(drop);
        assert_eq!(initialised, Err(Code::NOT_INITIALIZED));
        let (name, text) = Code::MPS_SERVER_NOT_READY.describe().expect("it is known");
        assert_eq!(name, c"CUDA_ERROR_MPS_SERVER_NOT_READY");
        assert!(!text.is_empty());
        assert_eq!(Code::SUCCESS.describe().map(|(name, _)| name), Some(c"CUDA_SUCCESS"));
        assert_eq!(Code(12345).describe(), None);
    }
}
