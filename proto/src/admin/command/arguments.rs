//! Arguments of commands that are more than a number or a limit, read as the vendor reads them.

use super::super::limits::{DeviceKey, InvalidDevice};
use super::super::number::{atoi, strtol};
use super::super::personality::Personality;
use super::Command;

/// The two forms of `sm_partition`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SmPartition {
    /// `add DEVICE CHUNKS`.
    Add {
        /// UUID of the device, whole or a prefix, as typed.
        device: String,
        /// How many chunks of SMs the partition gets, at least one.
        chunks: u32,
    },
    /// `rm DEVICE PARTITION`.
    Remove {
        /// UUID of the device, whole or a prefix, as typed.
        device: String,
        /// The partition's id, as typed.
        partition: String,
    },
    /// Neither.
    Invalid,
}

/// A user id. The vendor lets -1 and numbers beyond 32 bits wrap to some other user; those are no user here.
pub(super) fn user(word: &[u8]) -> Option<u32> {
    strtol(word).and_then(|uid| u32::try_from(uid).ok()).filter(|uid| *uid != u32::MAX)
}

/// Seconds of `quit -t`: a word without a number is a plain quit, and so is a negative one.
pub(super) fn seconds(word: &[u8]) -> Option<u32> {
    let seconds = strtol(word).filter(|seconds| *seconds >= 0)?;
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// The device of a question: a UUID, or else a number as `atoi` reads it. 580 wants a word at all.
pub(super) fn asked_device(word: &[u8], personality: Personality) -> Result<DeviceKey, InvalidDevice> {
    if word.is_empty() && personality >= Personality::V580 {
        return Err(InvalidDevice);
    }
    DeviceKey::parse(word).or_else(|_| match u32::try_from(atoi(word)) {
        Ok(ordinal) if ordinal < DeviceKey::ORDINALS => Ok(DeviceKey::Ordinal(ordinal)),
        _ => Err(InvalidDevice),
    })
}

/// What a listing of devices is asked for; a second pid is a word too many.
pub(super) fn device_query<'a>(words: impl Iterator<Item = &'a [u8]>) -> Command {
    let (mut server, mut csv) = (None, false);
    for word in words {
        if word == b"--csv" {
            csv = true;
        } else if server.is_none() {
            server = Some(atoi(word));
        }
    }
    Command::DeviceQuery { server, csv }
}

/// Which of its two forms `sm_partition` has.
pub(super) fn sm_partition([verb, device, value]: [&[u8]; 3]) -> SmPartition {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    match verb {
        b"add" => match strtol(value).map(u32::try_from) {
            Some(Ok(chunks)) if chunks > 0 && !device.is_empty() => SmPartition::Add { device: text(device), chunks },
            _ => SmPartition::Invalid,
        },
        b"rm" if !device.is_empty() && !value.is_empty() => {
            SmPartition::Remove { device: text(device), partition: text(value) }
        }
        _ => SmPartition::Invalid,
    }
}
