//! How variables are found and read.
//!
//! Each by a call of its own, some 12 µs on a GPU: one copy of several that lie near each other the driver refuses (580.159.04;
//! `OBSERVED.md`).

use std::{collections::BTreeMap, ffi::c_void};

use crate::{
    cuda::{
        result::CUresult,
        types::{CUcontext, CUlibrary, CUmodule, CUstream, Key as _},
    },
    kept::code::still::{MOST_BYTES, Name, Wanted},
};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// Where a variable is and how long, with its context current.
pub(in crate::recovery) fn find(name: &Name) -> Result<(usize, usize), CUresult> {
    let (mut address, mut bytes) = (0, 0);
    let (into, length) = (&raw mut address, &raw mut bytes);
    let answer = if name.is_of_library {
        driver!(library::cuLibraryGetGlobal(into, length, CUlibrary(name.of), name.name.as_ptr()))
    } else {
        driver!(module::cuModuleGetGlobal_v2(into, length, CUmodule(name.of), name.name.as_ptr()))
    };
    if !answer.is_success() {
        return Err(answer);
    }
    usize::try_from(address).map(|address| (address, bytes)).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
}

/// What was read, and of which modules and libraries not everything could be.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) variables: Vec<(Name, Vec<u8>)>,
    pub(super) missing: Vec<(usize, String)>,
}

/// A variable that is to be read.
#[derive(Debug)]
struct Found {
    name: Name,
    address: usize,
    size: usize,
}

/// Reads variables of the current context; `None` if the driver refuses.
fn read_in_context(found: Vec<Found>, read: &mut Read) -> Option<()> {
    let mut stream = CUstream(0);
    if !driver!(stream::cuStreamCreate(&raw mut stream, NON_BLOCKING)).is_success() {
        return None;
    }
    let mut is_read = true;
    for Found { name, address, size } in found {
        let mut bytes = vec![0; size];
        let place = bytes.as_mut_ptr().cast::<c_void>();
        let given = driver!(copy::cuMemcpyDtoHAsync_v2(place, address.key(), size, stream));
        let done = driver!(stream::cuStreamSynchronize(stream));
        is_read &= given.is_success() && done.is_success();
        read.variables.push((name, bytes));
    }
    let is_ended = driver!(stream::cuStreamDestroy_v2(stream)).is_success();
    (is_read && is_ended).then_some(())
}

/// Reads all that is wanted; `None` if the driver refuses.
pub(super) fn read(wanted: &Wanted) -> Option<Read> {
    let (mut read, mut total) = (Read::default(), 0_usize);
    let mut by_context: BTreeMap<usize, Vec<(&Name, usize)>> = BTreeMap::new();
    for (name, owner) in &wanted.variables {
        by_context.entry(name.context).or_default().push((name, *owner));
    }
    for (context, names) in by_context {
        if !driver!(context::cuCtxPushCurrent_v2(CUcontext(context))).is_success() {
            return None;
        }
        let mut found = Vec::new();
        for (name, owner) in names {
            match find(name) {
                Ok((address, size)) if size > 0 && total.saturating_add(size) <= MOST_BYTES => {
                    total += size;
                    found.push(Found { name: name.clone(), address, size });
                }
                Ok((_, 0)) => {}
                Ok(_) => read.missing.push((owner, "more variables than are read".to_owned())),
                Err(_) => {
                    read.missing.push((owner, format!("variable {} is not found", name.name.to_string_lossy())));
                }
            }
        }
        let is_read = read_in_context(found, &mut read);
        let mut popped = CUcontext(0);
        let is_popped = driver!(context::cuCtxPopCurrent_v2(&raw mut popped)).is_success();
        is_read.filter(|()| is_popped)?;
    }
    Some(read)
}
