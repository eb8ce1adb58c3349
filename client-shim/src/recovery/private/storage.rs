//! The driver's context-local storage, in which cudart keeps what it knows of a context.
//!
//! The interface is not documented; arguments and order are those of ZLUDA (`dark_api/src/lib.rs`,
//! `CONTEXT_LOCAL_STORAGE_INTERFACE_V0301`). What a program has put is noted here and put again under the context that
//! takes the lost one's place, so that cudart finds its own and does not notice. When a context ends the driver calls
//! back for each value; the callback is told the context by the program's name for it.
#![expect(unsafe_code, reason = "functions without a public declaration")]

use std::{
    collections::BTreeMap,
    ffi::c_void,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{STORAGE, theirs};
use crate::process::panics::unpanicked;
use crate::{
    cuda::{result::CUresult, types::CUcontext},
    kept,
    recovery::private::{passing, to_driver, to_program},
};

type Callback = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void);
type Put = unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void, Option<Callback>) -> CUresult;
type Delete = unsafe extern "C" fn(CUcontext, *mut c_void) -> CUresult;
type Get = unsafe extern "C" fn(*mut *mut c_void, CUcontext, *mut c_void) -> CUresult;

/// Places in the table.
const PUT: usize = 0;
const DELETE: usize = 1;
const GET: usize = 2;

/// What a program has put: by its name for the context, and the key.
#[derive(Clone, Copy, Debug)]
struct Value {
    value: usize,
    callback: Option<Callback>,
}

static VALUES: Mutex<BTreeMap<(CUcontext, usize), Value>> = Mutex::new(BTreeMap::new());

fn values() -> MutexGuard<'static, BTreeMap<(CUcontext, usize), Value>> {
    VALUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Our functions in the table's places.
pub(super) fn ours(index: usize) -> Option<*mut c_void> {
    match index {
        PUT => Some(put as *mut c_void),
        DELETE => Some(delete as *mut c_void),
        GET => Some(get as *mut c_void),
        _ => None,
    }
}

/// The program's name for a context; none stands for the one that is current.
fn named(context: CUcontext) -> Option<CUcontext> {
    if context.0 != 0 {
        return Some(context);
    }
    let mut current = CUcontext(0);
    let answer = driver!(context::cuCtxGetCurrent(&raw mut current));
    (answer.is_success() && current.0 != 0).then(|| to_program(current))
}

unsafe extern "C" fn put(
    context: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    callback: Option<Callback>,
) -> CUresult {
    passing(move || {
        // SAFETY: the place's type.
        let theirs = unsafe { theirs::<Put>(STORAGE, PUT) };
        let noted = unpanicked(|| {
            let name = named(context).filter(|_| kept::is_on())?;
            let note = Value { value: value.expose_provenance(), callback };
            // Before the driver has it: it may call back at once.
            Some((name, values().insert((name, key.addr()), note)))
        })
        .flatten();
        let ours = if noted.is_some() { callback.map(|_| ended as Callback) } else { callback };
        // SAFETY: the program's call with the program's arguments, or with a callback that calls the program's.
        let answer = unsafe { theirs(to_driver(context), key, value, ours) };
        if let Some((name, before)) = noted.filter(|_| !answer.is_success()) {
            let mut values = values();
            match before {
                Some(before) => values.insert((name, key.addr()), before),
                None => values.remove(&(name, key.addr())),
            };
        }
        answer
    })
}

unsafe extern "C" fn delete(context: CUcontext, key: *mut c_void) -> CUresult {
    passing(move || {
        let name = unpanicked(|| named(context).filter(|_| kept::is_on())).flatten();
        // SAFETY: the place's type.
        let theirs = unsafe { theirs::<Delete>(STORAGE, DELETE) };
        // SAFETY: the program's call with the program's arguments.
        let answer = unsafe { theirs(to_driver(context), key) };
        if let Some(name) = name.filter(|_| answer.is_success()) {
            values().remove(&(name, key.addr()));
        }
        answer
    })
}

unsafe extern "C" fn get(value: *mut *mut c_void, context: CUcontext, key: *mut c_void) -> CUresult {
    passing(move || {
        // SAFETY: the place's type.
        let theirs = unsafe { theirs::<Get>(STORAGE, GET) };
        // SAFETY: the program's call with the program's arguments.
        unsafe { theirs(value, to_driver(context), key) }
    })
}

/// The driver ends a context.
unsafe extern "C" fn ended(context: CUcontext, key: *mut c_void, value: *mut c_void) {
    let name = to_program(context);
    let noted = unpanicked(|| values().remove(&(name, key.addr()))).flatten();
    if let Some(callback) = noted.and_then(|noted| noted.callback) {
        // SAFETY: the program gave this function for this call.
        unsafe { callback(name, key, value) };
    }
}

/// Puts everything again, in the contexts that `current` gives for the program's names.
///
/// # Errors
/// The driver's; then some of it may be there and some not.
pub(super) fn put_again(current: impl Fn(CUcontext) -> CUcontext) -> Result<(), CUresult> {
    let all: Vec<_> = values().iter().map(|(key, value)| (*key, *value)).collect();
    for ((name, key), Value { value, callback }) in all {
        let context = current(name);
        if context.0 == 0 {
            // Ended without a word.
            continue;
        }
        // SAFETY: the place's type; somebody has put something, so the table was given out.
        let theirs = unsafe { theirs::<Put>(STORAGE, PUT) };
        let (key, value) = (std::ptr::without_provenance_mut(key), std::ptr::with_exposed_provenance_mut(value));
        // SAFETY: key and value are numbers to the driver.
        let answer = unsafe { theirs(context, key, value, callback.map(|_| ended as Callback)) };
        if !answer.is_success() {
            return Err(answer);
        }
    }
    Ok(())
}
