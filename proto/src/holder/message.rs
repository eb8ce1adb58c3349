//! The messages as both sides work with them, and their bytes.

use prost::Message as _;

use super::wire::{self, from_holder::News, to_holder::Request};
use super::{Failure, Kind, MAX_LOG_BUFFER_BYTES, MAX_MESSAGE_BYTES, MAX_STATE_BYTES, MAX_UNLINK_PATHS, Refusal};

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
    #[error("not a message of the holder: {0}")]
    Protobuf(#[from] prost::DecodeError),
    /// The message has no content that this version knows.
    #[error("a message of the holder of unknown content")]
    Unknown,
}

/// What to do when no daemon comes back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Milliseconds without a daemon after which the holder gives up; 0 stands for the default.
    pub successor_wait_ms: u64,
    /// How many bytes of log are kept while there is no daemon; 0 stands for the default.
    pub log_buffer_bytes: u64,
    /// Absolute paths to unlink when the holder gives up.
    pub unlink: Vec<Vec<u8>>,
    /// Whether the paths are more of what the settings before this have named, and the rest of this one means nothing; not
    /// for a holder that does not say [`ADDS_PATHS`](super::ADDS_PATHS).
    pub adds: bool,
}

/// What the daemon asks of the holder; descriptors come beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHolder {
    /// Keep the descriptors and the state under the key; replaces what was there.
    Hold {
        /// Where it is kept.
        key: u64,
        /// What it is.
        kind: Kind,
        /// Opaque to the holder.
        state: Vec<u8>,
    },
    /// Replace the state beside a key.
    Update {
        /// Where it is kept.
        key: u64,
        /// Opaque to the holder.
        state: Vec<u8>,
    },
    /// Close and forget.
    Release {
        /// Where it was kept.
        key: u64,
    },
    /// What to do when nobody comes back.
    Settings(Settings),
    /// Close everything and end.
    Leave,
    /// Answer [`FromHolder::Passed`] when everything before this is done; a holder that does not say
    /// [`ANSWERS_BARRIERS`](super::ANSWERS_BARRIERS) knows no such request.
    Barrier {
        /// Comes back with the answer.
        number: u64,
    },
}

/// Something a former daemon left; its descriptors come beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Where it is kept.
    pub key: u64,
    /// What it is.
    pub kind: Kind,
    /// The state as last given, or a piece of the log.
    pub state: Vec<u8>,
    /// The listener that a connection came from; `Kind(0)` for anything else.
    pub listener: Kind,
    /// With the first piece of a log backlog: bytes of log that were lost before it.
    pub dropped_bytes: u64,
}

/// The end of what a former daemon left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachDone {
    /// The version of the protocol that the holder speaks.
    pub version: u32,
    /// The holder's process id as it sees itself.
    pub pid: u32,
    /// How often accepting had to pause because descriptors had run out.
    pub accept_pauses: u64,
    /// How many messages were skipped because they made no sense.
    pub malformed: u64,
    /// What the holder can do beyond the version's first ones: bits such as [`RESTORES_MODES`](super::RESTORES_MODES).
    pub abilities: u32,
}

/// What the holder tells the daemon; descriptors come beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromHolder {
    /// Something a former daemon left.
    Held(Held),
    /// All that was left has been told.
    AttachDone(AttachDone),
    /// A new connection, greeted already.
    Accepted {
        /// Where the duplicate is kept.
        key: u64,
        /// The listener it came from.
        listener: Kind,
    },
    /// The connection is refused and closed.
    Refused(Refusal),
    /// A request could not be done.
    Failed {
        /// The key of the request, 0 where it could not be read.
        key: u64,
        /// Why.
        reason: Failure,
    },
    /// Everything before a barrier is done, or its failure has been told.
    Passed {
        /// The barrier's.
        number: u64,
    },
}

fn limited(what: &'static str, got: usize, max: usize) -> Result<(), DecodeError> {
    if got <= max { Ok(()) } else { Err(DecodeError::TooLarge { what, got, max }) }
}

fn encoded<M: prost::Message>(message: &M) -> Result<Vec<u8>, DecodeError> {
    limited("message", message.encoded_len(), MAX_MESSAGE_BYTES)?;
    Ok(message.encode_to_vec())
}

