//! The values that commands and environment variables carry: percentages, priorities, memory limits, device names.

use super::number::{int_prefix, strtod};

/// A share of the GPU's threads in percent, greater than 0 and at most 100.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Percentage(f64);

/// A percentage outside (0, 100]. The text is the one the vendor writes to its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid percentage, expected between (0.0, 100.0]")]
pub struct InvalidPercentage;

impl Percentage {
    /// All of the GPU: the default.
    pub const FULL: Self = Self(100.0);

    /// A checked percentage.
    ///
    /// # Errors
    /// When the value is not greater than 0 and at most 100; also for NaN.
    pub fn new(value: f64) -> Result<Self, InvalidPercentage> {
        if value > 0.0 && value <= Self::FULL.0 { Ok(Self(value)) } else { Err(InvalidPercentage) }
    }

    /// A percentage from a word, read as C's `strtod` does: what follows the number is ignored.
    ///
    /// # Errors
    /// When there is no number or it is out of range.
    pub fn parse(word: &[u8]) -> Result<Self, InvalidPercentage> {
        strtod(word).map_or(Err(InvalidPercentage), Self::new)
    }

    /// The value in percent.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// Priority of new clients: a hint to the driver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// 0, the default.
    #[default]
    Normal,
    /// 1.
    BelowNormal,
}

/// A priority other than 0 and 1. The text is the vendor's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid priority value - must be 0 or 1!")]
pub struct InvalidPriority;

impl Priority {
    /// A priority from a word, read as C's `atoi` does: no number is 0.
    ///
    /// # Errors
    /// For every number but 0 and 1.
    pub fn parse(word: &[u8]) -> Result<Self, InvalidPriority> {
        match int_prefix(word).unwrap_or(0) {
            0 => Ok(Self::Normal),
            1 => Ok(Self::BelowNormal),
            _ => Err(InvalidPriority),
        }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        match self {
            Self::Normal => 0,
            Self::BelowNormal => 1,
        }
    }
}

/// A device as the user names it. An ordinal and a UUID are never translated into each other here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceKey {
    /// The ordinal among the devices the daemon sees, below [`DeviceKey::ORDINALS`].
    Ordinal(u32),
    /// `GPU-…` or `MIG-…`, whole or a prefix, at most [`DeviceKey::UUID_LEN`] bytes.
    Uuid(String),
}

/// A device name that is neither an ordinal nor a UUID. The text is the vendor's log line for an ordinal out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid device ordinal!")]
pub struct InvalidDevice;

impl DeviceKey {
    /// The number of ordinals: the vendor's daemon takes 0 to 31.
    pub const ORDINALS: u32 = 32;
    /// Length of `GPU-` and a UUID; the wire carries it with one more byte for the NUL.
    pub const UUID_LEN: usize = 40;

    /// A device from a word: an ordinal with nothing behind it, or something that looks like a UUID.
    ///
    /// # Errors
    /// For anything else; the vendor keeps such words and hands them to the server, which drops all limits.
    pub fn parse(word: &[u8]) -> Result<Self, InvalidDevice> {
        let text = std::str::from_utf8(word).map_err(|_| InvalidDevice)?;
        if let Some(hex) = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")) {
            let looks_right = !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
            return if looks_right && text.len() <= Self::UUID_LEN {
                Ok(Self::Uuid(text.to_owned()))
            } else {
                Err(InvalidDevice)
            };
        }
        match text.parse::<u32>() {
            Ok(ordinal) if ordinal < Self::ORDINALS => Ok(Self::Ordinal(ordinal)),
            _ => Err(InvalidDevice),
        }
    }
}

impl std::fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "{ordinal}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

/// A limit of pinned device memory in bytes; 0 is no limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemLimit(pub u64);

/// A memory limit that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidMemLimit {
    /// No number at the start, or a negative one.
    #[error("a memory limit starts with a whole number")]
    NoNumber,
    /// A unit other than `G` and `M`.
    #[error("a memory limit is in G or M")]
    Unit,
    /// More than 64 bits can count.
    #[error("memory limit too large")]
    TooLarge,
}

/// Bytes of one `M`.
pub const MIB: u64 = 1 << 20;
/// Bytes of one `G`.
pub const GIB: u64 = 1 << 30;

impl MemLimit {
    /// Takes a limit away.
    pub const NONE: Self = Self(0);

    /// A limit as in `4G`, `900M`, `8GB`, `512` (in M).
    ///
    /// The vendor also reads `10K` as 10 M, `1.5G` as 1 M, `-1G` as 2⁶⁴ − 2³⁰ bytes and a word without a number as
    /// "no limit"; a value so misread is worse than a refused one, hence these are errors here.
    ///
    /// # Errors
    /// When there is no whole number, another unit behind it, or more than 64 bits.
    pub fn parse(word: &[u8]) -> Result<Self, InvalidMemLimit> {
        let word = word.strip_prefix(b"+").unwrap_or(word);
        let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, unit) = word.split_at(digits);
        if number.is_empty() {
            return Err(InvalidMemLimit::NoNumber);
        }
        let scale = match unit.first() {
            None | Some(b'M' | b'm') => MIB,
            Some(b'G' | b'g') => GIB,
            Some(_) => return Err(InvalidMemLimit::Unit),
        };
        let number = std::str::from_utf8(number).expect("ASCII digits are UTF-8");
        let number: u64 = number.parse().map_err(|_| InvalidMemLimit::TooLarge)?;
        number.checked_mul(scale).map(Self).ok_or(InvalidMemLimit::TooLarge)
    }

    /// Whether this is no limit.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl std::fmt::Display for MemLimit {
    /// As the vendor prints it: from one GiB on in whole `G`, rounded down, below in whole `M`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 >= GIB { write!(f, "{}G", self.0 / GIB) } else { write!(f, "{}M", self.0 / MIB) }
    }
}

/// What is wrong with an entry of [`parse_device_limits`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidDeviceLimit {
    /// No `=`.
    #[error("{0:?} is not device=limit")]
    NoEquals(String),
    /// The left side names no device.
    #[error("{0:?} names no device")]
    Device(String),
    /// The right side is no limit.
    #[error("{entry:?}: {cause}")]
    Limit {
        /// The whole entry.
        entry: String,
        /// What is wrong with its limit.
        cause: InvalidMemLimit,
    },
}

/// The value of `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`: `0=1G,1=512MB` or with UUIDs. Empty entries are skipped.
///
/// Each entry stands for itself: a bad one does not spoil the others, unlike with the vendor, where one entry that
/// names an invisible device drops all of them.
#[must_use]
pub fn parse_device_limits(text: &str) -> Vec<Result<(DeviceKey, MemLimit), InvalidDeviceLimit>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let Some((device, limit)) = entry.split_once('=') else {
                return Err(InvalidDeviceLimit::NoEquals(entry.to_owned()));
            };
            let device = DeviceKey::parse(device.trim().as_bytes())
                .map_err(|InvalidDevice| InvalidDeviceLimit::Device(entry.to_owned()))?;
            let limit = MemLimit::parse(limit.trim().as_bytes())
                .map_err(|cause| InvalidDeviceLimit::Limit { entry: entry.to_owned(), cause })?;
            Ok((device, limit))
        })
        .collect()
}

#[cfg(test)]
mod tests;
