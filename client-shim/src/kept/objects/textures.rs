//! Texture and surface objects: noted with their values, which a fresh copy of the driver must give again.
//!
//! Programs hand these values to kernels, among arguments and in the GPU's memory, so that they cannot be translated. They
//! count from 1 in each context, the lowest free one first, for textures and surfaces together (measured with 580.159.04
//! on an H100: `OBSERVED.md`), so a copy that makes them in order has the same (`recovery/textures.rs`).
#![expect(unsafe_code, reason = "reads the program's descriptions and what the driver has written")]

use super::{
    current::current,
    destroyed, keep, recipes,
    recipes::{Recipe, Texture, key_of},
};
use crate::{
    cuda::{
        call::{Bypass, Driver},
        functions::array::{cuSurfObjectCreate, cuTexObjectCreate, cuTexObjectDestroy},
        result::CUresult,
        types::{
            CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUdevice, CUsurfObject, CUtexObject,
            Key as _,
        },
    },
    kept::account::{self, Reason},
    process::settings,
};

/// Logic of `cuTexObjectCreate`.
pub(crate) fn texture(
    driver: &mut Driver<cuTexObjectCreate::Signature>,
    value: *mut CUtexObject,
    resource: *const CUDA_RESOURCE_DESC,
    how: *const CUDA_TEXTURE_DESC,
    view: *const CUDA_RESOURCE_VIEW_DESC,
) -> Result<CUresult, Bypass> {
    let of = current();
    let answer = driver.pass();
    if answer.is_success() && !value.is_null() && !resource.is_null() && !how.is_null() {
        // SAFETY: the driver has just read it.
        let view = (!view.is_null()).then(|| unsafe { view.read_unaligned() }.0);
        // SAFETY: as above.
        let how = (unsafe { how.read_unaligned() }.0, view);
        // SAFETY: as above.
        let resource = unsafe { resource.read_unaligned() }.0;
        // SAFETY: the driver has just written it.
        let value = unsafe { value.read_unaligned() };
        note("cuTexObjectCreate", of, Texture { value, resource: Some(resource), how: Some(how) })?;
    }
    Ok(answer)
}

/// Logic of `cuSurfObjectCreate`.
pub(crate) fn surface(
    driver: &mut Driver<cuSurfObjectCreate::Signature>,
    value: *mut CUsurfObject,
    resource: *const CUDA_RESOURCE_DESC,
) -> Result<CUresult, Bypass> {
    let of = current();
    let answer = driver.pass();
    if answer.is_success() && !value.is_null() && !resource.is_null() {
        // SAFETY: the driver has just read it.
        let resource = unsafe { resource.read_unaligned() }.0;
        // SAFETY: the driver has just written it.
        let value = unsafe { value.read_unaligned() };
        note("cuSurfObjectCreate", of, Texture { value, resource: Some(resource), how: None })?;
    }
    Ok(answer)
}

/// Keeps one that was made in this context, or counts it with the reason. The context was asked for before: one that has died
/// since no longer answers, and the value is the program's all the same.
fn note(function: &'static str, of: Result<(usize, CUdevice), Bypass>, texture: Texture) -> Result<(), Bypass> {
    let known = of.ok().and_then(|(context, _)| Some((context, key_of(context, texture.value)?)));
    let Some((context, key)) = known else {
        account::counted(function, Reason::Texture, texture.value);
        return Ok(());
    };
    match reason_against(&texture)? {
        Some(reason) => account::counted(function, reason, key.key()),
        None => {
            // One that ended with its context, as nobody has said, had the value before.
            account::gone(key.key());
            keep(function, key, Recipe::Texture { context, texture: Box::new(texture) })?;
        }
    }
    Ok(())
}

/// Why it could not be made again.
fn reason_against(texture: &Texture) -> Result<Option<Reason>, Bypass> {
    if !settings::is_replaying() || !settings::is_recording() {
        return Ok(Some(Reason::Array));
    }
    recipes(|recipes| match texture.array() {
        Some(array) => (!recipes.is_kept(array)).then_some(Reason::Array),
        None => {
            let address = texture.resource.and_then(|words| usize::try_from(words[1]).ok()).unwrap_or_default();
            // A variable lies elsewhere in each copy.
            (!recipes.variables_in(address, 1).is_empty()).then_some(Reason::Texture)
        }
    })
}

/// Logic of `cuTexObjectDestroy` and `cuSurfObjectDestroy`.
pub(crate) fn ends(driver: &mut Driver<cuTexObjectDestroy::Signature>, value: CUtexObject) -> Result<CUresult, Bypass> {
    if !settings::is_recording() {
        return Ok(driver.pass());
    }
    let (context, _) = current()?;
    match key_of(context, value) {
        Some(key) => destroyed(key, || driver.pass()),
        None => {
            let answer = driver.pass();
            if answer.is_success() {
                account::gone(value);
            }
            Ok(answer)
        }
    }
}
