//! Arrays, which are views of kept memory, and texture and surface objects, which have a value in the place of a handle.
//!
//! A plain array is the first level of a mipmapped one that the program does not know, and that is made of memory that it
//! does not know either: three recipes, so that each is made, named and ended like any other object.
//!
//! A texture object's value counts from 1 in each context, so it is known here by its context and its value together
//! ([`key_of`]). The numbers are above every address, and no program has one.

use std::{cell::Cell, ffi::c_uint};

use super::{Recipe, Recipes};
use crate::cuda::{arguments::structures::translate_arrays, types::CUDA_RESOURCE_DESC};

/// Numbers from here on are texture objects.
const TEXTURES: usize = 1 << 63;
/// Values below this can be told apart, and bits of them.
const VALUES: u64 = 1 << VALUE_BITS;
const VALUE_BITS: u32 = 20;
/// Handles are addresses of objects, which begin at multiples of this, as bits.
const HANDLE_BITS: u32 = 4;
/// `CUDA_ARRAY3D_LAYERED`, `…_SURFACE_LDST`, `…_CUBEMAP`, `…_TEXTURE_GATHER`.
const USUAL_FLAGS: u64 = 0xf;
/// `CUarray_format`: integers of 8, 16 and 32 bits, without sign and with it, and two lengths of floating point.
const USUAL_FORMATS: [u64; 8] = [1, 2, 3, 8, 9, 10, 0x10, 0x20];
const LOWER: u64 = 0xffff_ffff;

/// What a texture or surface object of this value in a context is known by; `None` if it is none that could be.
pub(crate) fn key_of(context: usize, value: u64) -> Option<usize> {
    let value_bits = usize::try_from(value).ok().filter(|_| (1..VALUES).contains(&value))?;
    let is_sound = context.trailing_zeros() >= HANDLE_BITS && context < 1 << (63 - VALUE_BITS + HANDLE_BITS);
    is_sound.then_some(TEXTURES | (context >> HANDLE_BITS) << VALUE_BITS | value_bits)
}

/// What an array is asked for by: `CUDA_ARRAY3D_DESCRIPTOR` in words, and how many levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Layout {
    /// Width, height, depth; format and channels; flags.
    pub(crate) words: [u64; 5],
    /// Levels.
    pub(crate) levels: c_uint,
}

impl Layout {
    /// Of an array in up to three dimensions.
    pub(crate) fn solid([width, height, depth, format, flags]: [u64; 5], levels: c_uint) -> Self {
        // The other half of the last word is nobody's.
        Self { words: [width, height, depth, format, flags & LOWER], levels }
    }

    /// Of one by `CUDA_ARRAY_DESCRIPTOR`.
    pub(crate) fn flat([width, height, format]: [u64; 3]) -> Self {
        Self::solid([width, height, 0, format, 0], 1)
    }

    /// Whether it is of a kind of which is known that a view of the same memory shows the same.
    pub(crate) fn is_usual(&self) -> bool {
        let [width, _, _, format, flags] = self.words;
        let (format, channels) = (format & LOWER, format >> 32);
        width > 0
            && self.levels > 0
            && flags & !USUAL_FLAGS == 0
            && USUAL_FORMATS.contains(&format)
            && matches!(channels, 1 | 2 | 4)
    }
}

/// What a texture or surface object was made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Texture {
    /// What the program knows it by.
    pub(crate) value: u64,
    /// What it reads, `CUDA_RESOURCE_DESC` in words; `None` if that is no more.
    pub(crate) resource: Option<[u64; 18]>,
    /// Of a texture, `CUDA_TEXTURE_DESC` and `CUDA_RESOURCE_VIEW_DESC`.
    pub(crate) how: Option<([u64; 13], Option<[u64; 14]>)>,
}

impl Texture {
    /// The array that it reads.
    pub(crate) fn array(&self) -> Option<usize> {
        let found = Cell::new(None);
        translate_arrays::<CUDA_RESOURCE_DESC>(&mut self.resource?, |array| {
            found.set(Some(array));
            array
        });
        found.get()
    }

