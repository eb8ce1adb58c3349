//! What variables have in a spare copy of the driver.
//!
//! A variable begins with what its image has. What is known of the program's is written over it beside the program's way,
//! and what is known no longer is put back: whoever goes on with the copy finds what it would have found in one that was
//! made then ([`still`](crate::kept::code::still)). Nothing runs in the copy, so what was written stays.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::{BTreeMap, btree_map::Entry};

use super::super::{
    memory::{Failed, Renamed, checked},
    objects::{Objects, enter},
    variables,
};
use super::settled::Numbers;
use crate::{
    cuda::{result::CUresult, types::Key as _},
    kept::{code::still::Name, objects::recipes::Recipe},
};

/// A variable of the copy.
#[derive(Debug)]
struct Contents {
    context: usize,
    /// Whose it is, by the program's handle, and the number of that.
    of: (usize, Option<u64>),
    initial: Vec<u8>,
    /// What it has now, if it is something else.
    now: Option<Vec<u8>>,
}

impl Contents {
    fn now(&self) -> &[u8] {
        self.now.as_deref().unwrap_or(&self.initial)
    }
}

/// Where one is that has a name: in the copy's context, at this address, of this size.
type Found = (Option<u64>, usize, usize, usize);

/// Variables that had, or have, anything else than at first.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// By the copy's address.
    contents: BTreeMap<usize, Contents>,
    found: BTreeMap<Name, Found>,
    followed: Option<Followed>,
}

/// What they were made to contain last, and by which handles.
#[derive(Debug, PartialEq, Eq)]
struct Followed {
    /// The number of what was read, if anything was that still holds.
    still: Option<u64>,
    written: Vec<(usize, Vec<u8>)>,
    numbers: Numbers,
    renamed: Renamed,
}

impl Variables {
    /// Has them contain what is wanted; how many did not. Where that is what was wanted last, nobody looks at each: a program
    /// may have ten thousand.
    pub(super) fn follow(&mut self, wanted: &Objects, numbers: &Numbers, renamed: &Renamed) -> Result<u64, Failed> {
        let (still, written) = (wanted.still.as_ref().map(|_| wanted.still_number), &wanted.written);
        let is_so =
            |of: &Followed| (of.still, &of.written, &of.numbers, &of.renamed) == (still, written, numbers, renamed);
        if self.followed.as_ref().is_some_and(is_so) {
            return Ok(0);
        }
        self.followed = None;
        let count = self.contain(wanted, numbers, renamed)?;
        let (written, numbers, renamed) = (written.clone(), numbers.clone(), renamed.clone());
        self.followed = Some(Followed { still, written, numbers, renamed });
        Ok(count)
    }

    fn contain(&mut self, wanted: &Objects, numbers: &Numbers, renamed: &Renamed) -> Result<u64, Failed> {
        self.contents.retain(|_, of| numbers.get(&of.of.0).copied() == of.of.1);
        self.found.retain(|name, (number, ..)| numbers.get(&name.of).copied() == *number);
        let mut all: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        self.written(wanted, numbers, renamed, &mut all)?;
        self.still(wanted, numbers, renamed, &mut all)?;
        let mut count = 0;
        for (address, of) in &mut self.contents {
            let bytes = all.get(address).unwrap_or(&of.initial);
            let Some(first) = bytes.iter().zip(of.now()).position(|(one, other)| one != other) else { continue };
            let behind = bytes.iter().zip(of.now()).rposition(|(one, other)| one != other).unwrap_or(first) + 1;
            enter(of.context)?;
            let part = &bytes[first..behind];
            let answer = driver!(copy::cuMemcpyHtoD_v2((address + first).key(), part.as_ptr().cast(), part.len()));
            checked("cuMemcpyHtoD", answer)?;
            of.now = Some(bytes.clone()).filter(|now| *now != of.initial);
            count += 1;
        }
        Ok(count)
    }

    /// What one contains at first, which is read before anything is written there.
    fn initial(
        &mut self,
        address: usize,
        context: usize,
        of: (usize, Option<u64>),
        size: usize,
    ) -> Result<&[u8], Failed> {
        match self.contents.entry(address) {
            Entry::Occupied(known) => Ok(&known.into_mut().initial),
            Entry::Vacant(place) => {
                let mut initial = vec![0_u8; size];
                enter(context)?;
                let answer = driver!(copy::cuMemcpyDtoH_v2(initial.as_mut_ptr().cast(), address.key(), size));
                checked("cuMemcpyDtoH", answer)?;
                Ok(&place.insert(Contents { context, of, initial, now: None }).initial)
            }
        }
    }

    /// What the program has written.
    fn written(
        &mut self,
        wanted: &Objects,
        numbers: &Numbers,
        renamed: &Renamed,
        all: &mut BTreeMap<usize, Vec<u8>>,
    ) -> Result<(), Failed> {
        if wanted.written.is_empty() {
            return Ok(());
        }
        let variables: BTreeMap<usize, (usize, usize, usize)> = wanted
            .recipes
            .iter()
            .filter_map(|(start, recipe)| {
                let Recipe::Variable { context, of, size, .. } = recipe else { return None };
                Some((*start, (*context, *of, *size)))
            })
            .collect();
        for (address, bytes) in &wanted.written {
            let Some((start, &(context, of, size))) = variables.range(..=*address).next_back() else { continue };
            let (Some(&context), Some(&now)) = (renamed.get(&context), renamed.get(start)) else { continue };
            let offset = address - start;
            if offset + bytes.len() > size {
                continue;
            }
            let initial = self.initial(now, context, (of, numbers.get(&of).copied()), size)?;
            all.entry(now).or_insert_with(|| initial.to_vec())[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// What was read when the program was at rest, if it is still so.
    fn still(
        &mut self,
        wanted: &Objects,
        numbers: &Numbers,
        renamed: &Renamed,
        all: &mut BTreeMap<usize, Vec<u8>>,
    ) -> Result<(), Failed> {
        let Some(still) = &wanted.still else { return Ok(()) };
        let missing = Failed { call: "cuModuleGetGlobal", answer: CUresult(400) };
        for (name, bytes) in &still.variables {
            let number = numbers.get(&name.of).copied();
            let (_, context, address, size) = match self.found.get(name) {
                Some(found) => *found,
                None => {
                    let now = |handle: &usize| renamed.get(handle).copied().ok_or(missing);
                    let current = Name { context: now(&name.context)?, of: now(&name.of)?, ..name.clone() };
                    enter(current.context)?;
                    let found = variables::find(&current);
                    let (address, size) = found.map_err(|answer| Failed { call: "cuModuleGetGlobal", answer })?;
                    let found = (number, current.context, address, size);
                    self.found.insert(name.clone(), found);
                    found
                }
            };
            if size != bytes.len() {
                return Err(Failed { call: "cuModuleGetGlobal of the same size", answer: CUresult(500) });
            }
            self.initial(address, context, (name.of, number), size)?;
            all.insert(address, bytes.clone());
        }
        Ok(())
    }
}
