//! The event queue that the driver writes and this process reads: a ring of entries and a control page, in shared
//! memory.
//!
//! The driver puts an entry at `put` and moves `put_ahead` and `put_behind` on together; the reader moves `get_ahead`
//! and `get_behind`. One place stays free; what does not fit is counted in `dropped`, by event type. Nothing read here
//! is trusted: `put` is cut to the ring whatever it says, the reader's own position is kept in this process and only
//! written to the page, and an entry that is half written is at worst a fault with wrong numbers in it. So a driver
//! gone mad can make this reader say nonsense, and never read outside the ring or for ever.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fatal::FatalFault;
use crate::sys::uvm::SharedMemory;
use crate::sys::uvm_abi::{
    CONTROL_SIZE, DROPPED, FATAL_FAULT, GET_AHEAD, GET_BEHIND, InitEventTracker, PUT_BEHIND, Version,
};
use nix::unistd::{SysconfVar, sysconf};

/// Places in a queue; a power of two. One fault is enough for a verdict, so what a burst drops is no loss; entries and
/// control page take three pages for each client.
pub(crate) const ENTRIES: u32 = 64;
/// What a page is at most taken to be if the system does not say.
const LARGEST_PAGE: usize = 65_536;

/// The reader's side of a queue.
#[derive(Debug)]
pub(crate) struct Queue {
    memory: Arc<SharedMemory>,
    version: Version,
    control: usize,
    get: u32,
    dropped: u64,
}

fn page_size() -> usize {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok());
    size.filter(|size| size.is_power_of_two()).unwrap_or(LARGEST_PAGE)
}

