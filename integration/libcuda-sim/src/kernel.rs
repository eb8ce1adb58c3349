//! Kernels: host functions with the names and arguments of those in `integration/src/programs/kernels.ptx`.
//!
//! | name | arguments | does |
//! |---|---|---|
//! | `spin`, `long` | `u64` nanoseconds | keeps the GPU busy for that long |
//! | `endless` | | never ends |
//! | `increment` | `u64` address, `u32` count | adds one to each of so many words |
//! | `deep` | `u64` address, `u32` count | adds 28 to each word, with 1,024 bytes of stack: a memory fault (700) where its context has less |
//! | `mix` | `u64` to, `u64` from, `u32` count, `u32` key | five times the word there, and one of the source's, and the key |
//! | `look` | `u64` texture, `u64` to, `u32` count, `u32` key, `u32` first | the same with words of the texture, from there on, in the source's place |
//! | `paint` | `u64` surface, `u64` from, `u32` count, `u32` key, `u32` first | the same on words of the surface |
//! | `hold` | `u64` address of a word | busy until the host has written there |
//! | `neighbour` | `u64` address of three words | ends at once; what the host writes there later is the error by which the GPU's contexts die, as by a neighbour's fault, which the second word answers; another number in the third one is for another such kernel |
//! | `oob` | `u64` address | writes a word there: a memory fault (700) unless it is mapped |
//! | `misaligned` | `u64` address | writes a word one byte further: 716 |
//! | `assert` | | fails an assertion: 710 |
//! | `trap` | | traps: 719 |

use crate::allocations;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::driver::Driver;
use crate::uvm::WildAccess;
use sim_wire::fault::FaultKind;
use sim_wire::rpc::Notice;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the words that the kernels work on.
const WORD: usize = 4;
/// From a neighbour's first word to its number.
const NUMBER: usize = 2 * WORD;
/// `CU_LIMIT_STACK_SIZE`; what `deep` needs, and what it adds.
const STACK_SIZE: usize = 0;
const DEEP_STACK: usize = 1024;
const DEEP_SUM: u32 = 28;
/// How long a kernel that waits for a word lets others run before it looks again.
const BETWEEN_LOOKS: Duration = Duration::from_micros(30);
const LONGEST_BETWEEN_LOOKS: Duration = Duration::from_micros(500);
/// What a host writes in the place of an error when there will be none.
const NO_NEIGHBOUR: u32 = u32::MAX;

/// A kernel with its arguments, ready to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// Busy for a time; `None` is for ever.
    Busy(Option<Duration>),
    /// Adds one to each of so many words.
    Increment(usize, usize),
    /// Adds 28 to each of so many words, with much stack.
    Deep(usize, usize),
    /// Works on words at the first address with those at the second one, and a key.
    Mix(usize, usize, usize, u32),
    /// The same with words that a texture reads in the place of the second ones.
    Look(u64, usize, usize, u32, usize),
    /// The same with words that a surface writes in the place of the first ones.
    Paint(u64, usize, usize, u32, usize),
    /// Busy until there is something in a word.
    Hold(usize),
    /// Has the contexts of its GPU die when there is something in a word.
    Neighbour(usize),
    /// Writes one word.
    Write(usize),
    /// Does wrong whatever its arguments are.
    Fault(FaultKind),
}

impl Kernel {
    /// The host function of this name.
    ///
    /// # Errors
    /// `NO_BINARY_FOR_GPU` when there is none: the simulation runs no PTX.
    pub(crate) fn new(name: &str, arguments: &[u64]) -> Outcome<Self> {
        let address = |value: u64| usize::try_from(value).map_err(|_| Code::INVALID_VALUE);
        Ok(match (name, arguments) {
            ("spin" | "long", &[nanoseconds]) => Self::Busy(Some(Duration::from_nanos(nanoseconds))),
            ("endless", []) => Self::Busy(None),
            ("increment", &[start, count]) => Self::Increment(address(start)?, address(count)?),
            ("deep", &[start, count]) => Self::Deep(address(start)?, address(count)?),
            ("mix", &[to, from, count, key]) => {
                let key = u32::try_from(key).map_err(|_| Code::INVALID_VALUE)?;
                Self::Mix(address(to)?, address(from)?, address(count)?, key)
            }
            ("look" | "paint", &[object, memory, count, key, first]) => {
                let key = u32::try_from(key).map_err(|_| Code::INVALID_VALUE)?;
                let (memory, count, first) = (address(memory)?, address(count)?, address(first)?);
                match name {
                    "look" => Self::Look(object, memory, count, key, first),
                    _ => Self::Paint(object, memory, count, key, first),
                }
            }
            ("hold", &[word]) => Self::Hold(address(word)?),
            ("neighbour", &[word]) => Self::Neighbour(address(word)?),
            ("oob", &[place]) => Self::Write(address(place)?),
            ("misaligned", &[place]) => match place.checked_add(1) {
                Some(place) if place % WORD as u64 == 0 => Self::Write(address(place)?),
                _ => Self::Fault(FaultKind::MISALIGNED),
            },
            ("trap", []) => Self::Fault(FaultKind::TRAP),
            ("assert", []) => Self::Fault(FaultKind::ASSERT),
            _ => return Err(Code::NO_BINARY_FOR_GPU),
        })
    }