    /// Arrays have other handles.
    pub(super) fn rename(&mut self, current: impl Fn(usize) -> usize) {
        if let Some(words) = &mut self.resource {
            translate_arrays::<CUDA_RESOURCE_DESC>(words, current);
        }
    }
}

/// All that an array of the program's is made of, by handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfArray {
    /// The external memory.
    pub(crate) memory: usize,
    /// The mipmapped array.
    pub(crate) mipmapped: usize,
    /// Its context.
    pub(crate) context: usize,
    /// Where its block is.
    pub(crate) address: u64,
    /// What it was asked for by.
    pub(crate) layout: Layout,
}

impl Recipes {
    /// What the program's mipmapped array of this handle is made of.
    pub(crate) fn of_mipmapped(&self, mipmapped: usize) -> Option<OfArray> {
        self.of(mipmapped, false)
    }

    /// What its plain array of this handle is made of.
    pub(crate) fn of_plain(&self, array: usize) -> Option<OfArray> {
        let Recipe::Array { of, .. } = self.by_handle.get(&array)?.recipe else { return None };
        self.of(of, true)
    }

    fn of(&self, mipmapped: usize, wanted: bool) -> Option<OfArray> {
        let Recipe::MipmappedArray { context, memory, address, layout, is_plain } =
            self.by_handle.get(&mipmapped)?.recipe
        else {
            return None;
        };
        (is_plain == wanted).then_some(OfArray { memory, mipmapped, context, address, layout })
    }

    /// These objects are no more: textures that have read them read nothing. They keep their values.
    pub(crate) fn dangle(&mut self, gone: &[usize]) {
        self.with_textures_of(gone, |texture| texture.resource = None);
    }

