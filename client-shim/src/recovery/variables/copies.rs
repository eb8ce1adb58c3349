//! How variables are found and read.
//!
//! A call costs more than what it copies, and code generators put hundreds of variables of a few bytes into a module.
//! So variables that lie near each other are read by one call, with what is between them.

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
/// No page of the GPU's memory is smaller: two variables with less between them lie on the same or on neighbouring pages, and so does all
/// that is between them.
const PAGE: usize = 4096;

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

/// What was read, of which modules and libraries not everything could be, and in how many calls.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) variables: Vec<(Name, Vec<u8>)>,
    pub(super) missing: Vec<(usize, String)>,
    pub(super) calls: usize,
}

/// A variable that is to be read.
#[derive(Debug)]
struct Found {
    name: Name,
    address: usize,
    size: usize,
}

impl Found {
    const fn end(&self) -> usize {
        self.address + self.size
    }
}

/// Variables in the order of their addresses, those together that are read by one call.
fn runs(found: &mut [Found]) -> impl Iterator<Item = &[Found]> {
    found.sort_unstable_by_key(|found| found.address);
    found.chunk_by(|one, next| next.address.saturating_sub(one.end()) < PAGE)
}

/// Reads variables of the current context; `None` if the driver refuses.
fn read_in_context(found: &mut [Found], into: &mut Read) -> Option<()> {
    let mut stream = CUstream(0);
    if !driver!(stream::cuStreamCreate(&raw mut stream, NON_BLOCKING)).is_success() {
        return None;
    }
    let mut calls = 0;
    let mut copy = |bytes: &mut [u8], address: usize| {
        calls += 1;
        let place = bytes.as_mut_ptr().cast::<c_void>();
        let given = driver!(copy::cuMemcpyDtoHAsync_v2(place, address.key(), bytes.len(), stream));
        let done = driver!(stream::cuStreamSynchronize(stream));
        given.is_success() && done.is_success()
    };
    let mut is_read = true;
    for run in runs(found) {
        let Some(start) = run.first().map(|first| first.address) else { continue };
        let end = run.iter().map(Found::end).max().unwrap_or(start);
        let mut bytes = vec![0; end - start];
        // The driver refuses what is not of one piece.
        let is_together = copy(&mut bytes, start);
        for Found { name, address, size, .. } in run {
            let part = &mut bytes[address - start..][..*size];
            is_read &= is_together || copy(part, *address);
            into.variables.push((name.clone(), part.to_vec()));
        }
    }
    let is_ended = driver!(stream::cuStreamDestroy_v2(stream)).is_success();
    into.calls += calls;
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
        let is_read = read_in_context(&mut found, &mut read);
        let mut popped = CUcontext(0);
        let is_popped = driver!(context::cuCtxPopCurrent_v2(&raw mut popped)).is_success();
        is_read.filter(|()| is_popped)?;
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::{Found, PAGE, runs};
    use crate::kept::code::still::Name;

    #[test]
    fn what_lies_near_is_read_by_one_call_and_no_page_is_touched_that_has_nothing_of_it() {
        let found = |address, size| Found {
            name: Name { context: 1, of: 2, is_of_library: false, name: CString::default() },
            address,
            size,
        };
        // Out of order; two of the same; one inside of another; a gap of a page less one byte; one of a page.
        let far = 0x5000 + PAGE + 8;
        let mut all =
            [found(far, 4), found(0x2000, 4), found(0x2000, 4), found(0x1000, 16), found(0x1004, 4), found(0x5000, 8)];
        let together: Vec<Vec<usize>> =
            runs(&mut all).map(|run| run.iter().map(|found| found.address).collect()).collect();
        assert_eq!(together, [vec![0x1000, 0x1004, 0x2000, 0x2000], vec![0x5000], vec![far]]);
        let mut none = [];
        assert_eq!(runs(&mut none).count(), 0);
    }
}