    /// Whether there is a host function of this name.
    pub(crate) fn exists(name: &str) -> bool {
        const NAMES: [&str; 14] = [
            "spin",
            "long",
            "endless",
            "increment",
            "deep",
            "mix",
            "look",
            "paint",
            "hold",
            "neighbour",
            "oob",
            "misaligned",
            "trap",
            "assert",
        ];
        NAMES.contains(&name)
    }

    /// Runs on a stream's thread until it ends or the context fails.
    pub(crate) fn run(self, driver: &'static Driver, context: &Context) -> Outcome {
        let time = match self {
            Self::Busy(time) => time,
            Self::Hold(_) => None,
            Self::Increment(..)
            | Self::Deep(..)
            | Self::Mix(..)
            | Self::Look(..)
            | Self::Paint(..)
            | Self::Neighbour(_)
            | Self::Write(_)
            | Self::Fault(_) => Some(Duration::ZERO),
        };
        let running = driver.start_kernel(time);
        let _at_gate = AtGate::pass(driver);
        let wrote = match self {
            Self::Busy(time) => return context.pass_time(time),
            Self::Fault(kind) => Err((kind, None)),
            Self::Hold(word) => {
                let mut pause = BETWEEN_LOOKS;
                while read_host(driver, context, word) == Some(0) {
                    context.pass_time(Some(pause))?;
                    pause = (pause * 2).min(LONGEST_BETWEEN_LOOKS);
                }
                return context.check();
            }
            Self::Neighbour(word) => {
                let number = read_host(driver, context, word + NUMBER);
                return Neighbour { driver, context: of_kernel(driver, context)?, word, number }.watch();
            }
            Self::Mix(to, from, count, key) => {
                let tables = context.at_work(driver)?;
                let is_right = |address| tables.ranges.is_accessible(address, count.saturating_mul(WORD));
                match [to, from].into_iter().find(|address| !is_right(*address)) {
                    None => {
                        tables.ranges.mix(to, from, count, key);
                        Ok(())
                    }
                    Some(address) => Err((FaultKind::OUT_OF_BOUNDS, Some(WildAccess { address, is_write: false }))),
                }
            }
            Self::Look(object, memory, count, key, first) | Self::Paint(object, memory, count, key, first) => {
                let is_written = matches!(self, Self::Paint(..));
                let tables = context.at_work(driver)?;
                let size = count.saturating_mul(WORD);
                match tables.arrays.seen_by(context.handle, object, is_written) {
                    _ if !tables.ranges.is_accessible(memory, size) => {
                        let access = WildAccess { address: memory, is_write: !is_written };
                        Err((FaultKind::OUT_OF_BOUNDS, Some(access)))
                    }
                    Some((seen, length)) if first.saturating_mul(WORD).saturating_add(size) <= length => {
                        let seen = seen + first * WORD;
                        let (to, from) = if is_written { (seen, memory) } else { (memory, seen) };
                        tables.ranges.mix(to, from, count, key);
                        Ok(())
                    }
                    // No such object, or nothing that it could read.
                    _ => Err((FaultKind::TRAP, None)),
                }
            }
            Self::Deep(address, count) => {
                let tables = context.at_work(driver)?;
                let stack = tables.context_limits.get(&(context.handle, STACK_SIZE)).copied();
                if stack.is_some_and(|bytes| bytes < DEEP_STACK)
                    || !tables.ranges.is_accessible(address, count.saturating_mul(WORD))
                {
                    Err((FaultKind::OUT_OF_BOUNDS, Some(WildAccess { address, is_write: true })))
                } else {
                    (0..DEEP_SUM).for_each(|_| tables.ranges.increment(address, count));
                    Ok(())
                }
            }
            Self::Increment(address, count) => {
                let tables = context.at_work(driver)?;
                if tables.ranges.is_accessible(address, count.saturating_mul(WORD)) {
                    tables.ranges.increment(address, count);
                    Ok(())
                } else {
                    Err((FaultKind::OUT_OF_BOUNDS, Some(WildAccess { address, is_write: false })))
                }
            }
            Self::Write(address) => {
                let tables = context.at_work(driver)?;
                if tables.ranges.is_accessible(address, WORD) {
                    tables.ranges.write(address, &[0; WORD]);
                    Ok(())
                } else {
                    Err((FaultKind::OUT_OF_BOUNDS, Some(WildAccess { address, is_write: true })))
                }
            }
        };
        drop(running);
        wrote.or_else(|(kind, access)| context.fault(driver, kind, access))
    }
}

