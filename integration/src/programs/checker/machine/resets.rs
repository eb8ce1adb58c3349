//! Contexts that end: a device's own, which is reset and made again, and further ones beside it.

use super::super::api::Answer;
use super::super::program::{BLOCK, Memory};
use super::{CURRENT, Machine};

/// Work that is given to a further context.
const VALUE: u32 = 7;

impl Machine<'_> {
    /// Resets a device's context and makes what all programs need there again. When it is tried again it goes on where it was.
    pub(super) fn reset(&mut self, device: u8) -> Answer {
        if self.reset != Some(device) {
            self.api.cuCtxSynchronize()?;
            self.give_back(device);
            self.base.reset(device)?;
            self.reset = Some(device);
        }
        // Whatever comes of it, nothing is current that was.
        CURRENT.set(None);
        self.base.make_again(device)?;
        self.reset = None;
        if let Some(fate) = &mut self.fate {
            fate.forget(device);
        }
        Ok(())
    }

    /// Forgets what ends with a device's context, and gives back what does not.
    fn give_back(&mut self, device: u8) {
        for place in 0..self.blocks.len() {
            let Some(block) = self.blocks[place].take_if(|block| block.device == device) else { continue };
            let stays = matches!(
                block.memory,
                Memory::OfOwnPool
                    | Memory::Mapped
                    | Memory::Registered
                    | Memory::Pageable
                    | Memory::OfLibrary
                    | Memory::OfFatBinary
            );
            if stays {
                // As at any other end the error is dropped.
                let _freed = self.free(&block);
            }
        }
        self.streams.iter_mut().for_each(|place| *place = place.filter(|stream| stream.device != device));
        self.events.iter_mut().for_each(|place| *place = place.filter(|event| event.device != device));
        self.graphs.iter_mut().for_each(|place| drop(place.take_if(|graph| graph.device == device)));
        self.asserting[usize::from(device)] = None;
    }

    /// Makes two further contexts with work of their own, ends the first one, and then the other.
    pub(super) fn further(&self, device: u8) -> Answer {
        let (mut contexts, mut answer) = (Vec::new(), Ok(()));
        for _ in 0..2 {
            let (mut context, mut popped) = (0, 0);
            answer = answer.and_then(|()| self.api.cuCtxCreate_v2(&raw mut context, 0, device.into()));
            if answer.is_ok() {
                contexts.push(context);
                answer = self.api.cuCtxPopCurrent_v2(&raw mut popped);
            }
        }
        for context in &contexts {
            answer = answer.and_then(|()| self.work_in(*context));
        }
        let here = (CURRENT.get(), self.api.cuCtxSetCurrent(self.base.context(device)));
        CURRENT.set(here.1.is_ok().then_some((device, self.base.resets(device))));
        for context in contexts {
            answer = answer.and(self.api.cuCtxDestroy_v2(context));
        }
        answer
    }

    /// Makes things in a context that end with it.
    fn work_in(&self, context: usize) -> Answer {
        let (mut stream, mut event, mut address, mut host) = (0, 0, 0, 0);
        self.api.cuCtxSetCurrent(context)?;
        self.api.cuStreamCreate(&raw mut stream, 0)?;
        self.api.cuEventCreate(&raw mut event, 0)?;
        self.api.cuMemAlloc_v2(&raw mut address, BLOCK)?;
        self.api.cuMemHostAlloc(&raw mut host, BLOCK, 0)?;
        self.api.cuMemsetD32Async(address, VALUE, BLOCK / 4, stream)?;
        self.api.cuMemcpyDtoHAsync_v2(host, address, BLOCK, stream)?;
        self.api.cuEventRecord(event, stream)?;
        self.api.cuEventSynchronize(event)
    }
}
