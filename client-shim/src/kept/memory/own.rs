//! What the program has by virtual memory management: allocations, the addresses they are mapped at, who may use them.
//! Pure bookkeeping.
//!
//! An allocation lives as long as a handle or a mapping of it: then its descriptor is dropped, or a program that puts
//! its memory to sleep by releasing it would free nothing.

pub(crate) mod survey;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{arena, kept_ranges::KeptRange};
use crate::cuda::types::{CUdevice, CUmemAccessDesc};
use crate::process::descriptors::Held;

/// A number for an allocation that no other one has, or had. A handle is given out again once it is released.
pub(crate) type Id = u64;

/// An allocation.
#[derive(Debug)]
struct Allocation {
    /// Bytes; 0 for one of another process, whose size is not told.
    size: u64,
    /// Whose memory it is; -1 for one of another process.
    device: CUdevice,
    /// What keeps it alive, if anything does.
    descriptor: Option<Held>,
    /// Whether the program did not ask for it to be exportable.
    is_exportable_by_us: bool,
    /// Handles and mappings of it.
    references: u64,
}

/// A mapped range.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// Bytes.
    size: u64,
    /// Which allocation, if it is one that is known: multicast objects are not.
    id: Option<Id>,
    /// From where in it, in bytes.
    offset: u64,
    /// Who may use it.
    access: Vec<CUmemAccessDesc>,
}

/// Reserved addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Bytes that the program has asked for.
    pub(crate) size: u64,
    /// Bytes that the driver was asked for, as many or more.
    pub(crate) reserved: u64,
}

/// A multicast object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Multicast {
    /// How often its handle must be released.
    pub(crate) references: u64,
    /// The function that the program has it by.
    pub(crate) by: &'static str,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Own {
    allocations: BTreeMap<Id, Allocation>,
    /// Which allocation a handle stands for, and how often it must be released.
    handles: BTreeMap<u64, (Id, u64)>,
    /// By address.
    mappings: BTreeMap<u64, Mapping>,
    /// By start.
    reservations: BTreeMap<u64, Reservation>,
    /// Multicast objects, by handle.
    multicasts: BTreeMap<u64, Multicast>,
    last_id: Id,
}

impl Own {
    /// An allocation has come, under this handle.
    pub(crate) fn create(
        &mut self,
        handle: u64,
        size: u64,
        device: CUdevice,
        descriptor: Option<Held>,
        is_exportable_by_us: bool,
    ) {
        // A handle that is given out again was released in a way that nobody saw.
        self.release_all(handle);
        self.multicasts.remove(&handle);
        self.last_id += 1;
        let allocation = Allocation { size, device, descriptor, is_exportable_by_us, references: 1 };
        self.allocations.insert(self.last_id, allocation);
        self.handles.insert(handle, (self.last_id, 1));
    }

    /// A multicast object has come, or another reference by its handle.
    pub(crate) fn hold_multicast(&mut self, handle: u64, by: &'static str) {
        self.multicasts.entry(handle).or_insert(Multicast { references: 0, by }).references += 1;
    }

    /// What came from another process is a multicast object, as is known once it is used as one; whether it was taken for an
    /// allocation until now. Its descriptor is closed, or the object would live on without the program, and what is mapped of
    /// it is no allocation.
    pub(crate) fn is_multicast(&mut self, handle: u64, by: &'static str) -> bool {
        let Some((id, references)) = self.handles.remove(&handle) else { return false };
        self.multicasts.insert(handle, Multicast { references, by });
        self.allocations.remove(&id);
        self.handles.retain(|_, (of, _)| *of != id);
        for mapping in self.mappings.values_mut().filter(|mapping| mapping.id == Some(id)) {
            mapping.id = None;
        }
        true
    }

    /// The handle of a multicast object is released once; what is left of it, if it is one.
    pub(crate) fn release_multicast(&mut self, handle: u64) -> Option<Multicast> {
        let object = self.multicasts.get_mut(&handle)?;
        object.references -= 1;
        let left = *object;
        if left.references == 0 {
            self.multicasts.remove(&handle);
        }
        Some(left)
    }

    /// Another reference by handle to what is mapped at an address.
    pub(crate) fn retain(&mut self, handle: u64, address: u64) {
        if let Some(object) = self.multicasts.get_mut(&handle) {
            object.references += 1;
            return;
        }
        let Some(id) = self.mapping_around(address).and_then(|mapping| mapping.id) else { return };
        let references = &mut self.handles.entry(handle).or_insert((id, 0)).1;
        *references += 1;
        if *references == 1
            && let Some(allocation) = self.allocations.get_mut(&id)
        {
            allocation.references += 1;
        }
    }

