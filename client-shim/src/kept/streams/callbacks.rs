//! Callbacks that streams were given (`cuStreamAddCallback`): each is called once, by the driver when its turn has come, or
//! by this library with the error when it was lost with the work before it, as CUDA documents it.
//!
//! The driver is given a function of ours in the place of each, with a number, so a dead copy that calls one late finds that
//! it was called. Those that a recovery has lost are called when the program's calls go on, in the order in which they were
//! given, by a thread that has nothing else to do: the driver has one for them too, and whoever is called may wait, or take
//! locks that a thread of the program holds in a call. None of this library's locks is held meanwhile.
//!
//! A callback of a context that has ended is called by nobody: what it was to have may be gone. Without `MPS_SHIM_REPLAY`
//! the program's own function is the driver's. Functions of `cuLaunchHostFunc` are never called with an error: they have no
//! place for one.
#![expect(unsafe_code, reason = "calls functions of the program's")]

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{c_uint, c_void},
    mem, ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::of_streams;
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::stream::cuStreamAddCallback,
        gate, library, names,
        result::CUresult,
        threads::{Here, here},
        types::{CUstream, CUstreamCallback},
    },
    process::{glibc, log, panics::unpanicked},
};

/// A function of the program's.
type Function = unsafe extern "C" fn(usize, CUresult, *mut c_void);

/// One that was not called yet.
#[derive(Debug)]
struct Callback {
    function: Function,
    /// As the program calls it.
    stream: usize,
    data: usize,
    /// Its context, by name, and the copy of the driver that is to call it.
    context: usize,
    copy: u64,
}

#[derive(Debug)]
struct All {
    last: usize,
    /// By number.
    open: BTreeMap<usize, Callback>,
    /// Those that are to be called with an error, and whether a thread does so.
    lost: VecDeque<(Callback, CUresult)>,
    is_calling: bool,
}

static ALL: Mutex<All> = Mutex::new(All { last: 0, open: BTreeMap::new(), lost: VecDeque::new(), is_calling: false });

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Callback {
    /// Nobody else has it any more.
    fn call(&self, status: CUresult) {
        let data = ptr::with_exposed_provenance_mut(self.data);
        // SAFETY: the program has given this function for this, with what it is to have.
        unsafe { (self.function)(self.stream, status, data) };
    }
}

/// What the driver calls.
extern "C" fn come(_stream: usize, status: CUresult, number: *mut c_void) {
    let found = all().open.remove(&number.addr());
    if let Some(callback) = found {
        callback.call(status);
    }
}

/// Logic of `cuStreamAddCallback`.
pub(crate) fn add(
    driver: &mut Driver<cuStreamAddCallback::Signature>,
    stream: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> Result<CUresult, Bypass> {
    // A forked child, in which the lock may be held for ever, has no driver.
    if !gate::is_armed() || callback.is_null() {
        return Ok(driver.pass());
    }
    let number = {
        let context = names::name_of(of_streams()?);
        // SAFETY: the program says that it is such a function.
        let function = unsafe { mem::transmute::<*const c_void, Function>(callback) };
        let (stream, data) = (names::name_of(stream.0), data.expose_provenance());
        let mut all = all();
        all.last += 1;
        let number = all.last;
        all.open.insert(number, Callback { function, stream, data, context, copy: library::generation() });
        number
    };
    let ours = come as extern "C" fn(usize, CUresult, *mut c_void) as CUstreamCallback;
    let answer = driver.call(|function| {
        // SAFETY: as the program calls it, but for whom it calls.
        unsafe { function(stream, ours, ptr::without_provenance_mut(number), flags) }
    });
    if answer.is_success() {
        super::gave_function(stream)?;
    } else {
        all().open.remove(&number);
    }
    Ok(answer)
}

/// A context, by name, has ended with its work.
pub(crate) fn ended_context(context: usize) {
    if gate::is_armed() {
        all().open.retain(|_, callback| callback.context != context);
    }
}

/// The copy of this number has died, and work is lost by this error: so are its callbacks. The gate is closed.
pub(crate) fn lose(copy: u64, error: CUresult) {
    let mut all = all();
    let lost: Vec<Callback> = all.open.extract_if(.., |_, callback| callback.copy == copy).map(|(_, of)| of).collect();
    all.lost.extend(lost.into_iter().map(|callback| (callback, error)));
}

/// Has those called that are lost. The gate is open. Where there can be no thread they wait for the next recovery.
pub(crate) fn call_lost() {
    {
        let mut all = all();
        if all.is_calling || all.lost.is_empty() {
            return;
        }
        all.is_calling = true;
    }
    let has_begun = glibc::detached_thread(Box::new(|| {
        let _ended = unpanicked(call_all);
    }));
    if !has_begun {
        all().is_calling = false;
        log::complain(format_args!("lost callbacks of streams are not called yet: no thread"));
    }
}

fn call_all() {
    // As the driver's threads for them.
    here(Here::comes_of_nobody);
    loop {
        let next = {
            let mut all = all();
            let next = all.lost.pop_front();
            all.is_calling = next.is_some();
            next
        };
        let Some((callback, error)) = next else { return };
        callback.call(error);
    }
}
