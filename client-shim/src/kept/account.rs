//! What is not recoverable, and why: counted by function and reason.

use std::collections::{BTreeMap, BTreeSet};

use super::keeping::{Room, is_on};
use crate::{
    cuda::{result::CUresult, types::CUdeviceptr},
    process::settings,
};

/// Declares the reasons and their texts.
macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident = $text:literal,)+) => {
        /// Why something does not outlive a fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Reason {
            $($(#[$doc])* $reason,)+
        }

        impl Reason {
            /// The reason in words.
            const fn text(self) -> &'static str {
                match self {
                    $(Self::$reason => $text,)+
                }
            }

            /// All of them: name and text.
            #[cfg(test)]
            pub(crate) const ALL: &[(&str, &str)] = &[$((stringify!($reason), $text)),+];
        }
    };
}

reasons! {
    /// `cuMemAllocManaged`.
    Managed = "managed memory has no descriptor",
    /// Pools.
    StreamOrdered = "memory of the driver's pools has no descriptor",
    /// Arrays, textures, surfaces.
    Array = "the layout of an array is the driver's secret",
    /// Texture and surface objects of which a recovery could not give the values again.
    Texture = "a texture or surface object could have another value",
    /// Graphs and what is made of them.
    Graph = "a graph or its user object can only be made again by the program",
    /// Allocations, conditions, external semaphores, batches of memory operations, arrays.
    GraphNode = "a node of a graph is of a kind that is not made again",
    /// Functions by unknown ways.
    GraphKernel = "a kernel of a graph is of a module that nobody has seen",
    /// The driver does not know the sizes of parameters.
    GraphArguments = "the arguments of a graph's kernel cannot be copied",
    /// Too many.
    GraphTooLarge = "graphs take more memory than is kept of them",
    /// Legacy handles.
    Ipc = "what another process has made ends with that process's driver",
    /// Pools and what comes from others' pools.
    Pool = "the memory of pools is the driver's",
    /// External memory and semaphores.
    External = "what another interface has made is not known here",
    /// Multicast objects.
    Multicast = "a multicast object is made by several processes together",
    /// `cuMemHostAlloc`.
    HostMemory = "the driver does not register such host memory",
    /// Green contexts and their streams.
    GreenContext = "a green context is not made again",
    /// `cuCtxCreate`.
    OtherContext = "only primary contexts are made again",
    /// Addresses of a library's functions.
    Variable = "a function's address is another one after a reload",
    /// Enumerated kernels and functions.
    Nameless = "the driver does not tell the names of what it has enumerated",
    /// `cuGetExportTable`.
    PrivateTable = "nobody knows what this private table's functions do",
    /// Per-thread default streams.
    StreamOfAThread = "what is set on a thread's own default stream can be set by that thread alone",
    /// `cuLinkCreate`.
    Linker = "a linker at work is not begun again",
    /// `cuCoredumpSetAttribute`.
    CoreDump = "what is set for core dumps is not set again",
    /// Functions that the driver calls.
    Callback = "a function that the driver is to call is not registered again",
    /// Images without a readable length, or too many of them.
    Image = "the image cannot be kept",
    /// JIT options.
    JitOption = "the image was compiled with options that cannot be kept",
    /// The host's memory.
    NotOnADevice = "memory that is not a device's is not kept",
    /// An import from something else.
    NotByDescriptor = "what came by another kind of handle than a descriptor is not kept",
    /// A multicast object.
    UnknownObject = "a mapping of something that is no allocation",
    /// There was memory for the driver's way of allocating and not for ours.
    NoMemoryInPages = "no memory was left in pages of 2 MiB",
    /// No virtual memory management here.
    NotExportable = "the driver refuses exportable memory",
    /// Too many descriptors.
    NoDescriptor = "the process may have no more descriptors",
}

/// How much of something there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// There now.
    live: u64,
    /// Made in all.
    ever: u64,
    /// Bytes there now.
    bytes: u64,
    /// Bytes made in all.
    made_bytes: u64,
}