impl Queue {
    /// An empty queue.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn new(version: Version) -> io::Result<Self> {
        let page = page_size();
        let control = (ENTRIES as usize * version.entry_size()).next_multiple_of(page);
        let memory = Arc::new(SharedMemory::new(control + CONTROL_SIZE.next_multiple_of(page))?);
        Ok(Self { memory, version, control, get: 0, dropped: 0 })
    }

    /// The memory, for the call that makes the driver write there, and where in it the control page is.
    pub(crate) fn memory(&self) -> (&SharedMemory, usize) {
        (&self.memory, self.control)
    }

    /// Which entries it has.
    pub(crate) const fn version(&self) -> Version {
        self.version
    }

    /// The argument of the call that makes the driver write there, for a client's descriptor of this number.
    pub(crate) fn request(&self, uvm_fd: i32) -> InitEventTracker {
        InitEventTracker::new(self.version, ENTRIES, uvm_fd)
    }

    fn put(&self) -> u32 {
        // Acquire: the entry before this position was written before the position was.
        self.memory.word32(self.control + PUT_BEHIND).load(Ordering::Acquire) % ENTRIES
    }

    /// Whether nothing is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.put() == self.get
    }

    /// Takes the next fatal fault; events of other types, which nobody has asked for, are skipped. At most as many
    /// entries are looked at as the ring has.
    pub(crate) fn take(&mut self) -> Option<FatalFault> {
        for _ in 0..ENTRIES {
            if self.is_empty() {
                return None;
            }
            let start = self.get as usize * self.version.entry_size();
            let words = core::array::from_fn(|index| {
                self.memory.word64(start + index * size_of::<u64>()).load(Ordering::Relaxed)
            });
            self.get = (self.get + 1) % ENTRIES;
            // Release: the entry has been read before the driver may write there again.
            self.memory.word32(self.control + GET_AHEAD).store(self.get, Ordering::Release);
            self.memory.word32(self.control + GET_BEHIND).store(self.get, Ordering::Release);
            if let Some(fault) = FatalFault::decode(self.version, words) {
                return Some(fault);
            }
        }
        None
    }

    /// How many fatal faults the driver has dropped for want of room since this was last asked.
    pub(crate) fn newly_dropped(&mut self) -> u64 {
        let place = self.control + DROPPED + usize::from(FATAL_FAULT) * size_of::<u64>();
        let total = self.memory.word64(place).load(Ordering::Relaxed);
        let new = total.saturating_sub(self.dropped);
        self.dropped = total;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::super::fatal::Reason;
    use super::*;
    use crate::sys::uvm_abi::PUT_AHEAD;
    use proptest::prelude::*;

    /// The driver's side, as `enqueue_event` of `uvm_tools.c` keeps it.
    struct Driver {
        memory: Arc<SharedMemory>,
        version: Version,
        control: usize,
    }

    impl Queue {
        fn driver(&self) -> Driver {
            Driver { memory: Arc::clone(&self.memory), version: self.version, control: self.control }
        }
    }

    impl Driver {
        fn put(&self, words: [u64; FatalFault::WORDS]) -> bool {
            let control = |offset| self.memory.word32(self.control + offset);
            let get = control(GET_BEHIND).load(Ordering::Acquire) % ENTRIES;
            let put = control(PUT_BEHIND).load(Ordering::Relaxed) % ENTRIES;
            if (ENTRIES + get - put) % ENTRIES == 1 {
                let place = self.control + DROPPED + usize::from(FATAL_FAULT) * 8;
                self.memory.word64(place).fetch_add(1, Ordering::Relaxed);
                return false;
            }
            let start = put as usize * self.version.entry_size();
            for (index, word) in words.iter().enumerate() {
                self.memory.word64(start + index * 8).store(*word, Ordering::Relaxed);
            }
            control(PUT_AHEAD).store((put + 1) % ENTRIES, Ordering::Release);
            control(PUT_BEHIND).store((put + 1) % ENTRIES, Ordering::Release);
            true
        }
    }

    fn fault(address: u64) -> FatalFault {
        let reason = Reason::InvalidAddress;
        FatalFault { fault_type: 2, access_type: 1, reason, processor: 1, address, time: address + 1 }
    }

    #[test]
    fn what_is_put_is_taken_in_order_again_and_again_round_the_ring() {
        for version in [Version::V1, Version::V2] {
            let mut queue = Queue::new(version).unwrap();
            assert!(queue.is_empty());
            for address in 0..u64::from(ENTRIES) * 3 {
                assert!(queue.driver().put(fault(address).encode(version)));
                assert_eq!(queue.take(), Some(fault(address)), "{version:?}");
            }
            assert_eq!((queue.take(), queue.newly_dropped()), (None, 0));
        }
    }

    #[test]
    fn a_full_queue_says_how_much_it_dropped_and_goes_on() {
        let mut queue = Queue::new(Version::V1).unwrap();
        let fitting = (0..200).filter(|address| queue.driver().put(fault(*address).encode(Version::V1))).count();
        assert_eq!(fitting, ENTRIES as usize - 1);
        assert_eq!((queue.newly_dropped(), queue.newly_dropped()), (200 - u64::from(ENTRIES) + 1, 0));
        assert_eq!(std::iter::from_fn(|| queue.take()).count(), fitting);
        assert!(queue.driver().put(fault(7).encode(Version::V1)));
        assert_eq!(queue.take(), Some(fault(7)));
    }

    #[test]
    fn events_that_nobody_has_asked_for_are_skipped() {
        let mut queue = Queue::new(Version::V2).unwrap();
        queue.driver().put([2, 0, 0]);
        queue.driver().put(fault(5).encode(Version::V2));
        assert_eq!((queue.take(), queue.take()), (Some(fault(5)), None));
    }

    #[test]
    fn entries_and_control_page_are_page_aligned_and_apart() {
        for version in [Version::V1, Version::V2] {
            let queue = Queue::new(version).unwrap();
            let (memory, control) = queue.memory();
            let page = page_size();
            assert_eq!((memory.address() % page as u64, control % page), (0, 0));
            assert!(control >= ENTRIES as usize * version.entry_size() && memory.len() >= control + CONTROL_SIZE);
        }
    }

    #[test]
    fn a_driver_that_writes_while_we_read_loses_nothing_and_tears_nothing() {
        const LAST: u64 = 20_000;
        let mut queue = Queue::new(Version::V2).unwrap();
        let writer = queue.driver();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for address in 0..LAST {
                    while !writer.put(fault(address).encode(Version::V2)) {
                        std::thread::yield_now();
                    }
                }
            });
            for address in 0..LAST {
                let found = std::iter::repeat_with(|| queue.take()).flatten().next();
                assert_eq!(found, Some(fault(address)));
            }
        });
    }

    proptest! {
        #[test]
        fn a_page_full_of_anything_ends_the_reading_and_stays_inside(
            words in prop::collection::vec(any::<u64>(), 0..600), version in prop::bool::ANY,
        ) {
            let mut queue = Queue::new(if version { Version::V1 } else { Version::V2 }).unwrap();
            for (index, word) in words.iter().enumerate() {
                queue.memory.word64(index * 8).store(*word, Ordering::Relaxed);
                queue.memory.word64(queue.control + (index % 66) * 8).store(*word, Ordering::Relaxed);
                let taken = std::iter::from_fn(|| queue.take()).take(1000).count();
                prop_assert!(taken < ENTRIES as usize);
                queue.newly_dropped();
            }
        }
    }
}
