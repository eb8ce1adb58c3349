//! What changes servers and namespaces, and the values that it carries.
//!
//! The manual has memory limits with the suffixes K, M and G, all binary. One without a suffix is refused, since it would
//! be bytes here and mebibytes in the second interface; 0 is no limit in either.

use super::super::limits::{DeviceKey, GIB, MIB, MemLimit, Percentage, Priority};
use super::words::{Misused, Words};
use super::{DEFAULT_NAMESPACE, name};

/// Bytes of one `K`.
const KIB: u64 = 1 << 10;
/// Devices that one server is given by name.
const MOST_DEVICES: usize = DeviceKey::ORDINALS as usize;
/// The least share of threads that may be set, in percent.
const LEAST_PERCENTAGE: f64 = 1.0;

/// What the clients of a namespace may have; what is `None` is not said.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Device memory of each client on each GPU; 0 takes a limit away.
    pub memory: Option<MemLimit>,
    /// Share of the GPU's threads.
    pub percentage: Option<Percentage>,
    /// Priority of their work.
    pub priority: Option<Priority>,
}

impl Limits {
    /// Whether nothing is said.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.memory.is_none() && self.percentage.is_none() && self.priority.is_none()
    }

    /// These, and the others where these say nothing.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            memory: self.memory.or(others.memory),
            percentage: self.percentage.or(others.percentage),
            priority: self.priority.or(others.priority),
        }
    }

    /// These within others: what is not said here is theirs, and nothing is more than they allow.
    #[must_use]
    pub fn within(self, others: Self) -> Self {
        let some = |limit: Option<MemLimit>| limit.filter(|limit| !limit.is_none());
        let least = |one: Option<MemLimit>, other: Option<MemLimit>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let percentage = match (self.percentage, others.percentage) {
            (Some(own), Some(other)) => Some(if own <= other { own } else { other }),
            (own, other) => own.or(other),
        };
        // The higher number is the lower priority.
        let priority = self.priority.max(others.priority);
        Self { memory: least(some(self.memory), some(others.memory)), percentage, priority }
    }

    fn read(words: &Words<'_>) -> Result<Self, Misused> {
        Ok(Self {
            memory: words.value("pinned-memory-limit", memory)?,
            percentage: words.value("active-thread-percentage", percentage)?,
            priority: words.value("client-priority", priority)?,
        })
    }
}

/// Something that changes servers or namespaces.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// `server create [NAME] [--uid=UID] [--allowed-devices=DEVICES]`
    CreateServer {
        /// Its name; the default of a user's is `uid_UID`.
        name: String,
        /// The user that it serves; `None` is whoever reaches its socket.
        uid: Option<u32>,
        /// The devices that it may use; none is all.
        devices: Vec<DeviceKey>,
    },
    /// `server delete NAME [--force]`
    DeleteServer {
        /// Which.
        name: String,
        /// Also while it has clients.
        force: bool,
    },
    /// `server set NAME …`
    SetServer {
        /// Which.
        name: String,
        /// The user that it serves from now on.
        uid: Option<u32>,
        /// Of its namespace `default`, which bound all others.
        limits: Limits,
    },
    /// `namespace create NAME --server=SERVER`
    CreateNamespace {
        /// Whose.
        server: String,
        /// Its name.
        name: String,
    },
    /// `namespace delete NAME --server=SERVER [--force]`
    DeleteNamespace {
        /// Whose.
        server: String,
        /// Which.
        name: String,
        /// Also while it has clients.
        force: bool,
    },
    /// `namespace set NAME --server=SERVER …`
    SetNamespace {
        /// Whose.
        server: String,
        /// Which.
        name: String,
        /// What is said of them.
        limits: Limits,
    },
}

/// The name of a user's own server.
#[must_use]
pub fn server_of_user(uid: u32) -> String {
    format!("uid_{uid}")
}

impl Change {
    /// Reads the words after `server VERB`; `None` for a verb that changes nothing.
    pub(super) fn of_server(verb: &[u8], words: Words<'_>) -> Option<Result<Self, Misused>> {
        Some(match verb {
            b"create" => Self::create_server(words),
            b"delete" => words
                .only(&[], &["force"], 1)
                .and_then(|words| Ok(Self::DeleteServer { name: name(words.word(0)?)?, force: words.has("force") })),
            b"set" => {
                let options =
                    ["uid", "pinned-memory-limit", "active-thread-percentage", "locality-domains", "client-priority"];
                words.only(&options, &[], 1).and_then(|words| {
                    let (uid, limits) = (words.value("uid", user)?, Limits::read(&words)?);
                    let says_nothing = uid.is_none() && limits.is_nothing();
                    if says_nothing && words.value("locality-domains", boolean)?.is_none() {
                        return Err(None);
                    }
                    Ok(Self::SetServer { name: name(words.word(0)?)?, uid, limits })
                })
            }
            _ => return None,
        })
    }

