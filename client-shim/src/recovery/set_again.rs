//! What the program has set on objects, contexts and addresses, in a fresh copy of the driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::{collections::BTreeMap, ffi::c_uint};

use super::{
    memory::{Failed, Renamed, checked},
    objects::enter,
};
use crate::{
    cuda::{
        moved::Moves,
        types::{CUfunction, CUkernel, CUmemAccessDesc, CUmemLocation, CUmemoryPool, CUstream},
    },
    kept::{
        memory::region::DEVICE,
        objects::recipes::{Recipe, Setting},
    },
};

/// Words of the value of a stream's attribute.
const ATTRIBUTE_WORDS: u8 = 8;

/// Sets everything again.
pub(super) fn apply(
    settings: &[(usize, Setting, u64)],
    recipes: &[(usize, Recipe)],
    renamed: &Renamed,
    moves: &Moves,
) -> Result<(), Failed> {
    if settings.is_empty() {
        return Ok(());
    }
    let recipes: BTreeMap<usize, &Recipe> = recipes.iter().map(|(handle, recipe)| (*handle, recipe)).collect();
    for (object, setting, value) in settings {
        let Some(&current) = renamed.get(object) else { continue };
        let recipe = recipes.get(object).copied();
        let is_kernel = matches!(recipe, Some(Recipe::Kernel { .. }));
        // What was given in 32 bits was noted in 64.
        let (word, number) = (u32::try_from(*value).unwrap_or(u32::MAX), usize::try_from(*value).unwrap_or(usize::MAX));
        match setting {
            Setting::Limit(limit) => {
                enter(current)?;
                checked("cuCtxSetLimit", driver!(context::cuCtxSetLimit(*limit, number)))?;
            }
            Setting::Cache(None) if recipe.is_none() => {
                enter(current)?;
                checked("cuCtxSetCacheConfig", driver!(context::cuCtxSetCacheConfig(word)))?;
            }
            Setting::Cache(Some(device)) if is_kernel => {
                let answer = driver!(kernel::cuKernelSetCacheConfig(CUkernel(current), word, *device));
                checked("cuKernelSetCacheConfig", answer)?;
            }
            Setting::Cache(_) => {
                checked("cuFuncSetCacheConfig", driver!(kernel::cuFuncSetCacheConfig(CUfunction(current), word)))?;
            }
            Setting::Attribute(attribute, Some(device)) => {
                let value = word.cast_signed();
                let answer = driver!(kernel::cuKernelSetAttribute(*attribute, value, CUkernel(current), *device));
                checked("cuKernelSetAttribute", answer)?;
            }
            Setting::Attribute(attribute, None) => {
                let value = word.cast_signed();
                let answer = driver!(kernel::cuFuncSetAttribute(CUfunction(current), *attribute, value));
                checked("cuFuncSetAttribute", answer)?;
            }
            Setting::PoolAttribute(attribute) => {
                let mut value = *value;
                let place = (&raw mut value).cast();
                let answer = driver!(pool::cuMemPoolSetAttribute(CUmemoryPool(current), *attribute, place));
                checked("cuMemPoolSetAttribute", answer)?;
            }
            Setting::PoolAccess(device) => {
                let access = CUmemAccessDesc { location: CUmemLocation { kind: DEVICE, id: *device }, flags: word };
                let answer = driver!(pool::cuMemPoolSetAccess(CUmemoryPool(current), &raw const access, 1));
                checked("cuMemPoolSetAccess", answer)?;
            }
            Setting::PoolOfDevice(device) => {
                let answer = driver!(pool::cuDeviceSetMemPool(*device, CUmemoryPool(current)));
                checked("cuDeviceSetMemPool", answer)?;
            }
            Setting::PointerAttribute(attribute, address) => {
                enter(current)?;
                let place = (&raw const word).cast();
                // Memory that is freed has none any longer.
                let _gone = driver!(memory::cuPointerSetAttribute(place, *attribute, *address));
            }
            Setting::StreamAttribute(attribute, 0) => {
                let words = attribute_of(settings, *object, *attribute, moves);
                // What has no recipe is a context, and this is said of its default stream.
                let stream = if recipe.is_some() { current } else { 0 };
                if recipe.is_none() {
                    enter(current)?;
                }
                let answer = driver!(stream::cuStreamSetAttribute(CUstream(stream), *attribute, words.as_ptr().cast()));
                checked("cuStreamSetAttribute", answer)?;
            }
            // With the first word.
            Setting::StreamAttribute(..) => {}
        }
    }
    Ok(())
}

/// All words of a stream's attribute, with variables at their addresses of today.
fn attribute_of(
    settings: &[(usize, Setting, u64)],
    stream: usize,
    attribute: c_uint,
    moves: &Moves,
) -> [u64; ATTRIBUTE_WORDS as usize] {
    let mut words = [0; ATTRIBUTE_WORDS as usize];
    for (object, setting, value) in settings {
        if let Setting::StreamAttribute(of, word) = setting
            && (*object, *of) == (stream, attribute)
            && let Some(place) = words.get_mut(usize::from(*word))
        {
            *place = setting.moved(*value, moves);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::attribute_of;
    use crate::{
        cuda::moved::{Move, Moves},
        kept::objects::recipes::Setting,
    };

    #[test]
    fn a_window_of_access_begins_where_its_variable_is_by_now() {
        let moves = Moves::new(vec![Move { from: 0x1000, size: 0x100, to: 0x8000 }]);
        let settings: Vec<_> = [(1, 0, 0x1010), (1, 1, 0x1010), (8, 0, 0x1010)]
            .map(|(attribute, word, value)| (5, Setting::StreamAttribute(attribute, word), value))
            .into();
        let words = |attribute| attribute_of(&settings, 5, attribute, &moves);
        assert_eq!((words(1)[..2].to_vec(), words(8)[0]), (vec![0x8010, 0x1010], 0x1010));
    }
}
