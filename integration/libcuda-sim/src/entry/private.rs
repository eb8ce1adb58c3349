//! The private tables that cudart needs, as far as their functions are known.
//!
//! Names, places and arguments are those of ZLUDA (`dark_api/src/lib.rs`): a table begins with its length in bytes, or,
//! that of the context-local storage, ends with null. As in the real library, the tables are constants that the linker
//! makes read-only, and what a program has put into a context is given to its callback when the context ends.
#![expect(unsafe_code, reason = "tables of functions, and a program's callback")]

use super::context::ordinal;
use super::launch::load_wrapped;
use super::strange;
use crate::abi::{In, Out, enter};
use crate::codes::{Code, Outcome};
use crate::contexts::{current_handle, set_current};
use crate::driver::{Driver, driver};
use std::ffi::{c_int, c_void};
use std::ptr;

/// What a program is called back with: context, key, value.
pub(crate) type Ended = extern "C" fn(usize, usize, usize);

/// A table's words.
#[repr(transparent)]
struct Table<const N: usize>([*const c_void; N]);

// SAFETY: numbers and addresses of functions, which never change.
unsafe impl<const N: usize> Sync for Table<N> {}

const fn bytes<const N: usize>() -> *const c_void {
    ptr::without_provenance(N * size_of::<usize>())
}

static CUDART: Table<13> = {
    let mut words = [ptr::null(); 13];
    words[0] = bytes::<13>();
    words[1] = module as *const c_void;
    words[2] = primary as *const c_void;
    words[12] = compilers as *const c_void;
    Table(words)
};
static STORAGE: Table<4> = Table([put as *const c_void, delete as *const c_void, get as *const c_void, ptr::null()]);
static CHECKS: Table<4> = Table([bytes::<4>(), ptr::null(), check as *const c_void, ptr::null()]);

static CURRENT: Table<3> = Table([bytes::<3>(), set as *const c_void, current as *const c_void]);

/// The table of this name.
pub(super) fn table(id: &[u8; 16]) -> Option<*const c_void> {
    match id {
        b"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9" => Some(CUDART.0.as_ptr().cast()),
        b"\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93" => Some(STORAGE.0.as_ptr().cast()),
        b"\x26\x3e\x88\x60\x7c\xd2\x61\x43\x92\xf6\xbb\xd5\x00\x6d\xfa\x7e" => Some(CHECKS.0.as_ptr().cast()),
        b"\x42\xd8\x5a\x81\x23\xf6\xcb\x47\x82\x98\xf6\xe7\x8a\x3a\xec\xdc" => Some(CURRENT.0.as_ptr().cast()),
        strange::NAME => Some(strange::table()),
        _ => None,
    }
}

/// The context that is meant: none stands for the current one.
fn meant(context: usize) -> Outcome<usize> {
    let context = if context == 0 { current_handle().ok_or(Code::INVALID_CONTEXT)? } else { context };
    if driver()?.tables().contexts.contains_key(&context) { Ok(context) } else { Err(Code::INVALID_CONTEXT) }
}

extern "C" fn put(context: usize, key: usize, value: usize, ended: Option<Ended>) -> Code {
    enter("private put", || {
        let context = meant(context)?;
        driver()?.tables().storage.insert((context, key), (value, ended));
        Ok(())
    })
}

extern "C" fn delete(context: usize, key: usize) -> Code {
    enter("private delete", || {
        let context = meant(context)?;
        driver()?.tables().storage.remove(&(context, key)).map(drop).ok_or(Code::INVALID_HANDLE)
    })
}

extern "C" fn get(value: Out<usize>, context: usize, key: usize) -> Code {
    enter("private get", || {
        let context = meant(context)?;
        let found = driver()?.tables().storage.get(&(context, key)).map(|(value, _)| *value);
        value.put(found.ok_or(Code::INVALID_HANDLE)?)
    })
}

extern "C" fn set(context: usize) -> Code {
    enter("private set", || {
        let context = if context == 0 { None } else { Some(meant(context)?) };
        set_current(context);
        Ok(())
    })
}

extern "C" fn current(context: Out<usize>) -> Code {
    enter("private current", || context.put(current_handle().unwrap_or(0)))
}

extern "C" fn module(module: Out<usize>, wrapper: In<[usize; 3]>) -> Code {
    enter("private module", || load_wrapped(&module, wrapper.get()?[1]))
}

extern "C" fn primary(context: Out<usize>, device: c_int) -> Code {
    // As measured with 580.159.04: the handle, whether there is such a context or not, and nothing is retained.
    enter("private primary", || context.put(Driver::primary_handle(ordinal(driver()?, device)?)))
}

extern "C" fn compilers() -> Code {
    Code::SUCCESS
}

extern "C" fn check(context: usize, result: Out<u32>, _other: Out<usize>) -> Code {
    enter("private check", || {
        meant(context)?;
        result.put(0)
    })
}
