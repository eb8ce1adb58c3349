//! The messages as both sides work with them, and their bytes.

use prost::Message as _;

use super::wire::{self, from_shim::Content as Asked, to_shim::Content as Answered};
use super::{
    Capabilities, Failure, MAX_COMMIT_BYTES, MAX_GPU_BYTES, MAX_LABEL_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES,
    MAX_RANGES, Part, Rest, ServerState,
};

/// Why a packet is not a message, or a message cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Something is larger than the protocol allows.
    #[error("{what}: {got} is more than {max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        got: usize,
        /// The largest size.
        max: usize,
    },
    /// The bytes are not protobuf of this shape.
    #[error("not a message of the preload library: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// The message has no content that this version knows.
    #[error("a message of the preload library of unknown content")]
    Unknown {
        /// The request's number.
        request: u64,
    },
    /// A value that can't be.
    #[error("{0}")]
    Value(&'static str),
}

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
    /// This process has cut off a copy of the driver, whose descriptors need not be held for it.
    Renewed,
    /// The descriptor that came along is one that this process has of the UVM driver, to be followed by.
    Follow {
        /// Whether more of them come with the next request. The process is looked at when there are none.
        more: bool,
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
}

/// A message of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToShim {
    /// The request that it answers; 0 for what nobody asked for.
    pub request: u64,
    /// What it says.
    pub answer: Answer,
}

fn limited(what: &'static str, got: usize, max: usize) -> Result<(), DecodeError> {
    if got <= max { Ok(()) } else { Err(DecodeError::TooLarge { what, got, max }) }
}

fn word(what: &'static str, text: &str, max: usize, is_odd: &'static str) -> Result<(), DecodeError> {
    limited(what, text.len(), max)?;
    if text.bytes().all(|byte| byte.is_ascii_graphic()) { Ok(()) } else { Err(DecodeError::Value(is_odd)) }
}

fn name(text: &str) -> Result<(), DecodeError> {
    word("name", text, MAX_NAME_BYTES, "a name has characters that are not printable ASCII")
}

fn encoded<M: prost::Message>(message: &M) -> Result<Vec<u8>, DecodeError> {
    limited("message", message.encoded_len(), MAX_MESSAGE_BYTES)?;
    Ok(message.encode_to_vec())
}

impl Region {
    fn check(&self) -> Result<(), DecodeError> {
        name(&self.name)?;
        word("GPU", &self.gpu, MAX_GPU_BYTES, "a GPU has characters that are not printable ASCII")?;
        if self.bytes == 0 { Err(DecodeError::Value("a region has no bytes")) } else { Ok(()) }
    }

    fn read(region: Option<wire::Region>) -> Result<Self, DecodeError> {
        let region = region.ok_or(DecodeError::Value("an escrow has no region"))?;
        let wire::Region { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms } = region;
        let region = Self { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms };
        region.check()?;
        Ok(region)
    }

    fn write(self) -> wire::Region {
        let Self { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms } = self;
        wire::Region { key, name, gpu, bytes, address, handle_type, flags, owner, left_ms }
    }
}

impl Commit {
    fn check(&self) -> Result<(), DecodeError> {
        limited("commit", self.data.len(), MAX_COMMIT_BYTES)?;
        limited("ranges", self.ranges.len(), MAX_RANGES)?;
        for range in &self.ranges {
            word("label", &range.label, MAX_LABEL_BYTES, "a label has characters that are not printable ASCII")?;
            if range.label.is_empty() || range.address.checked_add(range.bytes).is_none() {
                return Err(DecodeError::Value("a range has no label or no end"));
            }
        }
        Ok(())
    }

    fn read(generation: u64, data: Vec<u8>, ranges: Vec<wire::Range>) -> Self {
        let range = |wire::Range { label, address, bytes, flags }| Range { label, address, bytes, flags };
        Self { generation, data, ranges: ranges.into_iter().map(range).collect() }
    }

