//! One of several programs that share memory and an event: it does what it is told by lines on standard input, and says
//! after each what came of it, by a line on standard output: the driver's code, and a word.
//!
//! | line | does |
//! |---|---|
//! | `share` | makes memory and an event, records it, and exports both: the word has the handles |
//! | `again` | ends the event and exports another one |
//! | `open MEMORY EVENT` | opens them; `more EVENT` opens an event once more, and ends that one |
//! | `hold`, `go` | has the stream busy until `go` |
//! | `trap` | does wrong behind what the stream has |
//! | `fill KEY` | fills the memory, by the stream; `record` puts the event behind it, `elsewhere N` N times in another stream |
//! | `pass` | exports what `take` copies to, with an event of its own; `hand` records that one |
//! | `take` | has the stream wait for the event and copy the memory |
//! | `look KEY` | waits for the stream, and says whether what was copied has this key everywhere |
//! | `wait`, `query` | of the event, by the host |
//! | `start`, `stop`, `time` | records an event with a time in the stream, and another one, and asks for the time between them until there is one |
//! | `harm` | has the context die by a kernel in another stream |
//! | `obstruct`, `reset` | has something that no recovery makes again, or ends the context |
//! | `misuse` | does with the event what is refused, and says with which codes |
//! | `premature` | does with an event that is for other processes, and given to none, what no page would hear of, and says with which code |
//! | `recoveries`, `way` | how often it has gone on with another copy of the driver, and in which way the last time |
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

mod events;
mod misuse;
mod time;

use super::super::crash;
use super::{handle_of, opened, parsed, text_of};
use crate::programs::checker::KERNELS;
use crate::programs::gpu::{Argument, Gpu, GpuError, Kernel, Stream, initialise};
use crate::programs::memory_probe::{allocate, check};
use crate::programs::replay_probe::{is_by_a_spare, recoveries};
use cudarc::driver::sys;
use events::{event_handle, new_event, opened_event};
use misuse::premature;
use std::ffi::c_void;
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::ptr;

/// Bytes of what is shared: pages, and some more.
const SIZE: usize = (1 << 20) + 4096 + 12;
/// Words that streams wait for.
const HOLDS: usize = 1024;

struct Party {
    gpu: Gpu,
    streams: [sys::CUstream; 2],
    memory: u64,
    copy: u64,
    event: sys::CUevent,
    handed: sys::CUevent,
    /// With times.
    timed: [sys::CUevent; 2],
    words: *mut u32,
    held: usize,
    holds: Option<Kernel>,
}

type Outcome = Result<String, GpuError>;

fn none() -> Outcome {
    Ok(String::new())
}

impl Party {
    fn new() -> Result<Self, GpuError> {
        initialise()?;
        let gpu = Gpu::open(0)?;
        let mut streams = [ptr::null_mut(); 2];
        for stream in &mut streams {
            // SAFETY: the result is a variable of ours.
            check("cuStreamCreate", unsafe { sys::cuStreamCreate(stream, 1) })?;
        }
        let mut words: *mut c_void = ptr::null_mut();
        // SAFETY: as above.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&raw mut words, HOLDS * 4, 2) })?;
        let words = words.cast::<u32>();
        // SAFETY: there is room for so many.
        unsafe { words.write_bytes(0, HOLDS) };
        let (event, handed, timed) = (ptr::null_mut(), ptr::null_mut(), time::new_events()?);
        Ok(Self { gpu, streams, memory: 0, copy: allocate(SIZE)?, event, handed, timed, words, held: 0, holds: None })
    }

    fn first(&self) -> Stream {
        Stream(self.streams[0])
    }

    fn share(&mut self) -> Outcome {
        self.memory = allocate(SIZE)?;
        self.event = new_event()?;
        // As PyTorch has it: it is exported when it was recorded.
        self.record(0)?;
        Ok(format!("{} {}", text_of(handle_of(self.memory)?), event_handle(self.event)?))
    }

