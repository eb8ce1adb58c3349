//! The messages as both sides work with them.

use super::{Capabilities, Failure, Part, Recovered, RecoveryStage, Rest, ServerState, SpareTakes, Unrecovered};

/// A region, as it is told in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Region {
    /// Names it within its process.
    pub key: u64,
    /// Under which a later process may adopt it; empty when none may. Printable ASCII without blanks.
    pub name: String,
    /// The GPU, as `GPU-` and a UUID. Printable ASCII without blanks.
    pub gpu: String,
    /// Its size, not 0.
    pub bytes: u64,
    /// Where it is mapped; 0 when it is not.
    pub address: u64,
    /// One of `CUmemAllocationHandleType`.
    pub handle_type: u32,
    /// The library's own.
    pub flags: u64,
    /// Pid of its owner; 0 when the owner is gone, and in an escrow.
    pub owner: u32,
    /// How much longer it is kept, in milliseconds, where the owner is gone.
    pub left_ms: u64,
}

/// A part of kept memory that has a label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// The label, not empty. Printable ASCII without blanks.
    pub label: String,
    /// Where it begins.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The library's own.
    pub flags: u64,
}

/// How far the owner of a name has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commit {
    /// The program's own number for it.
    pub generation: u64,
    /// The program's own bytes.
    pub data: Vec<u8>,
    /// Where what it has lies.
    pub ranges: Vec<Range>,
}

/// What the owner of a name left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inherited {
    /// Its last commit, if there was one.
    pub commit: Option<Commit>,
    /// Its pid; that of the caller where it was the owner already.
    pub predecessor: u32,
    /// The server that it was on; 0 when none is known.
    pub server: u64,
    /// What is known of its work.
    pub rest: Rest,
}

/// What the library asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Who connects; the first request.
    Hello {
        /// The version it speaks.
        version: u32,
        /// What it can do.
        capabilities: Capabilities,
    },
    /// Keep the descriptor that came along.
    Escrow(Region),
    /// Close a region of this process.
    Release {
        /// Its key.
        key: u64,
    },
    /// Tell what is kept of this user.
    List {
        /// Only of this name; empty for all.
        name: String,
    },
    /// Give this process its own descriptors.
    HandBack,
    /// Give this process all regions of a name.
    Adopt {
        /// The name, not empty.
        name: String,
    },
    /// Close all regions of a name.
    Discard {
        /// The name, not empty.
        name: String,
    },
    /// An error that this process has met.
    Report {
        /// The `CUresult`.
        error: u32,
        /// Whether it came to a call for this process's own work, before anybody else's error was known to it.
        own_work: bool,
        /// The server that the failed copy of the driver is on, as last told; 0 when none was.
        server: u64,
    },
    /// Tell which server this process has.
    Where,
    /// Note how far the owner of a name has come.
    Commit {
        /// The name, not empty.
        name: String,
        /// How far.
        commit: Commit,
    },
    /// Adopt a name as soon as its owner is gone and what it left is at rest.
    Succeed {
        /// The name, not empty.
        name: String,
        /// How long the answer may take, in milliseconds; the daemon has a limit of its own.
        wait_ms: u64,
        /// Wait also while nobody has the name.
        even_if_nobody: bool,
        /// The least that must be known of the predecessor's work.
        least: Rest,
        /// The caller can map memory before it is its own: the offer of which it has done so, or 0. `None` if it can't.
        offer: Option<u64>,
    },
    /// Tell how the server of another process of this user is, or was when the process ended.
    Fate {
        /// Its pid, as the daemon sees it.
        pid: u32,
    },
    /// Tell how this process's server is, as soon as it is another one than this or otherwise.
    Watch {
        /// The server as last told; 0 when none was.
        server: u64,
        /// How it was.
        state: ServerState,
        /// How long the answer may take, in milliseconds; the daemon has a limit of its own.
        wait_ms: u64,
    },
    /// Tell how this process's server is, at once and from then on unasked, whenever it is another one or otherwise.
    Subscribe {
        /// The server as last told; 0 when none was, which is the last one that the process has had. Of one that has ended
        /// since, that is told first.
        server: u64,
    },
    /// This process has cut off a copy of the driver, whose descriptors need not be held for it.
    Renewed,
    /// The descriptor that came along is one that this process has of the UVM driver, to be followed by.
    Follow {
        /// Whether more of them come with the next request. The process is looked at when there are none.
        more: bool,
    },
    /// Give this process a server on which a spare copy of the driver may stand.
    Spare {
        /// How long the answer may take, in milliseconds; the daemon has a limit of its own.
        wait_ms: u64,
    },
    /// Tell how far the spare copy is. Replaces what was said before.
    SpareStands {
        /// The grant's token, not 0.
        token: u64,
        /// Whether the program could go on with it.
        is_ready: bool,
        /// How many things that the program has are not, or not as they are now, in the spare copy.
        behind: u64,
        /// What the copy takes of the process.
        takes: SpareTakes,
    },
    /// This process goes on with the spare copy, whose server is its server from now on.
    SpareLives {
        /// The grant's token, not 0.
        token: u64,
    },
    /// The spare copy is given up.
    SpareGone {
        /// The grant's token, not 0.
        token: u64,
    },
    /// This process has gone on after a fault. Said again, it is known already.
    Recovered(Recovered),
    /// This process is not recovered from a fault. Said again, it is known already.
    Unrecovered(Unrecovered),
    /// Tell how far this process is with going on after a fault. What is told as done are servers that are buried for it.
    Recovery {
        /// How far.
        stage: RecoveryStage,
    },
}