    fn write(self) -> (u64, Vec<u8>, Vec<wire::Range>) {
        let range = |Range { label, address, bytes, flags }| wire::Range { label, address, bytes, flags };
        (self.generation, self.data, self.ranges.into_iter().map(range).collect())
    }
}

impl Inherited {
    fn read(inherited: wire::Inherited) -> Result<Self, DecodeError> {
        let wire::Inherited { is_committed, generation, data, ranges, predecessor, server, rest } = inherited;
        let commit = is_committed.then(|| Commit::read(generation, data, ranges));
        commit.as_ref().map_or(Ok(()), Commit::check)?;
        Ok(Self { commit, predecessor, server, rest: Rest(rest) })
    }

    fn write(self) -> wire::Inherited {
        let Self { commit, predecessor, server, rest } = self;
        let is_committed = commit.is_some();
        let (generation, data, ranges) = commit.unwrap_or_default().write();
        wire::Inherited { is_committed, generation, data, ranges, predecessor, server, rest: rest.0 }
    }
}

impl Ask {
    fn check(&self) -> Result<(), DecodeError> {
        match self {
            Self::Escrow(region) => region.check(),
            Self::List { name: text } => name(text),
            Self::Adopt { name: text }
            | Self::Discard { name: text }
            | Self::Commit { name: text, .. }
            | Self::Succeed { name: text, .. }
                if text.is_empty() =>
            {
                Err(DecodeError::Value("a name is missing"))
            }
            Self::Adopt { name: text } | Self::Discard { name: text } | Self::Succeed { name: text, .. } => name(text),
            Self::Commit { name: text, commit } => name(text).and_then(|()| commit.check()),
            Self::Hello { .. }
            | Self::Release { .. }
            | Self::HandBack
            | Self::Report { .. }
            | Self::Where
            | Self::Fate { .. }
            | Self::Watch { .. }
            | Self::Renewed
            | Self::Follow { .. } => Ok(()),
        }
    }
}

impl FromShim {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is no request of this version or exceeds a limit.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        limited("message", packet.len(), MAX_MESSAGE_BYTES)?;
        let wire::FromShim { request, content } = wire::FromShim::decode(packet)?;
        let ask = match content.ok_or(DecodeError::Unknown { request })? {
            Asked::Hello(hello) => {
                Ask::Hello { version: hello.version, capabilities: Capabilities(hello.capabilities) }
            }
            Asked::Escrow(escrow) => Ask::Escrow(Region::read(escrow.region)?),
            Asked::Release(release) => Ask::Release { key: release.key },
            Asked::List(list) => Ask::List { name: list.name },
            Asked::HandBack(wire::HandBack {}) => Ask::HandBack,
            Asked::Adopt(adopt) => Ask::Adopt { name: adopt.name },
            Asked::Discard(discard) => Ask::Discard { name: discard.name },
            Asked::Report(report) => Ask::Report { error: report.error, own_work: report.own_work },
            Asked::Where(wire::Where {}) => Ask::Where,
            Asked::Commit(wire::Commit { name, generation, data, ranges }) => {
                Ask::Commit { name, commit: Commit::read(generation, data, ranges) }
            }
            Asked::Succeed(wire::Succeed { name, wait_ms, even_if_nobody, least }) => {
                Ask::Succeed { name, wait_ms, even_if_nobody, least: Rest(least) }
            }
            Asked::Fate(wire::Fate { pid }) => Ask::Fate { pid },
            Asked::Watch(wire::Watch { server, state, wait_ms }) => {
                Ask::Watch { server, state: ServerState(state), wait_ms }
            }
            Asked::Renewed(wire::Renewed {}) => Ask::Renewed,
            Asked::Follow(wire::Follow { more }) => Ask::Follow { more },
        };
        ask.check()?;
        Ok(Self { request, ask })
    }

    /// The packet.
    ///
    /// # Errors
    /// [`DecodeError`] when it exceeds a limit or can't be.
    pub fn encode(self) -> Result<Vec<u8>, DecodeError> {
        self.ask.check()?;
        let content = match self.ask {
            Ask::Hello { version, capabilities } => Asked::Hello(wire::Hello { version, capabilities: capabilities.0 }),
            Ask::Escrow(region) => Asked::Escrow(wire::Escrow { region: Some(region.write()) }),
            Ask::Release { key } => Asked::Release(wire::Release { key }),
            Ask::List { name } => Asked::List(wire::List { name }),
            Ask::HandBack => Asked::HandBack(wire::HandBack {}),
            Ask::Adopt { name } => Asked::Adopt(wire::Adopt { name }),
            Ask::Discard { name } => Asked::Discard(wire::Discard { name }),
            Ask::Report { error, own_work } => Asked::Report(wire::Report { error, own_work }),
            Ask::Where => Asked::Where(wire::Where {}),
            Ask::Commit { name, commit } => {
                let (generation, data, ranges) = commit.write();
                Asked::Commit(wire::Commit { name, generation, data, ranges })
            }
            Ask::Succeed { name, wait_ms, even_if_nobody, least } => {
                Asked::Succeed(wire::Succeed { name, wait_ms, even_if_nobody, least: least.0 })
            }
            Ask::Fate { pid } => Asked::Fate(wire::Fate { pid }),
            Ask::Watch { server, state, wait_ms } => Asked::Watch(wire::Watch { server, state: state.0, wait_ms }),
            Ask::Renewed => Asked::Renewed(wire::Renewed {}),
            Ask::Follow { more } => Asked::Follow(wire::Follow { more }),
        };
        encoded(&wire::FromShim { request: self.request, content: Some(content) })
    }
}

