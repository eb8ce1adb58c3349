//! The bytes of the messages, and what a message may be.

mod parts;

use prost::Message as _;

use super::message::{Answer, Ask, Commit, FromShim, Inherited, Region, ToShim, Welcome};
use super::wire::{self, from_shim::Content as Asked, to_shim::Content as Answered};
use super::{
    Capabilities, Failure, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, Part, Recovered, RecoveryStage, Rest, ServerState,
    SpareTakes, Unrecovered,
};

fn is_token(token: u64) -> Result<(), DecodeError> {
    if token == 0 { Err(DecodeError::Value("a spare copy has no token")) } else { Ok(()) }
}

fn is_offer(offer: u64) -> Result<(), DecodeError> {
    if offer == 0 { Err(DecodeError::Value("an offer has no number")) } else { Ok(()) }
}

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

pub(super) fn limited(what: &'static str, got: usize, max: usize) -> Result<(), DecodeError> {
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
            Self::SpareStands { token, .. } | Self::SpareLives { token } | Self::SpareGone { token } => {
                is_token(*token)
            }
            Self::Recovered(recovered) => recovered.check(),
            Self::Unrecovered(unrecovered) => unrecovered.check(),
            Self::Hello { .. }
            | Self::Release { .. }
            | Self::HandBack
            | Self::Report { .. }
            | Self::Where
            | Self::Fate { .. }
            | Self::Watch { .. }
            | Self::Subscribe { .. }
            | Self::Renewed
            | Self::Follow { .. }
            | Self::Spare { .. }
            | Self::Recovery { .. } => Ok(()),
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
            Asked::Report(wire::Report { error, own_work, server }) => Ask::Report { error, own_work, server },
            Asked::Where(wire::Where {}) => Ask::Where,
            Asked::Commit(wire::Commit { name, generation, data, ranges }) => {
                Ask::Commit { name, commit: Commit::read(generation, data, ranges) }
            }
            Asked::Succeed(wire::Succeed { name, wait_ms, even_if_nobody, least, offer }) => {
                Ask::Succeed { name, wait_ms, even_if_nobody, least: Rest(least), offer }
            }
            Asked::Fate(wire::Fate { pid }) => Ask::Fate { pid },
            Asked::Watch(wire::Watch { server, state, wait_ms }) => {
                Ask::Watch { server, state: ServerState(state), wait_ms }
            }
            Asked::Subscribe(wire::Subscribe { server }) => Ask::Subscribe { server },
            Asked::Renewed(wire::Renewed {}) => Ask::Renewed,
            Asked::Follow(wire::Follow { more }) => Ask::Follow { more },
            Asked::Spare(wire::Spare { wait_ms }) => Ask::Spare { wait_ms },
            Asked::SpareStands(wire::SpareStands { token, is_ready, behind, threads, host_bytes }) => {
                Ask::SpareStands { token, is_ready, behind, takes: SpareTakes { threads, host_bytes } }
            }
            Asked::SpareLives(wire::SpareLives { token }) => Ask::SpareLives { token },
            Asked::SpareGone(wire::SpareGone { token }) => Ask::SpareGone { token },
            Asked::Recovered(recovered) => Ask::Recovered(Recovered::read(recovered)),
            Asked::Unrecovered(unrecovered) => Ask::Unrecovered(Unrecovered::read(unrecovered)),
            Asked::Recovery(wire::Recovery { stage }) => Ask::Recovery { stage: RecoveryStage(stage) },
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
            Ask::Report { error, own_work, server } => Asked::Report(wire::Report { error, own_work, server }),
            Ask::Where => Asked::Where(wire::Where {}),
            Ask::Commit { name, commit } => {
                let (generation, data, ranges) = commit.write();
                Asked::Commit(wire::Commit { name, generation, data, ranges })
            }
            Ask::Succeed { name, wait_ms, even_if_nobody, least, offer } => {
                Asked::Succeed(wire::Succeed { name, wait_ms, even_if_nobody, least: least.0, offer })
            }
            Ask::Fate { pid } => Asked::Fate(wire::Fate { pid }),
            Ask::Watch { server, state, wait_ms } => Asked::Watch(wire::Watch { server, state: state.0, wait_ms }),
            Ask::Subscribe { server } => Asked::Subscribe(wire::Subscribe { server }),
            Ask::Renewed => Asked::Renewed(wire::Renewed {}),
            Ask::Follow { more } => Asked::Follow(wire::Follow { more }),
            Ask::Spare { wait_ms } => Asked::Spare(wire::Spare { wait_ms }),
            Ask::SpareStands { token, is_ready, behind, takes: SpareTakes { threads, host_bytes } } => {
                Asked::SpareStands(wire::SpareStands { token, is_ready, behind, threads, host_bytes })
            }
            Ask::SpareLives { token } => Asked::SpareLives(wire::SpareLives { token }),
            Ask::SpareGone { token } => Asked::SpareGone(wire::SpareGone { token }),
            Ask::Recovered(recovered) => Asked::Recovered(recovered.write()),
            Ask::Unrecovered(unrecovered) => Asked::Unrecovered(unrecovered.write()),
            Ask::Recovery { stage } => Asked::Recovery(wire::Recovery { stage: stage.0 }),
        };
        encoded(&wire::FromShim { request: self.request, content: Some(content) })
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
            Answered::Offered(wire::Offered { offer }) => {
                is_offer(offer)?;
                Answer::Offered { offer }
            }
            Answered::SpareGranted(wire::SpareGranted { token, server }) => {
                is_token(token)?;
                Answer::Spare { token, server }
            }
            Answered::SpareVoid(wire::SpareVoid { token }) => {
                is_token(token)?;
                Answer::SpareVoid { token }
            }
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
            Answer::Offered { offer } => {
                is_offer(offer)?;
                Answered::Offered(wire::Offered { offer })
            }
            Answer::Spare { token, server } => {
                is_token(token)?;
                Answered::SpareGranted(wire::SpareGranted { token, server })
            }
            Answer::SpareVoid { token } => {
                is_token(token)?;
                Answered::SpareVoid(wire::SpareVoid { token })
            }
        };
        encoded(&wire::ToShim { request: self.request, content: Some(content) })
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
