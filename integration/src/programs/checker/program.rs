//! A CUDA program as data: a list of operations, each of a thread, on things in numbered places.
//!
//! Any list is a program: an operation that makes no sense where it stands, or that would race, is left out by
//! [`plan`](super::plan), in the same way in each run. So lists can be made at random, and shortened at will.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Threads of a program.
pub(super) const THREADS: u8 = 4;
/// The thread that begins with its first operation, begun by the thread that has done the one before: it knows what its
/// parent does. All others are there from the start, however late they come to the driver.
pub(super) const LATE: u8 = THREADS - 1;
/// Places for streams, events, memory and graphs.
pub(super) const STREAMS: u8 = 4;
pub(super) const EVENTS: u8 = 4;
pub(super) const BLOCKS: u8 = 8;
pub(super) const GRAPHS: u8 = 2;
/// A block of memory has so many cells, the unit of what is written and compared.
pub(super) const CELLS: u8 = 4;
/// Bytes of a cell.
pub(super) const CELL: usize = 32;
/// Bytes of a block.
pub(super) const BLOCK: usize = CELL * CELLS as usize;

/// A whole program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Program {
    /// Its operations; at most [`Self::MOST`] count.
    pub(super) ops: Vec<Op>,
}

impl Program {
    /// What comes behind is left out.
    pub(super) const MOST: usize = 256;

    /// Index of the late thread's first operation, and its parent.
    pub(super) fn birth(&self) -> Option<(usize, u8)> {
        let at = self.ops.iter().position(|op| op.thread == LATE)?;
        Some((at, self.ops.get(at.checked_sub(1)?)?.thread)).filter(|(_, parent)| *parent < LATE)
    }
}

/// An operation of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Op {
    /// Which thread.
    pub(super) thread: u8,
    /// What it does.
    pub(super) what: What,
}

/// Where work is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Queue {
    /// The legacy default stream of a device, as 0.
    Null(u8),
    /// The same by its handle.
    Legacy(u8),
    /// The thread's own default stream on a device, by the functions with `_ptds` and `_ptsz`.
    Own(u8),
    /// The same by its handle.
    OwnHandle(u8),
    /// A stream in a place.
    Stream(u8),
}

/// Kinds of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Memory {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocAsync` from the default pool.
    Pooled,
    /// `cuMemAllocFromPoolAsync` from a pool of its own.
    OfOwnPool,
    /// `cuMemCreate` and `cuMemMap`.
    Mapped,
    /// `cuMemHostAlloc`.
    Pinned,
    /// The host's own, and `cuMemHostRegister`.
    Registered,
    /// The host's own.
    Pageable,
    /// A variable of a module.
    Variable,
    /// A variable of a library.
    OfLibrary,
    /// A constant of a module.
    Constant,
    /// A variable of a module that looks like a text: bytes with values.
    Text,
    /// A variable of a library that comes in a fat binary, packed.
    OfFatBinary,
    /// `cuArray3DCreate`, which kernels read by a texture object and write by a surface object.
    Array,
}

impl Memory {
    /// All kinds.
    pub(super) const ALL: [Self; 13] = [
        Self::Device,
        Self::Pooled,
        Self::OfOwnPool,
        Self::Mapped,
        Self::Pinned,
        Self::Registered,
        Self::Pageable,
        Self::Variable,
        Self::OfLibrary,
        Self::Constant,
        Self::Text,
        Self::OfFatBinary,
        Self::Array,
    ];

    /// Whether the host reads and writes it itself.
    pub(super) fn is_host(self) -> bool {
        self.is_pinned() || self == Self::Pageable
    }

    /// Whether it is the host's, and kernels of all devices reach it.
    pub(super) fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered)
    }

    /// Whether it is of a pool, and may be freed in the order of a stream.
    pub(super) fn is_pooled(self) -> bool {
        matches!(self, Self::Pooled | Self::OfOwnPool)
    }

    /// Whether it is a module's, which a fresh copy of the driver loads anew.
    pub(super) fn is_of_module(self) -> bool {
        matches!(self, Self::Variable | Self::OfLibrary | Self::Constant | Self::Text | Self::OfFatBinary)
    }

    /// Whether kernels may read and write it.
    pub(super) fn is_for_kernels(self) -> bool {
        !matches!(self, Self::Pageable | Self::Constant)
    }
}

/// Cells of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The block's place.
    pub block: u8,
    /// The first cell.
    pub first: u8,
}

/// One copy of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Copying {
    /// Its target.
    pub to: Place,
    /// Its source.
    pub from: Place,
    /// How much.
    pub cells: u8,
}

/// A node of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Node {
    /// As the operation.
    Mix { to: Place, from: Place, cells: u8, key: u32 },
    /// As the operation.
    Set { to: Place, cells: u8, key: u32 },
    /// As the operation; only in graphs that are captured.
    Copy { to: Place, from: Place, cells: u8 },
    /// As the operation.
    Call { to: Place, cells: u8, key: u32 },
}

/// What a kernel of the program's own does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wrong {
    /// Writes where nothing is mapped.
    OutOfBounds,
    /// Traps.
    Trap,
    /// Writes at an odd address.
    Misaligned,
    /// Fails an assertion.
    Assertion,
}

/// Operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    /// `cuStreamCreate`.
    MakeStream { stream: u8, device: u8, is_blocking: bool },
    /// `cuStreamDestroy`, whose error is dropped.
    EndStream { stream: u8 },
    /// `cuEventCreate`, of one that has a time or has none.
    MakeEvent {
        event: u8,
        device: u8,
        #[serde(default)]
        is_timeless: bool,
    },
    /// `cuEventDestroy`, whose error is dropped.
    EndEvent { event: u8 },
    /// `cuEventRecord`.
    Record { event: u8, on: Queue },
    /// `cuCtxRecordEvent` of the event's device; with another device's context current, where there is one, if `is_away`.
    RecordAll { event: u8, is_away: bool },
    /// `cuCtxWaitEvent`, in the same forms.
    AwaitAll { event: u8, is_away: bool },
    /// `cuStreamWaitEvent`.
    Await { event: u8, on: Queue },
    /// `cuEventSynchronize`.
    SyncEvent { event: u8 },
    /// `cuEventQuery`.
    AskEvent { event: u8 },
    /// `cuEventElapsedTime`, whose success says that both have come.
    AskTime { from: u8, to: u8 },
    /// Has memory of this kind.
    Allocate { block: u8, device: u8, memory: Memory },
    /// Frees it; the error is dropped.
    Free { block: u8 },
    /// `cuMemFreeAsync` of memory of a pool; the error is dropped.
    FreeInOrder { block: u8, on: Queue },
    /// `cuPointerGetAttribute`, whose error is dropped.
    AskPointer { block: u8 },
    /// `mps_shim_rest`: the program says that it waits for nothing.
    Rest,
    /// The host writes cells of its own memory.
    HostWrite { to: Place, cells: u8, key: u32 },
    /// The host reads them, and uses them.
    HostRead { from: Place, cells: u8 },
    /// `cuMemcpyDtoH` on [`Queue::Null`] or [`Queue::Own`], whose bytes are used.
    Read { from: Place, cells: u8, on: Queue },
    /// A copy: by `cuMemcpyAsync` if it is generic; without `Async` only on [`Queue::Null`] or [`Queue::Own`].
    Copy { to: Place, from: Place, cells: u8, on: Queue, is_async: bool, is_generic: bool },
    /// `cuMemcpyBatchAsync`: copies of which none needs another one.
    Batch { copies: Vec<Copying>, stream: u8 },
    /// `cuMemcpy3DPeer` between devices' memory; `cuMemcpyPeer` where that is refused.
    PeerCopy { to: Place, from: Place, cells: u8 },
    /// `cuMemsetD32`, in the same forms.
    Set { to: Place, cells: u8, key: u32, on: Queue, is_async: bool },
    /// A kernel: each word five times, and the source's, and the key.
    Mix { to: Place, from: Place, cells: u8, key: u32, on: Queue },
    /// The same by `cuLaunchKernelEx`, with an event that comes when the kernel has ended (attribute 7), one that comes when
    /// it begins (12), and if it may begin early (6), before the kernel in front of it in its stream has ended.
    MixBesides {
        to: Place,
        from: Place,
        cells: u8,
        key: u32,
        on: Queue,
        ended: Option<u8>,
        begun: Option<u8>,
        is_early: bool,
    },
    /// A host function: each word of host memory five times, and the key.
    Call { to: Place, cells: u8, key: u32, on: Queue },
    /// A kernel that takes until it is released.
    Hold { on: Queue },
    /// The host releases one of those that are held.
    Release { which: u8 },
    /// `cuStreamSynchronize`.
    SyncStream { on: Queue },
    /// `cuStreamQuery`.
    AskStream { on: Queue },
    /// `cuCtxSynchronize`.
    SyncContext { device: u8 },
    /// `cuDevicePrimaryCtxReset` when the device's work is done, and a new context with the kernels: all is gone that was made
    /// in it, and what would stay is given back before.
    Reset { device: u8 },
    /// Further contexts of a device (`cuCtxCreate`) come and go with all that is made in them, beside the others, which have
    /// done their work.
    Further { device: u8 },
    /// `cuCtxSynchronize_v2` of a device's context, with another device's current where there is one.
    SyncOther { device: u8 },
    /// A graph with its executable form: captured on a stream, or built.
    MakeGraph { graph: u8, stream: u8, is_captured: bool, nodes: Vec<Node> },
    /// `cuGraphExecUpdate` with the same nodes and other keys.
    UpdateGraph { graph: u8, key: u32 },
    /// `cuGraphLaunch`.
    LaunchGraph { graph: u8, on: Queue },
    /// Its end, whose error is dropped.
    EndGraph { graph: u8 },
    /// Another thread learns what this one knows: what is done, and of errors.
    HandOver { to: u8 },
    /// The host has other things to do, until threads that begin now have begun later for the kernel, too.
    Pause,
    /// The late thread ends, and does nothing more: what it has given to its streams goes on.
    Leave,
    /// Waits for everything, and reads all memory that this thread may read.
    ReadAll,
    /// Only in the disturbed run: a kernel of the program's own does wrong.
    Fault { wrong: Wrong, on: Queue },
    /// Only in the disturbed run: a neighbour on the device does wrong, by this error.
    Neighbour { device: u8, code: u32 },
}

impl What {
    /// Only done in the disturbed run.
    pub(super) fn is_fault(&self) -> bool {
        matches!(self, Self::Fault { .. } | Self::Neighbour { .. })
    }

    /// Programs drop the errors of such calls (frees, ends, questions about pointers), so that nobody is told by them.
    pub(super) fn is_ignored(&self) -> bool {
        matches!(
            self,
            Self::EndStream { .. }
                | Self::EndEvent { .. }
                | Self::Free { .. }
                | Self::FreeInOrder { .. }
                | Self::AskPointer { .. }
                | Self::Rest
                | Self::EndGraph { .. }
        )
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ops.iter().enumerate().try_for_each(|(at, op)| writeln!(f, "{at:4}  thread {}  {:?}", op.thread, op.what))
    }
}