    fn again(&mut self) -> Outcome {
        // SAFETY: it is ours, and not used again.
        check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.event) })?;
        self.event = new_event()?;
        event_handle(self.event)
    }

    fn record(&self, stream: usize) -> Result<(), GpuError> {
        // SAFETY: both are ours.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.event, self.streams[stream]) })
    }

    fn pass(&mut self) -> Outcome {
        self.handed = new_event()?;
        Ok(format!("{} {}", text_of(handle_of(self.copy)?), event_handle(self.handed)?))
    }

    fn hand(&self) -> Outcome {
        // SAFETY: both are ours.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.handed, self.streams[0]) })?;
        none()
    }

    fn open(&mut self, memory: &str, event: &str) -> Outcome {
        self.memory = opened(parsed(memory)?)?;
        self.event = opened_event(event)?;
        none()
    }

    /// One that ends after four seconds at the latest.
    fn kernel_that_holds(&mut self) -> Result<Kernel, GpuError> {
        if let Some(kernel) = self.holds {
            return Ok(kernel);
        }
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the image is a text that ends with NUL, and the result a variable of ours.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()) })?;
        // SAFETY: as above.
        let found = unsafe { sys::cuModuleGetFunction(&raw mut function, module, c"hold".as_ptr()) };
        check("cuModuleGetFunction", found)?;
        Ok(*self.holds.insert(Kernel(function)))
    }

    fn hold(&mut self) -> Outcome {
        let kernel = self.kernel_that_holds()?;
        let word = self.words.wrapping_add(self.held);
        self.held += 1;
        self.gpu.launch_in(self.first(), kernel, 1, &[Argument::U64(word.expose_provenance() as u64)])?;
        none()
    }

    fn go(&self) {
        for at in 0..self.held {
            // SAFETY: there are so many words, which kernels read meanwhile.
            unsafe { self.words.wrapping_add(at).write_volatile(1) };
        }
    }

    fn trap(&mut self, stream: usize) -> Outcome {
        let kernel = self.gpu.kernel("trap")?;
        self.gpu.launch_in(Stream(self.streams[stream]), kernel, 1, &[])?;
        none()
    }

    fn fill(&self, key: u8) -> Outcome {
        // SAFETY: the memory is ours.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(self.memory, key, SIZE, self.streams[0]) })?;
        none()
    }

    fn take(&self) -> Outcome {
        // SAFETY: both are ours.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.streams[0], self.event, 0) })?;
        // SAFETY: both places have so many bytes.
        let copied = unsafe { sys::cuMemcpyDtoDAsync_v2(self.copy, self.memory, SIZE, self.streams[0]) };
        check("cuMemcpyDtoDAsync", copied)?;
        none()
    }

    fn look(&self, key: u8) -> Outcome {
        // SAFETY: the stream is ours.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.streams[0]) })?;
        let mut bytes = vec![0_u8; SIZE];
        // SAFETY: there is room for so many.
        check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.copy, SIZE) })?;
        Ok(if bytes.iter().all(|byte| *byte == key) { "right".into() } else { "wrong".into() })
    }

    fn harm(&mut self) -> Outcome {
        self.trap(1)?;
        // SAFETY: the stream is ours.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.streams[1]) })?;
        none()
    }

    fn does(&mut self, line: &str) -> Outcome {
        let words: Vec<&str> = line.split_whitespace().collect();
        let key = |text: &str| text.parse::<u8>().map_err(super::failed);
        match words.as_slice() {
            ["share"] => self.share(),
            ["again"] => self.again(),
            ["open", memory, event] => self.open(memory, event),
            ["more", event] => {
                let event = opened_event(event)?;
                // SAFETY: it was just opened.
                check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event) })?;
                none()
            }
            ["hold"] => self.hold(),
            ["go"] => {
                self.go();
                none()
            }
            ["trap"] => self.trap(0),
            ["fill", of] => self.fill(key(of)?),
            ["record"] => {
                self.record(0)?;
                none()
            }
            ["elsewhere", count] => {
                for _ in 0..key(count)? {
                    self.record(1)?;
                }
                none()
            }
            ["pass"] => self.pass(),
            ["hand"] => self.hand(),
            ["take"] => self.take(),
            ["look", of] => self.look(key(of)?),
            ["wait"] => {
                // SAFETY: it is ours.
                check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })?;
                none()
            }
            ["query"] => {
                // SAFETY: it is ours.
                check("cuEventQuery", unsafe { sys::cuEventQuery(self.event) })?;
                none()
            }
            ["start"] => self.marks(0),
            ["stop"] => self.marks(1),
            ["time"] => self.time(),
            ["finish"] => {
                self.gpu.synchronize()?;
                none()
            }
            ["obstruct"] => {
                let mut linker = ptr::null_mut();
                // SAFETY: the result is a variable of ours, and there are no options.
                let answer = unsafe { sys::cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &raw mut linker) };
                check("cuLinkCreate", answer)?;
                none()
            }
            ["reset"] => {
                // SAFETY: nothing of the context is used again.
                check("cuDevicePrimaryCtxReset", unsafe { sys::cuDevicePrimaryCtxReset_v2(0) })?;
                none()
            }
            ["harm"] => self.harm(),
            ["misuse"] => self.misuse(),
            ["premature"] => premature(),
            ["way"] => Ok(if is_by_a_spare() { "spare" } else { "in-place" }.to_owned()),
            ["recoveries"] => Ok(recoveries().to_string()),
            _ => Err(super::failed(format!("{line:?} is no line"))),
        }
    }
}

/// Somebody has taken its standard input.
fn has_no_input(error: &std::io::Error) -> ExitCode {
    let _nobody_hears = writeln!(std::io::stderr(), "standard input: {error}");
    ExitCode::FAILURE
}

/// The program.
pub(super) fn run() -> ExitCode {
    crash::watch(libc::STDERR_FILENO);
    let mut party = Party::new();
    for line in std::io::stdin().lock().lines() {
        let line = match line {
            Ok(line) => line,
            Err(error) => return has_no_input(&error),
        };
        let done = party.as_mut().map_err(|error| error.clone()).and_then(|party| party.does(&line));
        let (code, word) = match done {
            Ok(word) => (0, word),
            Err(error) => (error.code.max(1), error.to_string()),
        };
        let mut out = std::io::stdout().lock();
        // Who has gone asks for nothing more.
        let _unread = writeln!(out, "{code} {word}").and_then(|()| out.flush());
    }
    ExitCode::SUCCESS
}
