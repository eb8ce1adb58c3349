//! Texture and surface objects of a spare copy: those that it lacks get the program's values, beside those that it has.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::super::{
        memory::{Failed, Renamed, length},
        objects::Objects,
        textures,
    },
    End, Made, Object, is_known, is_still_there,
};
use crate::kept::objects::recipes::Texture;

impl Made {
    /// Makes the texture and surface objects that it lacks, with the program's values.
    pub(super) fn follow_textures(
        &mut self,
        wanted: &Objects,
        numbers: &BTreeMap<usize, u64>,
        renamed: &Renamed,
    ) -> Result<u64, Failed> {
        let array_is = |texture: &Texture, is_it: &dyn Fn(usize) -> bool| texture.array().is_none_or(is_it);
        let (lacking, ending): (Vec<textures::Wanted<'_>>, Vec<_>) = textures::of(&wanted.recipes)
            .into_iter()
            .filter(|of| !self.objects.contains_key(&of.key))
            // One whose array the program has ended meanwhile is another one by now.
            .filter(|of| {
                array_is(of.texture, &|array| renamed.contains_key(&array)) || is_still_there(of.key, numbers[&of.key])
            })
            // While the driver destroys the array it is noted no longer, and its textures are not yet noted as without it.
            .partition(|of| array_is(of.texture, &|array| renamed.contains_key(&array) || is_known(array)));
        self.is_waiting = !ending.is_empty();
        if lacking.is_empty() {
            return Ok(0);
        }
        let mut there: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for of in textures::of(&wanted.recipes).iter().filter(|of| self.objects.contains_key(&of.key)) {
            there.entry(of.context).or_default().insert(of.texture.value);
        }
        textures::make(&lacking, &there, renamed)?;
        for of in &lacking {
            let end = if of.texture.how.is_some() { End::Texture } else { End::Surface };
            let context = renamed.get(&of.context).copied().unwrap_or_default();
            let object = Object { number: numbers[&of.key], handle: length(of.texture.value), context, end };
            self.objects.insert(of.key, object);
        }
        Ok(u64::try_from(lacking.len()).unwrap_or(u64::MAX))
    }
}