/// A word of host memory that this copy can reach, as long as the kernel's context lives: whoever sees it end may give the
/// memory back, which is then still in the copy's tables.
fn read_host(driver: &Driver, context: &Context, address: usize) -> Option<u32> {
    let tables = context.at_work(driver).ok()?;
    tables.ranges.is_accessible(address, WORD).then(|| allocations::read_volatile(address))
}

/// A kernel that was kept before its work on memory.
struct AtGate(PathBuf);

impl AtGate {
    /// Waits at the gate, if there is one.
    fn pass(driver: &Driver) -> Option<Self> {
        let gate = driver.work_gate.as_ref().filter(|gate| gate.exists())?;
        let mut here = gate.clone().into_os_string();
        here.push(".here");
        let at_gate = Self(here.into());
        drop(File::create(&at_gate.0));
        drop(File::open(gate));
        Some(at_gate)
    }
}

impl Drop for AtGate {
    fn drop(&mut self) {
        // Who looks for it sees that the kernel is over.
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// A kernel's context, as long as that lives. After a reset another one may have its handle.
fn of_kernel(driver: &Driver, context: &Context) -> Outcome<Arc<Context>> {
    let found = context.at_work(driver)?.contexts.get(&context.handle).cloned();
    found.filter(|found| std::ptr::eq(&raw const **found, context)).ok_or(Code::CONTEXT_IS_DESTROYED)
}

/// Waits beside a context for a neighbour's fault.
struct Neighbour {
    driver: &'static Driver,
    context: Arc<Context>,
    /// Address of the words.
    word: usize,
    /// What the third one says: a kernel that was given to a copy of the driver that is dead by now looks there, too.
    number: Option<u32>,
}

impl Neighbour {
    /// Looks at the word on a thread of its own, as long as the context lives.
    fn watch(self) -> Outcome {
        let builder = std::thread::Builder::new().name("cuda-neighbour".into());
        builder.spawn(move || self.run()).map(drop).map_err(|_| Code::OPERATING_SYSTEM)
    }

    fn run(self) {
        let mut pause = BETWEEN_LOOKS;
        while let Some(code) = read_host(self.driver, &self.context, self.word) {
            match code {
                0 => {
                    // One that has failed meanwhile is seen by the next look.
                    let _failed = self.context.pass_time(Some(pause));
                    pause = (pause * 2).min(LONGEST_BETWEEN_LOOKS);
                }
                NO_NEIGHBOUR => return,
                _ if read_host(self.driver, &self.context, self.word + NUMBER) != self.number => return,
                code => {
                    let on_device = |context: &&Arc<Context>| context.device == self.context.device;
                    let hurt: Vec<_> = self.driver.tables().contexts.values().filter(on_device).cloned().collect();
                    hurt.iter().for_each(|context| context.hear(self.driver, Some(Notice::Poison(code))));
                    allocations::fill(self.word + WORD, &1_u32.to_le_bytes(), 1);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name_and_arguments() {
        assert_eq!(Kernel::new("spin", &[1000]), Ok(Kernel::Busy(Some(Duration::from_micros(1)))));
        assert_eq!(Kernel::new("misaligned", &[4]), Ok(Kernel::Fault(FaultKind::MISALIGNED)));
        assert_eq!(Kernel::new("mix", &[4, 8, 2, 3]), Ok(Kernel::Mix(4, 8, 2, 3)));
        assert_eq!(Kernel::new("hold", &[64]), Ok(Kernel::Hold(64)));
        assert_eq!(Kernel::new("spin", &[]), Err(Code::NO_BINARY_FOR_GPU));
        assert_eq!(Kernel::new("gemm", &[1]), Err(Code::NO_BINARY_FOR_GPU));
    }
}