    fn create_server(words: Words<'_>) -> Result<Self, Misused> {
        let words = words.only(&["uid", "allowed-devices", "locality-domains"], &[], 1)?;
        let uid = words.value("uid", user)?;
        words.value("locality-domains", boolean)?;
        let devices = words.value("allowed-devices", devices)?.unwrap_or_default();
        let name = match (words.positional.first(), uid) {
            (Some(word), _) => name(word)?,
            (None, Some(uid)) => server_of_user(uid),
            (None, None) => return Err(None),
        };
        Ok(Self::CreateServer { name, uid, devices })
    }

    /// Reads the words after `namespace VERB`; `None` for a verb that changes nothing.
    pub(super) fn of_namespace(verb: &[u8], words: Words<'_>) -> Option<Result<Self, Misused>> {
        let server = |words: &Words<'_>| name(words.option("server").ok_or(None)?);
        Some(match verb {
            b"create" => words
                .only(&["server"], &[], 1)
                .and_then(|words| Ok(Self::CreateNamespace { name: name(words.word(0)?)?, server: server(&words)? })),
            b"delete" => words.only(&["server"], &["force"], 1).and_then(|words| {
                let (name, server) = (name(words.word(0)?)?, server(&words)?);
                Ok(Self::DeleteNamespace { server, name, force: words.has("force") })
            }),
            b"set" => {
                let options = ["server", "pinned-memory-limit", "active-thread-percentage", "client-priority"];
                words.only(&options, &[], 1).and_then(|words| {
                    let (name, server, limits) = (name(words.word(0)?)?, server(&words)?, Limits::read(&words)?);
                    if limits.is_nothing() {
                        return Err(None);
                    }
                    Ok(Self::SetNamespace { server, name, limits })
                })
            }
            _ => return None,
        })
    }

    /// The server that it is about.
    #[must_use]
    pub fn server(&self) -> &str {
        match self {
            Self::CreateServer { name, .. } | Self::DeleteServer { name, .. } | Self::SetServer { name, .. } => name,
            Self::CreateNamespace { server, .. }
            | Self::DeleteNamespace { server, .. }
            | Self::SetNamespace { server, .. } => server,
        }
    }

    /// The namespace that it is about, which is `default` where the command names a server alone.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::CreateNamespace { name, .. }
            | Self::DeleteNamespace { name, .. }
            | Self::SetNamespace { name, .. } => name,
            Self::CreateServer { .. } | Self::DeleteServer { .. } | Self::SetServer { .. } => DEFAULT_NAMESPACE,
        }
    }

    /// Whether it is written with the module `namespace`.
    #[must_use]
    pub const fn is_of_namespace(&self) -> bool {
        match self {
            Self::CreateNamespace { .. } | Self::DeleteNamespace { .. } | Self::SetNamespace { .. } => true,
            Self::CreateServer { .. } | Self::DeleteServer { .. } | Self::SetServer { .. } => false,
        }
    }
}

/// A user id: a decimal number that is one.
#[must_use]
pub fn user(word: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(word).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|uid| *uid != u32::MAX)
}

/// `true` or `false`.
pub(super) fn boolean(word: &[u8]) -> Option<bool> {
    match word {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Ordinals and UUIDs with commas between them, none twice.
#[must_use]
pub fn devices(word: &[u8]) -> Option<Vec<DeviceKey>> {
    let mut found: Vec<DeviceKey> = Vec::new();
    for part in word.split(|byte| *byte == b',') {
        let device = DeviceKey::parse(part).ok().filter(|device| !found.contains(device))?;
        found.push(device);
    }
    (found.len() <= MOST_DEVICES).then_some(found)
}

/// A memory limit: a whole number with the suffix K, M or G, or 0.
#[must_use]
pub fn memory(word: &[u8]) -> Option<MemLimit> {
    let (unit, digits) = word.split_last()?;
    let scale = match unit {
        b'K' | b'k' => KIB,
        b'M' | b'm' => MIB,
        b'G' | b'g' => GIB,
        _ => return (word == b"0").then_some(MemLimit::NONE),
    };
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse::<u64>().ok()?.checked_mul(scale).map(MemLimit)
}

/// How a memory limit is shown: in the largest unit that it is a whole number of.
#[must_use]
pub fn shown_memory(limit: MemLimit) -> String {
    match limit.0 {
        0 => "0".to_owned(),
        bytes if bytes % GIB == 0 => format!("{}G", bytes / GIB),
        bytes if bytes % MIB == 0 => format!("{}M", bytes / MIB),
        bytes => format!("{}K", bytes.div_ceil(KIB)),
    }
}

/// A share of threads from 1 to 100, fractions allowed.
#[must_use]
pub fn percentage(word: &[u8]) -> Option<Percentage> {
    let is_decimal = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value: f64 = std::str::from_utf8(word).ok().filter(is_decimal)?.parse().ok()?;
    Percentage::new(value).ok().filter(|share| share.get() >= LEAST_PERCENTAGE)
}

/// 0 or 1.
#[must_use]
pub fn priority(word: &[u8]) -> Option<Priority> {
    match word {
        b"0" => Some(Priority::Normal),
        b"1" => Some(Priority::BelowNormal),
        _ => None,
    }
}
