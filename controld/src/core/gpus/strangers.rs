//! Who uses a GPU outside MPS, and what becomes of him.
//!
//! Outside an exclusive mode nothing keeps a program from passing MPS by: one without `CUDA_MPS_PIPE_DIRECTORY`, say.
//! The driver itself tells who is a client of MPS, also of a dead server and of another daemon's, so nobody is a stranger
//! by a mistake of ours. Where the operator wants strangers ended, one is told first, at the second look that finds it,
//! and killed at the third.

use super::Gpus;
use super::{GpuSeen, Outsider};
use crate::core::effect::Turn;
use crate::core::facts::{GpuFacts, StrangerFacts};
use crate::core::{Effect, JournalEvent, Pid, ProcessKey};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

/// How many looks in a row find whoever is asked to end.
const LOOKS_TO_TERMINATE: u32 = 2;
/// And whoever is killed.
const LOOKS_TO_KILL: u32 = 3;

/// A process outside MPS.
#[derive(Debug)]
pub(super) struct Stranger {
    first: Outsider,
    /// Its memory on each GPU, by UUID.
    gpus: BTreeMap<String, Option<u64>>,
    /// Looks in a row that have found it.
    looks: u32,
    since: Duration,
}

impl Gpus {
    fn stranger_found(&mut self, turn: &mut Turn, stranger: &Stranger) {
        let Outsider { process, uid, command, is_server, .. } = stranger.first.clone();
        let gpus: Vec<String> = stranger.gpus.keys().cloned().collect();
        let what = if is_server { "a server of another daemon, it seems, has" } else { "has" };
        turn.log(format!(
            "Process {} of user {uid} ({command}) {what} a context on {} outside of this daemon's MPS",
            process.pid,
            gpus.join(", ")
        ));
        let bytes = stranger.bytes();
        turn.record(JournalEvent::StrangerFound { process, uid, command, gpus, bytes, server: is_server });
    }

    fn end_stranger(&mut self, turn: &mut Turn, stranger: &Stranger) {
        let Outsider { process, uid, is_server, .. } = stranger.first;
        let force = match stranger.looks {
            _ if is_server => return,
            LOOKS_TO_TERMINATE => false,
            LOOKS_TO_KILL => true,
            _ => return,
        };
        let how = if force { "killed" } else { "asked to end" };
        turn.log(format!("Process {} of user {uid} uses a GPU outside MPS and is {how}", process.pid));
        turn.record(JournalEvent::StrangerEnded { process, uid, force });
        turn.push(Effect::EndStranger { process, force });
    }

    pub(in crate::core) fn gpu_facts(&self) -> Vec<GpuFacts> {
        let fact = |gpu: &GpuSeen| GpuFacts {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            bus: self.known.place_of(&gpu.uuid).map(|(_, place)| place.bus.clone()),
            compute_mode: gpu.mode,
            restored: self.modes.original(&gpu.uuid),
        };
        self.seen.iter().map(fact).collect()
    }

    pub(in crate::core) fn stranger_facts(&self, now: Duration) -> Vec<StrangerFacts> {
        let fact = |stranger: &Stranger| StrangerFacts {
            process: stranger.first.process,
            uid: stranger.first.uid,
            command: stranger.first.command.clone(),
            server: stranger.first.is_server,
            gpus: stranger.gpus.keys().cloned().collect(),
            instance: stranger.first.instance,
            bytes: stranger.bytes(),
            since: now.saturating_sub(stranger.since),
        };
        self.strangers.values().map(fact).collect()
    }
}

impl Gpus {
    /// Takes in who is on the GPUs.
    pub(super) fn look_for_strangers(&mut self, turn: &mut Turn, seen: &[GpuSeen], is_of_mps: impl Fn(Pid) -> bool) {
        let mut found: BTreeMap<ProcessKey, Stranger> = BTreeMap::new();
        for gpu in seen {
            for outsider in gpu.outside.iter().flatten().filter(|outsider| !is_of_mps(outsider.process.pid)) {
                let stranger = found.entry(outsider.process).or_insert_with(|| Stranger {
                    first: outsider.clone(),
                    gpus: BTreeMap::new(),
                    looks: 0,
                    since: turn.now,
                });
                stranger.gpus.insert(gpu.uuid.clone(), outsider.bytes);
            }
        }
        let unknown: BTreeSet<&str> =
            seen.iter().filter(|gpu| gpu.outside.is_none()).map(|gpu| gpu.uuid.as_str()).collect();
        let before = std::mem::take(&mut self.strangers);
        for (process, stranger) in &mut found {
            match before.get(process) {
                Some(known) => (stranger.looks, stranger.since) = (known.looks + 1, known.since),
                None => {
                    stranger.looks = 1;
                    self.stranger_found(turn, stranger);
                }
            }
        }
        for (process, gone) in before.into_iter().filter(|(process, _)| !found.contains_key(process)) {
            // A GPU of which nothing can be told this time may still have it.
            if gone.gpus.keys().all(|gpu| !unknown.contains(gpu.as_str())) {
                turn.record(JournalEvent::StrangerLeft { process, uid: gone.first.uid });
            }
        }
        if turn.policy.gpus.ends_strangers() && self.may_end {
            found.values().for_each(|stranger| self.end_stranger(turn, stranger));
        }
        self.strangers = found;
    }
}

impl Stranger {
    /// All its GPU memory, where all of it is known.
    fn bytes(&self) -> Option<u64> {
        self.gpus.values().copied().sum()
    }
}
