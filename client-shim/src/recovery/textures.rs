//! Texture and surface objects in another copy of the driver, with the values that the program knows them by.
//!
//! A context gives the lowest value that is free. So they are made in the order of their values, with others in the holes,
//! which end when all are there. Each value is looked at: one that is another is in a recovery's way, since a kernel would
//! read something else by it.
//!
//! One whose array or memory is no more has a value all the same, which nothing else may get. It is made of memory that is
//! freed at once: a kernel that read it would read what is not there, as before. Where the program has the addresses still
//! reserved, and may map something there again, which that kernel would read, the texture is in a recovery's way.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::{BTreeMap, BTreeSet};

use super::{
    memory::{Failed, Renamed, checked, length},
    objects::enter,
};
use crate::{
    cuda::{
        arguments::structures::translate_arrays,
        result::CUresult,
        types::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUsurfObject, CUtexObject},
    },
    kept::{
        self,
        memory::own::survey::OwnMapping,
        objects::recipes::{Recipe, Texture},
    },
    process::log,
};

const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const CALL: &str = "cuTexObjectCreate";
/// `CU_RESOURCE_TYPE_LINEAR`, 32 bits without a sign, one channel.
const LINEAR: u64 = 2;
const WORDS: u64 = 3 | 1 << 32;
/// Bytes of memory for what reads nothing.
const NOTHING: usize = 512;

/// One that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: usize,
    /// The program's handle.
    pub(super) context: usize,
    pub(super) texture: &'a Texture,
}

/// All of them among the recipes.
pub(super) fn of(recipes: &[(usize, Recipe)]) -> Vec<Wanted<'_>> {
    let textures = recipes.iter().filter_map(|(key, recipe)| {
        let Recipe::Texture { context, texture } = recipe else { return None };
        Some(Wanted { key: *key, context: *context, texture })
    });
    textures.collect()
}

/// Makes them, beside those whose values are `there`, by context.
pub(super) fn make(
    wanted: &[Wanted<'_>],
    there: &BTreeMap<usize, BTreeSet<u64>>,
    renamed: &Renamed,
) -> Result<(), Failed> {
    let mut by_context: BTreeMap<usize, BTreeMap<u64, &Texture>> = BTreeMap::new();
    for of in wanted {
        by_context.entry(of.context).or_default().insert(of.texture.value, of.texture);
    }
    let none = BTreeSet::new();
    for (context, textures) in by_context {
        let now = renamed.get(&context).ok_or(Failed { call: CALL, answer: CUresult(400) })?;
        enter(*now)?;
        let mut place =
            Place { there: there.get(&context).unwrap_or(&none), renamed, next: 1, fillers: Vec::new(), nothing: None };
        let made = textures.iter().try_for_each(|(value, texture)| place.make(*value, texture));
        place.end();
        made?;
    }
    Ok(())
}

/// A context in which they are made.
struct Place<'a> {
    there: &'a BTreeSet<u64>,
    renamed: &'a Renamed,
    /// No lower value is free.
    next: u64,
    /// What is in the holes.
    fillers: Vec<CUtexObject>,
    /// Memory of what reads nothing.
    nothing: Option<u64>,
}

