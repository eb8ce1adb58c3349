//! What a copy takes of the process, for whoever asks what it costs.
//!
//! Counted are its threads, and the pages that are in memory of its file, of its heap and of what it has mapped itself.
//! Not: what maps a device's memory, and the stacks of its threads, which the C library maps.

use std::io;

use remps_proto::shim::SpareTakes;

use super::{Owner, heap, locked, mappings::All};
use crate::process::maps;

/// Where devices are.
const DEVICES: &str = "/dev/";

impl Owner {
    /// What a copy takes that lies around this address: some milliseconds.
    ///
    /// # Errors
    /// The system does not say what is mapped.
    pub(crate) fn takes(self, copy: usize) -> io::Result<SpareTakes> {
        let number = |address: usize| u64::try_from(address).unwrap_or_default();
        let threads = locked(&self.resources().threads).iter().filter(|of| !of.has_gone()).count();
        let of_heap = heap::pieces(self.0).into_iter().map(|(start, size)| (start, start + size));
        let own: Vec<(u64, u64)> =
            of_heap.chain(All::lock().of(self.0)).map(|(start, end)| (number(start), number(end))).collect();
        let mut all = maps::read()?;
        let path = all.iter().find(|range| range.meets(number(copy), 1)).map(|range| range.path().to_owned());
        // What cannot be read is reserved only, and may be as large as all addresses.
        all.retain(|range| range.access.contains('r') && !range.path().starts_with(DEVICES));
        let is_of_file =
            |range: &&maps::Range| path.as_ref().is_some_and(|path| !path.is_empty() && range.path() == path);
        let of_file = all.iter().filter(is_of_file).map(|range| (range.start, range.end));
        let host_bytes = maps::resident(of_file.chain(own.into_iter().flat_map(|own| maps::within(&all, own))))?;
        Ok(SpareTakes { threads: u32::try_from(threads).unwrap_or(u32::MAX), host_bytes })
    }
}