impl ToHolder {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is no request of this version or exceeds a limit.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        limited("message", packet.len(), MAX_MESSAGE_BYTES)?;
        let request = match wire::ToHolder::decode(packet)?.request.ok_or(DecodeError::Unknown)? {
            Request::Hold(hold) => Self::Hold { key: hold.key, kind: Kind(hold.kind), state: hold.state },
            Request::Update(update) => Self::Update { key: update.key, state: update.state },
            Request::Release(release) => Self::Release { key: release.key },
            Request::Settings(settings) => Self::Settings(Settings {
                successor_wait_ms: settings.successor_wait_ms,
                log_buffer_bytes: settings.log_buffer_bytes,
                unlink: settings.unlink,
                adds: settings.adds,
            }),
            Request::Leave(wire::Leave {}) => Self::Leave,
            Request::Barrier(barrier) => Self::Barrier { number: barrier.number },
        };
        request.check()?;
        Ok(request)
    }

    /// The packet.
    ///
    /// # Errors
    /// [`DecodeError::TooLarge`] when it exceeds a limit.
    pub fn encode(self) -> Result<Vec<u8>, DecodeError> {
        self.check()?;
        let request = match self {
            Self::Hold { key, kind, state } => Request::Hold(wire::Hold { key, kind: kind.0, state }),
            Self::Update { key, state } => Request::Update(wire::Update { key, state }),
            Self::Release { key } => Request::Release(wire::Release { key }),
            Self::Settings(settings) => Request::Settings(wire::Settings {
                successor_wait_ms: settings.successor_wait_ms,
                log_buffer_bytes: settings.log_buffer_bytes,
                unlink: settings.unlink,
                adds: settings.adds,
            }),
            Self::Leave => Request::Leave(wire::Leave {}),
            Self::Barrier { number } => Request::Barrier(wire::Barrier { number }),
        };
        encoded(&wire::ToHolder { request: Some(request) })
    }

    fn check(&self) -> Result<(), DecodeError> {
        match self {
            Self::Hold { state, .. } | Self::Update { state, .. } => limited("state", state.len(), MAX_STATE_BYTES),
            Self::Settings(settings) => {
                limited("number of paths", settings.unlink.len(), MAX_UNLINK_PATHS)?;
                let bytes = usize::try_from(settings.log_buffer_bytes).unwrap_or(usize::MAX);
                limited("log buffer", bytes, usize::try_from(MAX_LOG_BUFFER_BYTES).unwrap_or(usize::MAX))
            }
            Self::Release { .. } | Self::Leave | Self::Barrier { .. } => Ok(()),
        }
    }
}

impl FromHolder {
    /// Reads a packet.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that is no news of this version or exceeds a limit.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        limited("message", packet.len(), MAX_MESSAGE_BYTES)?;
        Ok(match wire::FromHolder::decode(packet)?.news.ok_or(DecodeError::Unknown)? {
            News::Held(held) => {
                limited("state", held.state.len(), MAX_STATE_BYTES)?;
                Self::Held(Held {
                    key: held.key,
                    kind: Kind(held.kind),
                    state: held.state,
                    listener: Kind(held.listener_kind),
                    dropped_bytes: held.dropped_bytes,
                })
            }
            News::AttachDone(done) => Self::AttachDone(AttachDone {
                version: done.version,
                pid: done.pid,
                accept_pauses: done.accept_pauses,
                malformed: done.malformed,
                abilities: done.abilities,
            }),
            News::Accepted(accepted) => Self::Accepted { key: accepted.key, listener: Kind(accepted.listener_kind) },
            News::Refused(refused) => Self::Refused(Refusal(refused.reason)),
            News::Failed(failed) => Self::Failed { key: failed.key, reason: Failure(failed.reason) },
            News::Passed(passed) => Self::Passed { number: passed.number },
        })
    }

    /// The packet.
    ///
    /// # Errors
    /// [`DecodeError::TooLarge`] when it exceeds a limit.
    pub fn encode(self) -> Result<Vec<u8>, DecodeError> {
        let news = match self {
            Self::Held(held) => {
                limited("state", held.state.len(), MAX_STATE_BYTES)?;
                News::Held(wire::Held {
                    key: held.key,
                    kind: held.kind.0,
                    state: held.state,
                    listener_kind: held.listener.0,
                    dropped_bytes: held.dropped_bytes,
                })
            }
            Self::AttachDone(done) => News::AttachDone(wire::AttachDone {
                version: done.version,
                pid: done.pid,
                accept_pauses: done.accept_pauses,
                malformed: done.malformed,
                abilities: done.abilities,
            }),
            Self::Accepted { key, listener } => News::Accepted(wire::Accepted { key, listener_kind: listener.0 }),
            Self::Refused(reason) => News::Refused(wire::Refused { reason: reason.0 }),
            Self::Failed { key, reason } => News::Failed(wire::Failed { key, reason: reason.0 }),
            Self::Passed { number } => News::Passed(wire::Passed { number }),
        };
        encoded(&wire::FromHolder { news: Some(news) })
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
