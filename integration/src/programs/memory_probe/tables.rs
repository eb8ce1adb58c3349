//! The driver's private tables as cudart uses them: a value kept in a context, and whom the driver tells of its end.
//!
//! Places and arguments are those of ZLUDA (`dark_api/src/lib.rs`).
#![expect(unsafe_code, reason = "functions without a public declaration")]

use super::check;
use crate::programs::gpu::GpuError;
use cudarc::driver::sys;
use serde_json::{Value, json};
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Context-local storage.
const STORAGE: [u8; 16] = *b"\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93";
/// No table has this name.
const NONE: [u8; 16] = [0x5e; 16];

type Ended = extern "C" fn(usize, usize, usize);

/// The table's functions.
#[repr(C)]
pub(in crate::programs) struct Storage {
    /// Context (0: the current one), key, value, and whom to call when the context ends.
    pub(in crate::programs) put: extern "C" fn(usize, usize, usize, Option<Ended>) -> u32,
    delete: extern "C" fn(usize, usize) -> u32,
    /// Where the value goes, context, key.
    pub(in crate::programs) get: extern "C" fn(*mut usize, usize, usize) -> u32,
}

/// What the driver called back with: context, key and value.
static TOLD: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

extern "C" fn ended(context: usize, key: usize, value: usize) {
    for (place, told) in TOLD.iter().zip([context, key, value]) {
        place.store(told, Ordering::Relaxed);
    }
}

fn table(id: &[u8; 16]) -> (u32, *const c_void) {
    let mut table = std::ptr::null();
    // SAFETY: the result is a variable of ours, the name has sixteen bytes.
    let code = unsafe { sys::cuGetExportTable(&raw mut table, id.as_ptr().cast()) };
    (code as u32, table)
}

/// The driver's context-local storage; otherwise its answer.
pub(in crate::programs) fn storage() -> Result<&'static Storage, u32> {
    let (asked, storage) = table(&STORAGE);
    // SAFETY: the driver has just given the table of this name, which stays.
    if asked == 0 { Ok(unsafe { &*storage.cast::<Storage>() }) } else { Err(asked) }
}

/// A value in the current context and one in a context that ends.
pub(super) fn work() -> Result<Value, GpuError> {
    let missing = table(&NONE).0;
    let storage = match storage() {
        Ok(storage) => storage,
        Err(asked) => return Ok(json!({ "asked": asked, "missing": missing })),
    };
    let get = |context, key| {
        let mut value = 0;
        ((storage.get)(&raw mut value, context, key), value)
    };
    let before = get(0, 0x51).0;
    let put = (storage.put)(0, 0x51, 0x510, None);
    let kept = get(0, 0x51);
    let again = (storage.put)(0, 0x51, 0x511, None);
    let changed = get(0, 0x51);
    let deleted = [(storage.delete)(0, 0x51), (storage.delete)(0, 0x51)];
    let after = get(0, 0x51).0;

    let mut device = 0;
    // SAFETY: the result is a variable of ours.
    check("cuCtxGetDevice", unsafe { sys::cuCtxGetDevice(&raw mut device) })?;
    let mut context = std::ptr::null_mut();
    // SAFETY: the result is a variable of ours.
    check("cuCtxCreate", unsafe { sys::cuCtxCreate_v4(&raw mut context, std::ptr::null_mut(), 0, device) })?;
    let number = context.expose_provenance();
    let put_there = (storage.put)(number, 0x52, 0x520, Some(ended));
    let kept_there = get(number, 0x52);
    // SAFETY: it is ours and not used again.
    check("cuCtxDestroy", unsafe { sys::cuCtxDestroy_v2(context) })?;
    let told = [0, 1, 2].map(|place| TOLD[place].load(Ordering::Relaxed));
    Ok(json!({
        "asked": 0, "missing": missing, "before": before, "put": put, "kept": kept, "again": again,
        "changed": changed, "deleted": deleted, "after": after, "there": [put_there, kept_there.0],
        "is_there": kept_there.1 == 0x520, "is_told": told == [number, 0x52, 0x520],
    }))
}