    /// Changes the textures that read any of these, which are others from now on.
    pub(super) fn with_textures_of(&mut self, arrays: &[usize], change: impl Fn(&mut Texture)) {
        let (mut number, mut changes) = (self.number, 0);
        for kept in self.by_handle.range_mut(TEXTURES..).map(|(_, kept)| kept) {
            let Recipe::Texture { texture, .. } = &mut kept.recipe else { continue };
            if texture.array().is_some_and(|array| arrays.contains(&array)) {
                change(texture);
                kept.number = number;
                number += 1;
                changes += 1;
            }
        }
        self.number = number;
        self.changes += changes;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Recipe, Recipes},
        Layout, Texture, key_of,
    };

    const CONTEXT: usize = 0x5555_0000_1230;
    const FLOAT: u64 = 0x20 | 1 << 32;

    fn texture(value: u64, array: u64) -> Recipe {
        let mut resource = [0; 18];
        resource[1] = array;
        let texture = Box::new(Texture { value, resource: Some(resource), how: Some(([0; 13], None)) });
        Recipe::Texture { context: CONTEXT, texture }
    }

    fn with_a_plain_array() -> Recipes {
        let mut recipes = Recipes::default();
        let layout = Layout::flat([64, 64, FLOAT]);
        recipes.keep(0x10, Recipe::ArrayMemory { context: CONTEXT, address: 0x8000 });
        let mipmapped =
            Recipe::MipmappedArray { context: CONTEXT, memory: 0x10, address: 0x8000, layout, is_plain: true };
        recipes.keep(0x20, mipmapped);
        recipes.keep(0x30, Recipe::Array { of: 0x20, level: 0 });
        recipes
    }

    #[test]
    fn a_value_is_known_by_its_context_and_no_number_is_an_address() {
        let keys = [(CONTEXT, 1), (CONTEXT, 2), (CONTEXT + 16, 1)].map(|(of, value)| key_of(of, value));
        assert!(keys.iter().all(|key| key.is_some_and(|key| key >= 1 << 63)), "{keys:x?}");
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
        assert_eq!(
            [key_of(CONTEXT, 0), key_of(CONTEXT, 1 << 20), key_of(CONTEXT + 1, 1), key_of(1 << 48, 1)],
            [None; 4]
        );
    }

    #[test]
    fn only_what_was_seen_to_be_shown_again_is_usual() {
        let usual = Layout::solid([8, 8, 8, FLOAT, 0xdead_0000_0000 | 2], 1);
        assert!(usual.is_usual() && usual.words[4] == 2);
        for (flags, format, levels) in [
            (0x80, FLOAT, 1),
            (0x10, FLOAT, 1),
            (0x20, FLOAT, 1),
            (0x40, FLOAT, 1),
            (0x100, FLOAT, 1),
            (0, 0xb0 | 3 << 32, 1),
            (0, 0x91 | 4 << 32, 1),
            (0, 0x20 | 3 << 32, 1),
            (0, FLOAT, 0),
        ] {
            assert!(!Layout::solid([8, 8, 0, format, flags], levels).is_usual(), "{flags:x} {format:x} {levels}");
        }
        assert!(!Layout::solid([0, 8, 0, FLOAT, 0], 1).is_usual());
    }

    #[test]
    fn an_array_goes_with_all_that_it_is_made_of_and_its_textures_stay_without_it() {
        let mut recipes = with_a_plain_array();
        let (first, second) = (key_of(CONTEXT, 1).unwrap(), key_of(CONTEXT, 2).unwrap());
        recipes.keep(first, texture(1, 0x30));
        recipes.keep(second, texture(2, 0x40));
        assert_eq!((recipes.of_plain(0x30).map(|of| of.memory), recipes.of_mipmapped(0x20)), (Some(0x10), None));
        let (number, changes) = (recipes.number_of(first), recipes.changes());
        assert!(recipes.forget(0x10));
        assert_eq!((recipes.of_plain(0x30), recipes.is_kept(0x20)), (None, false));
        recipes.dangle(&[0x20, 0x30]);
        let resources: Vec<_> = recipes
            .in_order()
            .into_iter()
            .filter_map(|(_, recipe)| {
                let Recipe::Texture { texture, .. } = recipe else { return None };
                Some((texture.value, texture.array()))
            })
            .collect();
        assert_eq!(resources, [(2, Some(0x40)), (1, None)]);
        assert!(recipes.number_of(first) != number && recipes.changes() > changes, "a spare copy makes it anew");
    }

    #[test]
    fn a_texture_of_an_array_that_is_not_destroyed_is_another_one_to_a_spare_copy() {
        let mut recipes = with_a_plain_array();
        let [of_it, of_another] = [(7, 0x30), (8, 0x40)].map(|(value, array)| {
            let key = key_of(CONTEXT, value).unwrap();
            recipes.keep(key, texture(value, array));
            key
        });
        let before = [of_it, of_another].map(|key| recipes.number_of(key));
        let taken = recipes.take(0x10);
        recipes.put_back(taken);
        let after = [of_it, of_another].map(|key| recipes.number_of(key));
        assert!(after[0] > before[0] && after[1] == before[1], "{before:?} {after:?}");
        assert_eq!(recipes.of_plain(0x30).map(|of| of.memory), Some(0x10));
    }

    #[test]
    fn a_texture_keeps_its_value_when_its_context_and_its_array_have_other_handles() {
        let mut recipes = with_a_plain_array();
        recipes.keep(key_of(CONTEXT, 7).unwrap(), texture(7, 0x30));
        recipes.rename(|handle| handle + 0x1000);
        let now = key_of(CONTEXT + 0x1000, 7).unwrap();
        assert!(recipes.is_kept(now));
        assert_eq!(recipes.of_plain(0x1030).map(|of| (of.memory, of.address)), Some((0x1010, 0x8000)));
        recipes.dangle(&[0x1030]);
        assert!(recipes.in_order().iter().any(|(key, recipe)| {
            matches!(recipe, Recipe::Texture { texture, .. } if *key == now && texture.array().is_none())
        }));
        recipes.forget_context(CONTEXT + 0x1000);
        assert!(recipes.in_order().is_empty());
    }
}
