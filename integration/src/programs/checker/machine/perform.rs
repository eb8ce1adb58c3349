//! Each operation as calls of the driver.

use super::host::{call_data, mix_on_host, read_bytes, write_word};
use super::{Block, Event, MEMORY_TYPE, Machine, Stream, none};
use crate::programs::checker::api::{self, Answer, Failed};
use crate::programs::checker::base::pause;
use crate::programs::checker::plan::Step;
use crate::programs::checker::program::{CELL, Memory, Place, Queue, What, Wrong};
use crate::programs::checker::wrong::Bytes;

/// An address that nothing is ever mapped at.
const WILD: u64 = 0x10;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: u32 = 600;

impl Machine<'_> {
    /// Makes the calls of one operation: what it has read, and whether what it has asked for is not done yet.
    pub(super) fn perform(
        &mut self,
        at: usize,
        thread: u8,
        step: &Step,
        read: &mut Vec<Bytes>,
        is_not_ready: &mut bool,
    ) -> Answer {
        self.enter(step.device)?;
        let (api, program) = (self.api, self.program);
        let asked = |answer: Answer, is_not_ready: &mut bool| match answer {
            Err(Failed { code: NOT_READY, .. }) => {
                *is_not_ready = true;
                Ok(())
            }
            other => other,
        };
        match &program.ops[at].what {
            What::MakeStream { stream, device, is_blocking } => {
                let mut handle = 0;
                api.cuStreamCreate(&raw mut handle, if *is_blocking { 0 } else { NON_BLOCKING })?;
                self.streams[usize::from(*stream)] = Some(Stream { handle, device: *device });
            }
            What::EndStream { stream } => {
                let stream = self.streams[usize::from(*stream)].take().ok_or(none())?;
                api.cuStreamDestroy_v2(stream.handle)?;
            }
            What::MakeEvent { event, device, is_timeless } => {
                let mut handle = 0;
                api.cuEventCreate(&raw mut handle, if *is_timeless { DISABLE_TIMING } else { 0 })?;
                self.events[usize::from(*event)] = Some(Event { handle, device: *device });
            }
            What::EndEvent { event } => {
                let event = self.events[usize::from(*event)].take().ok_or(none())?;
                api.cuEventDestroy_v2(event.handle)?;
            }
            What::Record { event, on } => {
                match (self.event(*event)?, self.on(*on)?) {
                    (event, (true, stream)) => api.cuEventRecord_ptsz(event, stream)?,
                    (event, (false, stream)) => api.cuEventRecord(event, stream)?,
                }
                self.recorded[usize::from(*event)] = self.judge.recoveries.len();
            }
            What::RecordAll { event, is_away } => {
                self.be_away(step.device, *is_away)?;
                api.cuCtxRecordEvent(self.base.context(step.device), self.event(*event)?)?;
                self.recorded[usize::from(*event)] = self.judge.recoveries.len();
            }
            What::AwaitAll { event, is_away } => {
                self.be_away(step.device, *is_away)?;
                api.cuCtxWaitEvent(self.base.context(step.device), self.event(*event)?)?;
            }
            What::Await { event, on } => match (self.event(*event)?, self.on(*on)?) {
                (event, (true, stream)) => api.cuStreamWaitEvent_ptsz(stream, event, 0)?,
                (event, (false, stream)) => api.cuStreamWaitEvent(stream, event, 0)?,
            },
            What::SyncEvent { event } => api.cuEventSynchronize(self.event(*event)?)?,
            What::AskEvent { event } => asked(api.cuEventQuery(self.event(*event)?), is_not_ready)?,
            What::AskTime { from, to } => {
                let mut milliseconds = 0.0;
                let (from, to) = (self.event(*from)?, self.event(*to)?);
                asked(api.cuEventElapsedTime(&raw mut milliseconds, from, to), is_not_ready)?;
            }
            What::Allocate { block, device, memory } => {
                let made = self.allocate(*memory, *device)?;
                self.blocks[usize::from(*block)] = Some(made);
            }
            What::Free { block } => {
                let block = self.blocks[usize::from(*block)].take().ok_or(none())?;
                self.free(&block)?;
            }
            What::FreeInOrder { block, on } => {
                let (is_own, stream) = self.on(*on)?;
                let Block { address, memory, owner, .. } = self.blocks[usize::from(*block)].take().ok_or(none())?;
                if is_own {
                    api.cuMemFreeAsync_ptsz(address, stream)?;
                } else {
                    api.cuMemFreeAsync(address, stream)?;
                }
                if memory == Memory::OfOwnPool {
                    api.cuMemPoolDestroy(owner)?;
                }
            }
            What::Rest => {
                api::rest();
            }
            What::AskPointer { block } => {
                let mut kind = 0;
                api.cuPointerGetAttribute(&raw mut kind, MEMORY_TYPE, self.block(*block)?.address)?;
            }
            What::HostWrite { to, cells, key } => {
                let start = self.at(*to)?;
                for (index, value) in (0..usize::from(*cells) * CELL / 4).zip(*key..) {
                    write_word(start + index * 4, value);
                }
            }
            What::HostRead { from, .. } => {
                let start = self.at(*from)?;
                read.extend((0..step.reads.len()).map(|cell| read_bytes(start + cell * CELL)));
            }
            What::Read { from, on, .. } => {
                let (is_own, _) = self.on(*on)?;
                for cell in 0..step.reads.len() {
                    let place = Place { first: from.first + u8::try_from(cell).unwrap_or_default(), ..*from };
                    read.push(self.read(place, is_own)?);
                }
            }
            What::Copy { to, from, cells, on, is_async, is_generic } => {
                self.copy(*to, *from, usize::from(*cells) * CELL, *on, *is_async, *is_generic)?;
            }
            What::Batch { copies, stream } => self.batch(copies, *stream)?,
            What::PeerCopy { to, from, cells } => self.peer_copy(*to, *from, usize::from(*cells) * CELL)?,
            What::Set { to, cells, key, on, is_async } => {
                let (address, count) = (self.at(*to)?, usize::from(*cells) * CELL / 4);
                match (self.on(*on)?, is_async) {
                    ((true, stream), true) => api.cuMemsetD32Async_ptsz(address, *key, count, stream)?,
                    ((false, stream), true) => api.cuMemsetD32Async(address, *key, count, stream)?,
                    ((true, _), false) => api.cuMemsetD32_v2_ptds(address, *key, count)?,
                    ((false, _), false) => api.cuMemsetD32_v2(address, *key, count)?,
                }
            }
            What::Mix { to, from, cells, key, on } => {
                let (function, arguments) = self.mixing(*to, *from, *cells, *key, step.device)?;
                self.launch(function, *on, &arguments)?;
            }
            What::MixBesides { to, from, cells, key, on, ended, begun, is_early } => {
                let (function, arguments) = self.mixing(*to, *from, *cells, *key, step.device)?;
                self.launch_besides(function, *on, &arguments, (*ended, *begun, *is_early))?;
            }
            What::Call { to, cells, key, on } => {
                let data = call_data(self.at(*to)?, usize::from(*cells) * CELL / 4, *key);
                match self.on(*on)? {
                    (true, stream) => api.cuLaunchHostFunc_ptsz(stream, mix_on_host, data)?,
                    (false, stream) => api.cuLaunchHostFunc(stream, mix_on_host, data)?,
                }
            }
            What::Hold { on } => {
                self.launch(self.base.kernels(step.device).hold, *on, &[self.base.hold(step.device, at) as u64])?;
            }
            What::Release { .. } => {}
            What::SyncStream { on } => match self.on(*on)? {
                (true, stream) => api.cuStreamSynchronize_ptsz(stream)?,
                (false, stream) => api.cuStreamSynchronize(stream)?,
            },
            What::AskStream { on } => {
                let answer = match self.on(*on)? {
                    (true, stream) => api.cuStreamQuery_ptsz(stream),
                    (false, stream) => api.cuStreamQuery(stream),
                };
                asked(answer, is_not_ready)?;
            }
            What::SyncContext { .. } => api.cuCtxSynchronize()?,
            What::Reset { device } => self.reset(*device)?,
            What::Further { device } => {
                // A fault that came meanwhile would find them in a recovery's way.
                self.fate.iter().for_each(|fate| fate.settle(self.base));
                self.settle(at, step)?;
                self.further(*device)?;
            }
            What::SyncOther { device } => {
                self.be_away(*device, true)?;
                api.cuCtxSynchronize_v2(self.base.context(*device))?;
            }
            What::MakeGraph { graph, stream, is_captured, nodes } => {
                let made = self.make_graph(*stream, *is_captured, nodes, step.device)?;
                self.graphs[usize::from(*graph)] = Some(made);
            }
            What::UpdateGraph { graph, key } => self.update_graph(*graph, *key, step.device)?,
            What::LaunchGraph { graph, on } => {
                let executable = self.graphs[usize::from(*graph)].as_ref().ok_or(none())?.executable;
                match self.on(*on)? {
                    (true, stream) => api.cuGraphLaunch_ptsz(executable, stream)?,
                    (false, stream) => api.cuGraphLaunch(executable, stream)?,
                }
            }
            What::EndGraph { graph } => {
                let made = self.graphs[usize::from(*graph)].take().ok_or(none())?;
                self.end_graph(&made)?;
            }
            What::HandOver { to } => self.judge.hand_over(thread, *to),
            // The kernel's clock says nothing where nothing is lost.
            What::Pause if self.expected.is_none() => {}
            What::Pause => pause(),
            // Done by the thread itself.
            What::Leave => {}
            What::ReadAll => {
                self.settle(at, step)?;
                for (place, _) in &step.reads {
                    let is_host = self.is_host(*place)?;
                    let bytes = if is_host { read_bytes(self.at(*place)?) } else { self.read(*place, false)? };
                    read.push(bytes);
                }
            }
            What::Fault { wrong, on } => self.do_wrong(*wrong, *on, step.device)?,
            What::Neighbour { device, code } => {
                if let Some(fate) = &mut self.fate {
                    fate.strike(self.base, *device, *code);
                }
            }
        }
        Ok(())
    }

    /// Waits for each device.
    fn settle(&mut self, at: usize, step: &Step) -> Answer {
        for (device, proven) in (0..self.base.devices()).zip(&step.stages) {
            self.enter(device)?;
            self.api.cuCtxSynchronize()?;
            // The next device may be dead, and what is done on this one is not lost with it.
            self.judge.look(self.plan, Some(at));
            self.judge.proved(proven);
        }
        Ok(())
    }

    fn do_wrong(&mut self, wrong: Wrong, on: Queue, device: u8) -> Answer {
        let kernels = self.base.kernels(device);
        match wrong {
            Wrong::OutOfBounds => self.launch(kernels.oob, on, &[WILD]),
            Wrong::Misaligned => self.launch(kernels.misaligned, on, &[self.base.hold(device, 0) as u64]),
            Wrong::Trap => self.launch(kernels.trap, on, &[]),
            Wrong::Assertion => {
                let (module, function) = self.base.load_asserting()?;
                self.asserting[usize::from(device)] = Some(module);
                self.launch(function, on, &[])
            }
        }
    }
}
