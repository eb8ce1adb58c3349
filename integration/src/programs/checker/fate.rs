//! How faults of neighbours are brought about.

use super::api;
use super::base::Base;
use super::machine::write_word;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What the simulated kernel takes for a neighbour that has ended well.
pub(super) const NO_NEIGHBOUR: u32 = u32::MAX;
/// How long a neighbour's fault may take to arrive here.
const ARRIVAL: Duration = Duration::from_millis(1000);
/// How long the simulated one may.
const SIMULATED_ARRIVAL: Duration = Duration::from_millis(50);
/// Between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);
/// The latest that it arrives on a machine that is busy.
const LATEST_ARRIVAL: Duration = Duration::from_secs(10);

/// Who brings neighbours' faults about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Neighbours {
    /// The simulated driver, by a kernel that tells it to.
    Simulated,
    /// A program: `mps-aggressor`.
    Program(String),
}

/// Neighbours of one run.
#[derive(Debug)]
pub(super) struct Fate {
    neighbours: Neighbours,
    /// At which recovery a simulated neighbour was put beside each device.
    ready: [Option<u64>; 2],
    /// At which recovery one struck last, beside each device.
    struck: [Option<u64>; 2],
}

/// Of the next simulated neighbour.
static NUMBER: AtomicU32 = AtomicU32::new(1);

fn count() -> u64 {
    api::recovered().map_or(0, |recovered| recovered.count)
}

impl Fate {
    pub(super) fn new(neighbours: Neighbours) -> Self {
        Self { neighbours, ready: [None; 2], struck: [None; 2] }
    }

    /// Puts a neighbour beside a device, before the program begins.
    pub(super) fn prepare(&mut self, base: &Base, device: u8) {
        if self.neighbours == Neighbours::Simulated {
            write_word(base.words(device), 0);
            write_word(base.words(device) + 4, 0);
            // Not for one before, which a dead copy of the driver may still have.
            write_word(base.words(device) + 8, NUMBER.fetch_add(1, Ordering::Relaxed));
            self.ready[usize::from(device)] = base.neighbour(device).is_ok().then(count);
        }
    }

    /// A device's context was reset, and the neighbour beside it is gone.
    pub(super) fn forget(&mut self, device: u8) {
        (self.ready[usize::from(device)], self.struck[usize::from(device)]) = (None, None);
    }

    /// The neighbour does wrong.
    pub(super) fn strike(&mut self, base: &Base, device: u8, code: u32) {
        let before = count();
        match &self.neighbours {
            Neighbours::Simulated => {
                if self.ready[usize::from(device)] != Some(before) {
                    self.prepare(base, device);
                }
                self.ready[usize::from(device)] = None;
                self.struck[usize::from(device)] = Some(before);
                write_word(base.words(device), code);
                wait(SIMULATED_ARRIVAL, || read_word(base.words(device) + 4) != 0);
            }
            Neighbours::Program(path) => {
                let kind = match code {
                    716 => "misaligned",
                    719 => "trap",
                    _ => "oob",
                };
                let mut command = Command::new(path);
                command.arg(kind).args(["--device", &device.to_string()]).env_remove("LD_PRELOAD");
                // Its end is an error, as it should be; one that can't begin is a program without a neighbour.
                let _ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
                wait(ARRIVAL, || count() != before);
            }
        }
    }

    /// Waits until what simulated neighbours have done has arrived, however busy the machine is.
    pub(super) fn settle(&self, base: &Base) {
        for (device, struck) in (0..base.devices()).zip(self.struck) {
            let is_over = || struck.is_none_or(|before| read_word(base.words(device) + 4) != 0 || count() != before);
            wait(LATEST_ARRIVAL, is_over);
        }
    }

    /// No neighbour does wrong any more.
    pub(super) fn cancel(&mut self, base: &Base, word: u32) {
        for device in (0..base.devices()).filter(|device| self.ready[usize::from(*device)].is_some()) {
            write_word(base.words(device), word);
        }
    }
}

fn wait(longest: Duration, is_there: impl Fn() -> bool) {
    let end = Instant::now() + longest;
    while !is_there() && Instant::now() < end {
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
}

#[expect(unsafe_code, reason = "a word of a page that the driver writes, too")]
fn read_word(address: usize) -> u32 {
    // SAFETY: the page is never freed.
    unsafe { std::ptr::with_exposed_provenance::<u32>(address).read_volatile() }
}
