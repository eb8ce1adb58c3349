//! The end of all that a device's context has.

use super::super::program::{BLOCKS, CELLS, Place};
use super::ops::{Effect, Step};
use super::{Planner, slot};

impl Planner {
    /// A device's context is reset when its work is done.
    pub(super) fn reset(&mut self, at: usize, thread: u8, device: u8) -> Option<Step> {
        let device = self.has_device(device)?;
        let (proves, everything) = (self.all(device), self.everything());
        let mine = usize::from(thread);
        self.known[mine] = self.known[mine].with(&proves);
        let before = self.known[mine];
        for block in 0..BLOCKS {
            let is_of_it = slot(&self.blocks, block).is_some_and(|block| block.device == device);
            // Other devices, and threads, may be at work on its host memory.
            if is_of_it {
                let writes = self.cells(Place { block, first: 0 }, CELLS)?;
                self.access(at, &before, &[Effect { reads: Vec::new(), writes }])?;
                self.blocks[usize::from(block)] = None;
            }
        }
        let streams = &self.streams;
        let is_there = |of: u8| of != device;
        for place in &mut self.places {
            let of = |at: &usize| streams.get(&super::Name::Stream(*at)).is_some_and(|stream| is_there(stream.device));
            *place = place.filter(of);
        }
        for event in &mut self.events {
            *event = event.filter(|event| is_there(event.device));
        }
        for graph in &mut self.graphs {
            graph.take_if(|graph| !is_there(graph.device));
        }
        self.awaited.remove(&device);
        // Host memory and modules are made and given back on the way.
        Some(Step { device, proves, releases: self.releases(&everything), ..Step::default() })
    }
}