type Key = (&'static str, Reason);

static ACCOUNT: Room<Account> = Room::new();

/// What is not recoverable.
#[derive(Debug, Default)]
struct Account {
    counts: BTreeMap<Key, Count>,
    /// Ranges and objects that are not kept: by address or handle, why and how long.
    ranges: BTreeMap<u64, (Key, u64)>,
    /// What ends with an object, by the object.
    parts: BTreeMap<u64, BTreeSet<u64>>,
}

/// A range was allocated that is not kept.
pub(crate) fn lost_range(function: &'static str, reason: Reason, address: CUdeviceptr, size: usize) {
    if is_on() {
        let bytes = u64::try_from(size).unwrap_or(u64::MAX);
        ACCOUNT.with(|account| account.add(function, reason, address, bytes));
    }
}

/// An object was made that cannot be made again.
pub(crate) fn made(function: &'static str, reason: Reason, object: u64) {
    if is_on() {
        ACCOUNT.with(|account| account.add(function, reason, object, 0));
    }
}

/// The same where more is kept than memory, so that somebody notes when it is destroyed.
pub(crate) fn counted(function: &'static str, reason: Reason, object: u64) {
    if settings::is_recording() {
        made(function, reason, object);
    }
}

/// The same of each of several.
pub(crate) fn all_counted(function: &'static str, reason: Reason, objects: impl Iterator<Item = u64>) {
    objects.for_each(|object| counted(function, reason, object));
}

/// The same of what ends with another object, as with the module that it is in.
pub(crate) fn parts_counted(function: &'static str, reason: Reason, parts: impl Iterator<Item = u64>, whole: u64) {
    if settings::is_recording() && is_on() {
        ACCOUNT.with(|account| parts.for_each(|part| account.add_part(function, reason, part, whole)));
    }
}

/// What something is counted by that has a small number in place of a handle. No address is so high.
pub(crate) fn number(of: u32) -> u64 {
    u64::MAX - u64::from(of)
}

/// An object was destroyed.
pub(crate) fn gone(object: u64) {
    if is_on() {
        ACCOUNT.with(|account| account.remove(object));
    }
}

/// A piece of memory was made that is not kept; nobody says when it goes.
pub(crate) fn passed(function: &'static str, reason: Reason, bytes: u64) {
    if is_on() {
        ACCOUNT.with(|account| {
            let count = account.counts.entry((function, reason)).or_default();
            count.ever += 1;
            count.made_bytes = count.made_bytes.saturating_add(bytes);
        });
    }
}

/// The driver was asked to free a range: it is no longer counted if it did. Gives the answer back.
pub(crate) fn after_free(address: CUdeviceptr, answer: CUresult) -> CUresult {
    if answer.is_success() && is_on() {
        ACCOUNT.with(|account| account.remove(address));
    }
    answer
}

/// What there is now that cannot be made again: function and reason.
pub(crate) fn living() -> Vec<(&'static str, &'static str)> {
    ACCOUNT.with(|account| {
        let living = account.counts.iter().filter(|(_, count)| count.live > 0);
        living.map(|((function, reason), _)| (*function, reason.text())).collect()
    })
}

/// All that was ever counted: members of a list in JSON.
pub(super) fn list() -> String {
    ACCOUNT.with(|account| account.list())
}

impl Account {
    fn add(&mut self, function: &'static str, reason: Reason, address: u64, bytes: u64) {
        // An address that is given out again was freed in a way that nobody saw, such as with its context.
        self.remove(address);
        let count = self.counts.entry((function, reason)).or_default();
        count.live += 1;
        count.ever += 1;
        count.bytes = count.bytes.saturating_add(bytes);
        count.made_bytes = count.made_bytes.saturating_add(bytes);
        self.ranges.insert(address, ((function, reason), bytes));
    }

    fn add_part(&mut self, function: &'static str, reason: Reason, part: u64, whole: u64) {
        self.add(function, reason, part, 0);
        self.parts.entry(whole).or_default().insert(part);
    }

    fn remove(&mut self, address: u64) {
        for part in self.parts.remove(&address).unwrap_or_default() {
            self.remove(part);
        }
        if let Some((key, bytes)) = self.ranges.remove(&address)
            && let Some(count) = self.counts.get_mut(&key)
        {
            count.live -= 1;
            count.bytes = count.bytes.saturating_sub(bytes);
        }
    }

    /// The list in JSON. All texts are plain ASCII without quotes.
    fn list(&self) -> String {
        let items = self.counts.iter().map(|((function, reason), count)| {
            let Count { live, ever, bytes, made_bytes } = count;
            let what = format!(r#""function":"{function}","reason":"{}""#, reason.text());
            format!(r#"{{{what},"live":{live},"ever":{ever},"bytes":{bytes},"bytes_ever":{made_bytes}}}"#)
        });
        items.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Reason};

    #[test]
    fn what_is_freed_is_no_longer_there_and_was_there_once() {
        let mut account = Account::default();
        account.add("cuMemAllocManaged", Reason::Managed, 0x1000, 10);
        account.add("cuMemAllocManaged", Reason::Managed, 0x2000, 20);
        account.remove(0x1000);
        account.remove(0x1000);
        let text = account.list();
        let parsed: serde_json::Value = serde_json::from_str(&format!("[{text}]")).unwrap();
        assert_eq!((&parsed[0]["live"], &parsed[0]["ever"], &parsed[0]["bytes"]), (&1.into(), &2.into(), &20.into()));
        account.add("cuMemAlloc", Reason::NoDescriptor, 0x2000, 5);
        let parsed: serde_json::Value = serde_json::from_str(&format!("[{}]", account.list())).unwrap();
        assert_eq!(parsed[1]["live"], 0, "its address was given out again");
    }

    #[test]
    fn what_is_part_of_something_ends_with_it() {
        let mut account = Account::default();
        for (part, whole) in [(0x10, 0x1000), (0x20, 0x1000), (0x20, 0x1000), (0x30, 0x2000)] {
            account.add_part("cuModuleGetTexRef", Reason::Array, part, whole);
        }
        account.remove(0x1000);
        let left: Vec<u64> = account.ranges.keys().copied().collect();
        assert_eq!(left, [0x30]);
        assert_eq!(account.counts[&("cuModuleGetTexRef", Reason::Array)].live, 1);
    }
}
