//! A thread with a stream and memory of its own, made once.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use super::failed;
use super::workload::words_are;
use crate::programs::gpu::{Argument, Gpu, GpuError, Stream};
use crate::programs::memory_probe::{allocate, check};
use cudarc::driver::sys;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Words that a round counts up.
const WORDS: u32 = 4096;

/// The other end of a thread.
#[derive(Debug)]
pub(super) struct Worker {
    ask: Sender<()>,
    answers: Receiver<Result<(), GpuError>>,
}

impl Worker {
    /// Starts a thread in this context; it has all that it needs when this returns.
    pub(super) fn start(context: usize) -> Result<Self, GpuError> {
        let (ask, asked) = channel::<()>();
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            let made = Own::new(context);
            let is_made = made.is_ok();
            // The other side has gone, and so does this one.
            let _heard = answer.send(made.as_ref().map(|_| ()).map_err(Clone::clone));
            let Ok(mut own) = made else { return };
            while is_made && asked.recv().is_ok() {
                if answer.send(own.round()).is_err() {
                    return;
                }
            }
        });
        let worker = Self { ask, answers };
        worker.answer()?;
        Ok(worker)
    }

    fn answer(&self) -> Result<(), GpuError> {
        self.answers.recv().map_err(|error| failed("thread", error))?
    }

    /// Has it do a round.
    pub(super) fn round(&self) -> Result<(), GpuError> {
        self.ask.send(()).map_err(|error| failed("thread", error))?;
        self.answer()
    }
}

/// What the thread has.
struct Own {
    gpu: Gpu,
    stream: Stream,
    address: u64,
    count: u32,
}

impl Own {
    fn new(context: usize) -> Result<Self, GpuError> {
        let context: sys::CUcontext = std::ptr::with_exposed_provenance_mut(context);
        // SAFETY: the primary context is retained until the process ends.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        let gpu = Gpu::open(0)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the result is a variable of ours.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, 1) })?;
        let address = allocate(WORDS as usize * 4)?;
        gpu.clear(address, WORDS as usize * 4)?;
        Ok(Self { gpu, stream: Stream(stream), address, count: 0 })
    }

    fn round(&mut self) -> Result<(), GpuError> {
        let increment = self.gpu.kernel("increment")?;
        let arguments = [Argument::U64(self.address), Argument::U32(WORDS)];
        let counted = self.gpu.launch_in(self.stream, increment, WORDS, &arguments).and_then(|()| {
            // SAFETY: the stream lives as long as the process.
            check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream.0) })
        });
        if let Err(error) = counted {
            // Lost work is in doubt: it begins anew, as a program would.
            self.count = 0;
            self.gpu.clear(self.address, WORDS as usize * 4)?;
            // The thread's stream waits for no other one.
            self.gpu.synchronize()?;
            return Err(error);
        }
        self.count += 1;
        if words_are(&self.gpu.read(self.address, WORDS as usize)?, self.count) {
            Ok(())
        } else {
            let found = self.gpu.read(self.address, WORDS as usize)?;
            Err(failed("increment", format!("a word is not {}: {:?}", self.count, &found[..found.len().min(4)])))
        }
    }
}