impl Answer {
    /// Whether nothing more comes in answer to the same request.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        !matches!(self, Self::Region(_) | Self::Inherited(_))
    }
}

impl ToShim {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is no answer of this version or exceeds a limit.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        limited("message", packet.len(), MAX_MESSAGE_BYTES)?;
        let wire::ToShim { request, content } = wire::ToShim::decode(packet)?;
        let answer = match content.ok_or(DecodeError::Unknown { request })? {
            Answered::Welcome(welcome) => Answer::Welcome(Welcome {
                version: welcome.version,
                capabilities: Capabilities(welcome.capabilities),
                most_bytes: welcome.most_bytes,
                most_regions: welcome.most_regions,
                ttl_ms: welcome.ttl_ms,
            }),
            Answered::Region(region) => Answer::Region(Region::read(Some(region))?),
            Answered::Done(done) => Answer::Done { regions: done.regions },
            Answered::Failed(failed) => Answer::Failed(Failure(failed.reason)),
            Answered::Epoch(wire::Epoch { server, state, part }) => {
                Answer::Epoch { server, state: ServerState(state), part: Part(part) }
            }
            Answered::Inherited(inherited) => Answer::Inherited(Inherited::read(inherited)?),
        };
        Ok(Self { request, answer })
    }

    /// The packet.
    ///
    /// # Errors
    /// [`DecodeError`] when it exceeds a limit or can't be.
    pub fn encode(self) -> Result<Vec<u8>, DecodeError> {
        let content = match self.answer {
            Answer::Welcome(welcome) => Answered::Welcome(wire::Welcome {
                version: welcome.version,
                capabilities: welcome.capabilities.0,
                most_bytes: welcome.most_bytes,
                most_regions: welcome.most_regions,
                ttl_ms: welcome.ttl_ms,
            }),
            Answer::Region(region) => {
                region.check()?;
                Answered::Region(region.write())
            }
            Answer::Done { regions } => Answered::Done(wire::Done { regions }),
            Answer::Failed(reason) => Answered::Failed(wire::Failed { reason: reason.0 }),
            Answer::Epoch { server, state, part } => {
                Answered::Epoch(wire::Epoch { server, state: state.0, part: part.0 })
            }
            Answer::Inherited(inherited) => {
                inherited.commit.as_ref().map_or(Ok(()), Commit::check)?;
                Answered::Inherited(inherited.write())
            }
        };
        encoded(&wire::ToShim { request: self.request, content: Some(content) })
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
