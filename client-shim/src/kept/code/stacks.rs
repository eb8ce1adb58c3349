//! Stacks: how much of them kernels need, and contexts that have less than the program has asked for.
//!
//! A context has memory for the stacks of all threads that its GPU can run at once, 1,024 bytes each as a rule: half of all
//! that an empty context takes. A spare copy's have what the program's kernels need ([`need`]). The driver gives a kernel
//! with more local memory what it needs when it is launched; only one whose stack has no known bound can go beyond, and
//! then faults (both measured with 580.159.04 on an H100). So before the program has the handle of such a kernel its
//! context has the stacks that the program believes it has, and what it asks for the limit is told that.
#![expect(unsafe_code, reason = "calls the driver and writes what the program has asked for")]

use std::{
    collections::BTreeMap,
    ffi::CStr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use remps_gpu_code::UNKNOWN_STACK;

use crate::{
    cuda::{
        call::Bypass,
        result::CUresult,
        types::{CUcontext, CUlimit},
    },
    kept::{
        objects::recipes::{Image, Recipe, code_of},
        recipes,
    },
    process::log,
};

/// `CU_LIMIT_STACK_SIZE`.
pub(crate) const STACK_SIZE: CUlimit = 0;

/// Contexts of the copy that lives with less than the program has asked for, and how much that is.
static SMALL: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
/// Whether there are any.
static ARE_ANY: AtomicBool = AtomicBool::new(false);

fn small() -> MutexGuard<'static, Vec<(usize, usize)>> {
    SMALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn need_of(image: &Image, name: &CStr) -> u32 {
    match (image, name.to_str()) {
        (Image::Bytes(code), Ok(name)) => code.contents().stack(name),
        (Image::File(_), _) | (_, Err(_)) => UNKNOWN_STACK,
    }
}

/// The most that a thread of any of these kernels needs, in bytes, or [`UNKNOWN_STACK`].
pub(crate) fn need(all: &[(usize, Recipe)]) -> u32 {
    let by_handle: BTreeMap<usize, &Recipe> = all.iter().map(|(handle, recipe)| (*handle, recipe)).collect();
    let is_kernel = |recipe: &&Recipe| matches!(recipe, Recipe::Function { .. } | Recipe::Kernel { .. });
    let needs = all.iter().map(|(_, recipe)| recipe).filter(is_kernel).map(|kernel| {
        // One of which nobody knows the image may need any.
        code_of(kernel, |of| by_handle.get(&of).copied()).map_or(UNKNOWN_STACK, |(image, name)| need_of(image, name))
    });
    needs.max().unwrap_or_default()
}

/// These contexts of the copy that lives from now on have smaller stacks than the program has asked for, and no others.
pub(crate) fn are_small(contexts: Vec<(usize, usize)>) {
    ARE_ANY.store(!contexts.is_empty(), Ordering::Release);
    *small() = contexts;
}

/// Sees to it that the kernel of this handle, which the program is about to be given, has stack enough.
///
/// # Errors
/// What the driver says: there is no memory for it.
pub(super) fn suffice(kernel: usize) -> Result<(), CUresult> {
    if !ARE_ANY.load(Ordering::Acquire) {
        return Ok(());
    }
    let Some((image, name)) = recipes(|recipes| recipes.code_of(kernel)).ok().flatten() else { return Ok(()) };
    if need_of(&image, &name) < UNKNOWN_STACK { Ok(()) } else { enlarge() }
}

/// Gives each context the stacks that the program has asked for.
fn enlarge() -> Result<(), CUresult> {
    let mut small = small();
    while let Some((context, size)) = small.last().copied() {
        let pushed = driver!(context::cuCtxPushCurrent_v2(CUcontext(context)));
        if pushed.is_success() {
            let answer = driver!(context::cuCtxSetLimit(STACK_SIZE, size));
            let mut popped = CUcontext(0);
            let _pushed_above = driver!(context::cuCtxPopCurrent_v2(&raw mut popped));
            if !answer.is_success() {
                log::complain(format_args!("no room for stacks of {size} bytes: cuCtxSetLimit answers {}", answer.0));
                return Err(answer);
            }
        }
        // One that is no more needs none.
        small.pop();
    }
    ARE_ANY.store(false, Ordering::Release);
    Ok(())
}

fn current() -> Option<usize> {
    let mut context = CUcontext(0);
    driver!(context::cuCtxGetCurrent(&raw mut context)).is_success().then_some(context.0)
}

/// After `cuCtxGetLimit`: what the program has asked for.
pub(crate) fn told(value: *mut usize, limit: CUlimit) -> Result<(), Bypass> {
    if limit == STACK_SIZE && !value.is_null() && ARE_ANY.load(Ordering::Acquire) {
        let current = current();
        if let Some((_, size)) = small().iter().find(|(context, _)| Some(*context) == current) {
            // SAFETY: the driver has just written there.
            let has = unsafe { value.read() };
            // SAFETY: as above; where it has given a kernel more, it has said so.
            unsafe { value.write(has.max(*size)) };
        }
    }
    Ok(())
}

/// After `cuCtxSetLimit`: the current context has what the program has asked for.
pub(crate) fn is_set(limit: CUlimit) {
    if limit == STACK_SIZE && ARE_ANY.load(Ordering::Acquire) {
        let current = current();
        leave_out(|of| Some(of) == current);
    }
}

/// A context is no more: another one of its handle has what it begins with.
pub(crate) fn is_gone(context: usize) {
    leave_out(|of| of == context);
}

fn leave_out(is_out: impl Fn(usize) -> bool) {
    if ARE_ANY.load(Ordering::Acquire) {
        let mut small = small();
        small.retain(|(context, _)| !is_out(*context));
        ARE_ANY.store(!small.is_empty(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{UNKNOWN_STACK, need};
    use crate::kept::objects::recipes::{Image, Recipe};

    const PLAIN: &str = ".version 8.0\n.target sm_80\n.entry k() { ret; }\n.entry l() { call %rd1; ret; }\n\0";

    fn image() -> Image {
        Image::Bytes(PLAIN.as_bytes().to_vec().into())
    }

    fn function(module: usize, name: &str) -> Recipe {
        Recipe::Function { module, name: std::ffi::CString::new(name).unwrap() }
    }

    #[test]
    fn the_kernels_that_the_program_has_say_what_is_needed() {
        let module = (1, Recipe::Module { context: 9, image: image(), options: Vec::new() });
        let library = (2, Recipe::Library { image: image(), options: Vec::new() });
        let of_library = (3, Recipe::LibraryModule { context: 9, library: 2 });
        let kernel = |name: &str| Recipe::Kernel { library: 2, name: std::ffi::CString::new(name).unwrap() };
        let all = [module, library, of_library];
        let with = |kernel: Recipe| need(&[all.as_slice(), &[(10, kernel)]].concat());
        assert_eq!(need(&all), 0, "nobody has any of them");
        assert_eq!((with(function(1, "k")), with(function(1, "l"))), (0, UNKNOWN_STACK));
        assert_eq!((with(function(3, "k")), with(function(3, "l"))), (0, UNKNOWN_STACK));
        assert_eq!((with(kernel("k")), with(kernel("l"))), (0, UNKNOWN_STACK));
        assert_eq!(with(function(7, "k")), UNKNOWN_STACK, "of a module that is not kept");
        let file = Recipe::Module { context: 9, image: Image::File(c"/nowhere".to_owned()), options: Vec::new() };
        assert_eq!(need(&[(1, file), (10, function(1, "k"))]), UNKNOWN_STACK);
    }
}