impl Place<'_> {
    fn make(&mut self, value: u64, texture: &Texture) -> Result<(), Failed> {
        while self.free() < value {
            let given = self.create_nothing()?;
            self.fillers.push(given);
            self.check(given)?;
        }
        let given = match self.resource_of(texture)? {
            Some(resource) => match create(&resource, texture.how.as_ref()) {
                // The program has freed the memory. Blocks of ours are mapped as long as their slabs are.
                Err(failed)
                    if failed.answer == INVALID_VALUE && texture.array().is_none() && !is_there(resource[1]) =>
                {
                    if may_come_back(resource[1]) {
                        log::complain(format_args!("a texture object is of memory that is not mapped now"));
                        return Err(failed);
                    }
                    self.create_nothing()?
                }
                made => made?,
            },
            None => self.create_nothing()?,
        };
        self.check_is(given, value)
    }

    /// The lowest value that is free.
    fn free(&mut self) -> u64 {
        while self.there.contains(&self.next) {
            self.next += 1;
        }
        self.next
    }

    fn check(&mut self, given: u64) -> Result<(), Failed> {
        let expected = self.free();
        self.check_is(given, expected)
    }

    fn check_is(&mut self, given: u64, expected: u64) -> Result<(), Failed> {
        if given != expected {
            log::complain(format_args!("a texture object would have another value: {given} in place of {expected}"));
            return Err(Failed {
                call: "cuTexObjectCreate with the same value",
                answer: CUresult::CUDA_ERROR_NOT_SUPPORTED,
            });
        }
        self.next = given + 1;
        Ok(())
    }

    /// What one reads here, `None` if that is no more.
    fn resource_of(&self, texture: &Texture) -> Result<Option<[u64; 18]>, Failed> {
        let Some(mut words) = texture.resource else { return Ok(None) };
        let Some(array) = texture.array() else { return Ok(Some(words)) };
        let now = self.renamed.get(&array).ok_or(Failed { call: CALL, answer: CUresult(400) })?;
        translate_arrays::<CUDA_RESOURCE_DESC>(&mut words, |_| *now);
        Ok(Some(words))
    }

    fn create_nothing(&mut self) -> Result<u64, Failed> {
        let address = match self.nothing {
            Some(address) => address,
            None => {
                let mut address = 0;
                checked("cuMemAlloc", driver!(memory::cuMemAlloc_v2(&raw mut address, NOTHING)))?;
                *self.nothing.insert(address)
            }
        };
        let mut resource = [0; 18];
        resource[..4].copy_from_slice(&[LINEAR, address, WORDS, NOTHING as u64]);
        create(&resource, Some(&([0; 13], None)))
    }

    /// The holes are holes again.
    fn end(&mut self) {
        for value in self.fillers.drain(..) {
            let _gone = driver!(array::cuTexObjectDestroy(value));
        }
        if let Some(address) = self.nothing.take() {
            let _gone = driver!(memory::cuMemFree_v2(address));
        }
    }
}

/// Whether memory of the program's is at an address: kept, mapped by itself, or the host's.
fn is_there(address: u64) -> bool {
    let is_mapped = kept::memory(|memory| {
        let is_own = |of: &OwnMapping| (of.base..of.base.saturating_add(of.size)).contains(&address);
        memory.slabs.around(address).is_some() || memory.own.all_mappings().iter().any(is_own)
    });
    is_mapped.unwrap_or(true) || kept::recipes(|recipes| recipes.is_of_host(length(address))).unwrap_or(true)
}

/// Whether an address is one that the program has reserved, to map there what it likes.
fn may_come_back(address: u64) -> bool {
    let reserved = kept::memory(|memory| memory.own.all_reservations()).unwrap_or_default();
    reserved.into_iter().any(|(base, size)| (base..base.saturating_add(size)).contains(&address))
}

fn create(resource: &[u64; 18], how: Option<&([u64; 13], Option<[u64; 14]>)>) -> Result<u64, Failed> {
    let resource = CUDA_RESOURCE_DESC(*resource);
    let Some((texture, view)) = how else {
        let mut value: CUsurfObject = 0;
        let answer = driver!(array::cuSurfObjectCreate(&raw mut value, &raw const resource));
        checked("cuSurfObjectCreate", answer)?;
        return Ok(value);
    };
    let texture = CUDA_TEXTURE_DESC(*texture);
    let view = view.map(CUDA_RESOURCE_VIEW_DESC);
    let view = view.as_ref().map_or(std::ptr::null(), |view| &raw const *view);
    let mut value: CUtexObject = 0;
    let answer = driver!(array::cuTexObjectCreate(&raw mut value, &raw const resource, &raw const texture, view));
    checked(CALL, answer)?;
    Ok(value)
}
