//! User objects of graphs. The program, graphs, clones of these and what was made executable of them hold references to one,
//! so only the driver knows when nobody has any: then it calls the object's function. That is a function of ours which first
//! takes the object out of the count of what is in a recovery's way.
#![expect(unsafe_code, reason = "calls functions of the program's")]

use std::{
    collections::BTreeMap,
    ffi::{c_uint, c_void},
    mem, ptr,
};

use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::graph::cuUserObjectCreate,
        result::CUresult,
        types::{CUhostFn, CUuserObject, Key as _},
    },
    kept::{
        account::{self, Reason},
        graphs,
        keeping::Room,
    },
};

/// A function of the program's.
type Function = unsafe extern "C" fn(*mut c_void);

/// One whose function was not called yet.
#[derive(Debug)]
struct UserObject {
    function: Function,
    data: usize,
    /// By what it is counted, once the driver has made it.
    key: Option<u64>,
}

/// All of them, by number.
#[derive(Debug, Default)]
struct UserObjects {
    last: usize,
    open: BTreeMap<usize, UserObject>,
}

static OBJECTS: Room<UserObjects> = Room::new();

/// What the driver calls.
extern "C" fn ended(number: *mut c_void) {
    let Some(object) = OBJECTS.with(|objects| objects.open.remove(&number.addr())) else { return };
    if let Some(key) = object.key {
        account::gone(key);
    }
    // SAFETY: the program has given this function for this, with what it is to have.
    unsafe { (object.function)(ptr::with_exposed_provenance_mut(object.data)) };
}

/// Logic of `cuUserObjectCreate`.
pub(crate) fn user_object(
    driver: &mut Driver<cuUserObjectCreate::Signature>,
    place: *mut CUuserObject,
    data: *mut c_void,
    function: CUhostFn,
    references: c_uint,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // Nothing is counted where nothing is noted.
    graphs(|_| ())?;
    if place.is_null() || function.is_null() {
        return Err(Bypass::ForTheDriver);
    }
    // SAFETY: the program says that it is such a function.
    let function = unsafe { mem::transmute::<CUhostFn, Function>(function) };
    let number = OBJECTS.with(|objects| {
        objects.last += 1;
        objects.open.insert(objects.last, UserObject { function, data: data.expose_provenance(), key: None });
        objects.last
    });
    let ours = ended as extern "C" fn(*mut c_void) as CUhostFn;
    let answer = driver.call(|function| {
        // SAFETY: as the program calls it, but for whom it calls.
        unsafe { function(place, ptr::without_provenance_mut(number), ours, references, flags) }
    });
    if !answer.is_success() {
        OBJECTS.with(|objects| objects.open.remove(&number));
        return Ok(answer);
    }
    // SAFETY: the driver has just written there.
    let key = unsafe { place.read_unaligned() }.key();
    // Before its end can take it out of the count.
    account::made("cuUserObjectCreate", Reason::Graph, key);
    let is_there = OBJECTS.with(|objects| {
        let object = objects.open.get_mut(&number);
        object.map(|object| object.key = Some(key)).is_some()
    });
    if !is_there {
        account::gone(key);
    }
    Ok(answer)
}
