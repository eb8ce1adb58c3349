//! The picture of a daemon of which nothing is known, from which tests make theirs.

use super::{DaemonFacts, RightsFacts, Snapshot};
use std::time::Duration;

impl DaemonFacts {
    /// One that plays 580 and has just begun.
    pub(crate) fn blank() -> Self {
        Self {
            memory_unknown: None,
            replay: None,
            pid: 7,
            version: "0.1.0",
            personality: "580".to_owned(),
            owner: 0,
            rights: RightsFacts::of(0, None),
            uptime: Duration::ZERO,
            quitting: false,
            obstacles: vec![],
            degraded: vec![],
            driver: None,
            pipe_directory: String::new(),
        }
    }
}

impl Snapshot {
    /// One without servers and clients.
    pub(crate) fn blank() -> Self {
        Self {
            daemon: DaemonFacts::blank(),
            domains: vec![],
            servers: vec![],
            named: vec![],
            clients: vec![],
            channels: vec![],
            funerals: vec![],
            witnesses: vec![],
            gpus: vec![],
            suspicions: vec![],
            strangers: vec![],
            regions: vec![],
        }
    }
}