    /// Whether a handle that was had of the mapping at an address is of a multicast object, as none is held: what is mapped there
    /// is no allocation.
    pub(crate) fn is_new_multicast(&self, handle: u64, address: u64) -> bool {
        let is_unknown = self.mapping_around(address).is_some_and(|mapping| mapping.id.is_none());
        is_unknown && !self.multicasts.contains_key(&handle) && !self.handles.contains_key(&handle)
    }

    /// A handle is released once. Done before the driver is asked, so that the handle is not yet anyone else's.
    /// What is dropped closes its descriptor.
    pub(crate) fn release(&mut self, handle: u64) -> Released {
        let Some((id, references)) = self.handles.get_mut(&handle) else { return Released(None) };
        let id = *id;
        *references -= 1;
        let mut dropped = None;
        if *references == 0 {
            self.handles.remove(&handle);
            dropped = self.let_go(id);
        }
        Released(Some((handle, id, dropped)))
    }

    /// The driver has refused to release it.
    pub(crate) fn unrelease(&mut self, released: Released) {
        let Some((handle, id, dropped)) = released.0 else { return };
        self.handles.entry(handle).or_insert((id, 0)).1 += 1;
        self.take_again(id, dropped);
    }

    fn release_all(&mut self, handle: u64) {
        if let Some((id, _)) = self.handles.remove(&handle) {
            drop(self.let_go(id));
        }
    }

    /// One reference less; the allocation if that was the last one.
    fn let_go(&mut self, id: Id) -> Option<Allocation> {
        let allocation = self.allocations.get_mut(&id)?;
        allocation.references -= 1;
        if allocation.references > 0 { None } else { self.allocations.remove(&id) }
    }

    fn take_again(&mut self, id: Id, dropped: Option<Allocation>) {
        if let Some(allocation) = dropped {
            self.allocations.insert(id, allocation);
        }
        if let Some(allocation) = self.allocations.get_mut(&id) {
            allocation.references += 1;
        }
    }

    /// Whether the program must not be told that the allocation can be exported.
    pub(crate) fn is_exportable_by_us(&self, handle: u64) -> bool {
        let id = self.handles.get(&handle).map(|(id, _)| id);
        id.and_then(|id| self.allocations.get(id)).is_some_and(|allocation| allocation.is_exportable_by_us)
    }

    /// A handle was mapped; whether its allocation is known.
    pub(crate) fn map(&mut self, address: u64, size: u64, offset: u64, handle: u64) -> bool {
        let id = self.handles.get(&handle).map(|(id, _)| *id);
        if let Some(allocation) = id.and_then(|id| self.allocations.get_mut(&id)) {
            allocation.references += 1;
        }
        self.mappings.insert(address, Mapping { size, id, offset, access: Vec::new() });
        id.is_some()
    }

    /// The mappings in a range go. Done before the driver is asked, so that the addresses are not yet anyone else's.
    pub(crate) fn unmap(&mut self, address: u64, size: u64) -> Unmapped {
        let end = address.saturating_add(size);
        let starts: Vec<u64> = self.mappings.range(address..end).map(|(start, _)| *start).collect();
        let taken = starts.into_iter().filter_map(|start| {
            let mapping = self.mappings.remove(&start)?;
            let dropped = mapping.id.and_then(|id| self.let_go(id));
            Some((start, mapping, dropped))
        });
        Unmapped(taken.collect())
    }

    /// The driver has refused to unmap them.
    pub(crate) fn remap(&mut self, unmapped: Unmapped) {
        // The last reference was dropped last, so it comes back first.
        for (start, mapping, dropped) in unmapped.0.into_iter().rev() {
            if let Some(id) = mapping.id {
                self.take_again(id, dropped);
            }
            self.mappings.insert(start, mapping);
        }
    }

    /// Access to a range was set.
    pub(crate) fn allow(&mut self, address: u64, size: u64, accesses: &[CUmemAccessDesc]) {
        for (_, mapping) in self.mappings.range_mut(address..address.saturating_add(size)) {
            for access in accesses {
                mapping.access.retain(|known| known.location != access.location);
                mapping.access.push(*access);
            }
        }
    }

