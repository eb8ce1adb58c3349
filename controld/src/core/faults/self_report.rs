//! What clients say of their own errors, and when that is evidence.
//!
//! A process speaks of itself and of nobody else, so its word raises certainty about itself alone. But every client of a
//! server that has met a fault gets an error, most of them the same as the culprit. Measured on an H200 with 580:
//!
//! | error | who hears it, and when, after the server says `FAULT` | the first word of it |
//! |---|---|---|
//! | 719, after a trap | the culprit within 1 ms of that, or 14 ms later; a victim 138 ms later at the soonest | points at its speaker if it comes within [`NEAR`] of the first sign |
//! | 710, after an assertion | the culprit alone, and the server goes on | points at its speaker if the server is in no fault |
//! | 716, after a misaligned access, and 719 beside it | the culprit last or not at all, a victim 30 ms later | points at nobody |
//! | 700, after a memory fault | everybody at once | points at nobody |
//! | anything else | not measured | points at nobody |
//!
//! So a victim's word is none because it comes late, and that needs a first sign which is known to be the first. Whoever
//! holds the log's turns with records of his own (`driver/witnesses/fault_records.rs`) can keep the server's own record
//! from being heard: with signs of which nothing came up to [`QUIET`] before, no word of a 719 counts. Where two say the same at the same
//! time, or where anything speaks of another kind of fault, or where somebody else has died suddenly just before, none
//! does either.

use crate::core::ids::Pid;
use core::time::Duration;
use std::collections::BTreeMap;

/// `CUDA_ERROR_LAUNCH_FAILED`.
const LAUNCH_FAILED: u32 = 719;
/// `CUDA_ERROR_ASSERT`.
const ASSERT: u32 = 710;
/// `CUDA_ERROR_ILLEGAL_ADDRESS` and `CUDA_ERROR_MISALIGNED_ADDRESS`, of faults after which some get a 719.
const OF_OTHER_FAULTS: [u32; 2] = [700, 716];
/// The kernel's numbers of those.
const XIDS_OF_OTHER_FAULTS: [u32; 2] = [13, 31];
/// How late after the first sign of a fault a culprit's word comes at the most, with room for a busy machine; a victim's
/// comes later.
const NEAR: Duration = Duration::from_millis(60);
/// How long it must have been quiet about a server before. The log's turns are all there again after 8 s.
const QUIET: Duration = Duration::from_secs(10);
/// Clients whose words are kept; a server has some 60.
const MAX_REPORTS: usize = 128;

/// One client's first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::core) struct SelfReport {
    pub(in crate::core) pid: Pid,
    /// The `CUresult`.
    pub(in crate::core) error: u32,
    /// Whether it came to a call about work of its own.
    pub(super) of_own_work: bool,
}

/// What the clients of one server have said of themselves in one incident.
#[derive(Debug, Default)]
pub(in crate::core) struct SelfReports {
    first_sign: Duration,
    /// Whether the first sign is known to be that.
    is_first_known: bool,
    words: BTreeMap<Pid, (SelfReport, Duration)>,
    /// Whether the fault is of a kind after which victims speak first.
    is_of_another_kind: bool,
}

impl SelfReports {
    /// Of an incident that begins now. `talked_of_at` is until when there were signs of which nothing came.
    pub(in crate::core) fn after(talked_of_at: Option<Duration>, now: Duration) -> Self {
        let is_first_known = talked_of_at.is_none_or(|at| at + QUIET <= now);
        Self { first_sign: now, is_first_known, ..Self::default() }
    }

    /// Takes a sign in: somebody's own word, or a line of the kernel with this number.
    pub(super) fn hear(&mut self, now: Duration, word: Option<SelfReport>, xid: Option<u32>) {
        self.is_of_another_kind |= xid.is_some_and(|number| XIDS_OF_OTHER_FAULTS.contains(&number));
        if let Some(word) = word {
            self.is_of_another_kind |= OF_OTHER_FAULTS.contains(&word.error);
            if self.words.len() < MAX_REPORTS {
                self.words.entry(word.pid).or_insert((word, now));
            }
        }
    }

    /// Who has spoken.
    pub(super) fn speakers(&self) -> impl Iterator<Item = Pid> {
        self.words.keys().copied()
    }

    /// Whom the words point at: the one who cannot be a victim. `is_lost` is whether the server is.
    pub(super) fn points_at(&self, is_lost: bool) -> Option<Pid> {
        let is_evidence = |(word, at): &&(SelfReport, Duration)| {
            word.of_own_work
                && match word.error {
                    LAUNCH_FAILED => self.is_first_known && *at <= self.first_sign + NEAR,
                    ASSERT => !is_lost,
                    _ => false,
                }
        };
        let mut pointing = self.words.values().filter(is_evidence).map(|(word, _)| word.pid);
        let first = pointing.next().filter(|_| !self.is_of_another_kind);
        first.filter(|_| pointing.next().is_none())
    }
}