/// A request of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromShim {
    /// Its number, chosen by the library.
    pub request: u64,
    /// What is asked.
    pub ask: Ask,
}

/// What the daemon is and does for a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version it speaks.
    pub version: u32,
    /// What it does for this peer.
    pub capabilities: Capabilities,
    /// Most bytes that it keeps for this user.
    pub most_bytes: u64,
    /// Most regions that it keeps for this user.
    pub most_regions: u32,
    /// How long a named region is kept after its owner's end, in milliseconds.
    pub ttl_ms: u64,
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To a hello.
    Welcome(Welcome),
    /// One region; more follow, or [`Done`](Self::Done).
    Region(Region),
    /// The request is done.
    Done {
        /// How many regions it was about.
        regions: u32,
    },
    /// The request is not done, and nothing has changed.
    Failed(Failure),
    /// Which server the process has.
    Epoch {
        /// Its number; 0 when the process has none.
        server: u64,
        /// How it is.
        state: ServerState,
        /// What the process has to do with the fault, if there was one.
        part: Part,
    },
    /// What a predecessor left; its regions follow, and [`Done`](Self::Done).
    Inherited(Inherited),
    /// What the owner of a name has, which is about to end; its regions follow, and [`Done`](Self::Done). They are not the
    /// caller's, who may map them and asks again.
    Offered {
        /// Random, not 0: with it the caller asks again.
        offer: u64,
    },
    /// Where the spare copy may stand.
    Spare {
        /// Random, not 0: the spare copy's connections show it to the daemon ([`SpareName`](super::SpareName)).
        token: u64,
        /// The server's number, which no other server has had.
        server: u64,
    },
    /// The spare copy of this grant is of no use any more: its server is tainted, gone or being replaced. Unasked.
    SpareVoid {
        /// The grant's token, not 0.
        token: u64,
    },
}

/// A message of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToShim {
    /// The request that it answers; 0 for what nobody asked for.
    pub request: u64,
    /// What it says.
    pub answer: Answer,
}

impl Answer {
    /// Whether nothing more comes in answer to the same request.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        !matches!(self, Self::Region(_) | Self::Inherited(_) | Self::Offered { .. })
    }
}