    /// Addresses were reserved.
    pub(crate) fn reserve(&mut self, address: u64, reservation: Reservation) {
        self.reservations.insert(address, reservation);
    }

    /// Addresses are given back; what was reserved there.
    pub(crate) fn unreserve(&mut self, address: u64) -> Option<Reservation> {
        self.reservations.remove(&address)
    }

    /// What is reserved from this address on.
    pub(crate) fn reservation(&self, address: u64) -> Option<Reservation> {
        self.reservations.get(&address).copied()
    }

    /// The reservation that an address lies in, if it is larger at the driver than the program knows.
    pub(crate) fn enlarged_around(&self, address: u64) -> Option<Reservation> {
        let (start, found) = self.reservations.range(..=address).next_back()?;
        (address - start < found.size && found.reserved != found.size).then_some(*found)
    }

    /// Whether the memory that is mapped at an address can be exported though the program has not asked for that.
    pub(crate) fn is_exportable_by_us_at(&self, address: u64) -> bool {
        let of = self.mapping_around(address).and_then(|mapping| self.allocations.get(&mapping.id?));
        of.is_some_and(|allocation| allocation.is_exportable_by_us)
    }

    /// A free address for a reservation of the program's that has no wish; 0 if there is none.
    pub(crate) fn place(&self, size: u64, alignment: u64, lane: u64) -> u64 {
        let area = arena::of_program(lane);
        let mut at = area.start.next_multiple_of(alignment);
        for (&start, found) in self.reservations.range(area.clone()) {
            if start.saturating_sub(at) >= size {
                break;
            }
            at = at.max((start + found.reserved).next_multiple_of(alignment));
        }
        if area.end.saturating_sub(at) >= size { at } else { 0 }
    }

    fn mapping_around(&self, address: u64) -> Option<&Mapping> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.size).then_some(mapping)
    }

    /// The mapped ranges that are kept.
    pub(crate) fn kept(&self) -> impl Iterator<Item = KeptRange> {
        self.mappings.iter().filter_map(|(&base, mapping)| {
            let allocation = self.allocations.get(&mapping.id?)?;
            let descriptor = allocation.descriptor.as_ref()?.number()?;
            let Mapping { size, offset, .. } = *mapping;
            Some(KeptRange { base, size, offset, device: allocation.device, descriptor })
        })
    }

    /// Every allocation with a descriptor, whose size and device are known: with where all of it is mapped.
    pub(crate) fn each_outside(&self, tell: &mut dyn FnMut(&Held, CUdevice, u64, u64)) {
        for (id, allocation) in &self.allocations {
            if let (Some(held), 1.., 0..) = (&allocation.descriptor, allocation.size, allocation.device) {
                let is_whole = |mapping: &Mapping| {
                    mapping.id == Some(*id) && mapping.offset == 0 && mapping.size == allocation.size
                };
                let address = self.mappings.iter().find(|(_, mapping)| is_whole(mapping)).map_or(0, |(at, _)| *at);
                tell(held, allocation.device, allocation.size, address);
            }
        }
    }

    /// Allocations, bytes of them, allocations with a descriptor, mappings, mapped bytes that are kept, reservations.
    pub(crate) fn totals(&self) -> [u64; 6] {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let is_held =
            |allocation: &Allocation| allocation.descriptor.as_ref().is_some_and(|held| held.number().is_some());
        let is_kept = |mapping: &Mapping| {
            let allocation = mapping.id.and_then(|id| self.allocations.get(&id));
            allocation.is_some_and(|of| is_held(of) && (of.size == 0 || mapping.offset < of.size))
        };
        [
            count(self.allocations.len()),
            self.allocations.values().map(|allocation| allocation.size).sum(),
            count(self.allocations.values().filter(|allocation| is_held(allocation)).count()),
            count(self.mappings.len()),
            self.mappings.values().filter(|mapping| is_kept(mapping)).map(|mapping| mapping.size).sum(),
            count(self.reservations.len()),
        ]
    }
}

/// A reference that was given up, until the driver agrees. Dropping it closes what nobody needs any longer.
#[derive(Debug)]
pub(crate) struct Released(Option<(u64, Id, Option<Allocation>)>);

/// Mappings that were given up, until the driver agrees.
#[derive(Debug)]
pub(crate) struct Unmapped(Vec<(u64, Mapping, Option<Allocation>)>);
