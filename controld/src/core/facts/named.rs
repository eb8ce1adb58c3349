//! Named servers and their namespaces, whether or not a process runs for them.

use crate::core::Uid;
use serde::Serialize;

/// A namespace of a named server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NamespaceFacts {
    /// Its name.
    pub name: String,
    /// Device memory that each client may have on each GPU, in bytes; `None` is without limit.
    pub memory_bytes: Option<u64>,
    /// Share of threads that they have, in percent.
    pub thread_percentage: f64,
    /// Their priority.
    pub priority: u32,
}

/// A server that somebody has named.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NamedFacts {
    /// Its name.
    pub name: String,
    /// The user that it serves; `None` is whoever reaches its socket.
    pub uid: Option<Uid>,
    /// The UUIDs of the devices that it may use; none is all.
    pub devices: Vec<String>,
    /// Its namespaces, by name.
    pub namespaces: Vec<NamespaceFacts>,
}
