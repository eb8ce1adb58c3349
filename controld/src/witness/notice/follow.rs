//! From records to events: order, losses, and which process each number means.
//!
//! The module numbers its records; a reader that is too slow gets a record with the exact number that it lost. Both are
//! used: a gap that no such record explains is a loss as well. After a loss the state is taken anew.

use std::collections::{BTreeMap, VecDeque};

use remps_proto::notice::{Notice, NoticeType, flag};

use super::event::NoticeEvent;
use crate::core::{Pid, ProcessKey};

/// Length of a clock tick of `/proc`: `USER_HZ` is 100 on every architecture that NVIDIA's driver supports.
const TICK_NANOSECONDS: u64 = 10_000_000;
/// Address spaces whose process is remembered. The module has no limit; MPS has 60 clients on a GPU.
const MAX_PROCESSES: usize = 4096;
/// Processes remembered after their address space is gone: as many as the module remembers, to name the dead client of
/// a zombie fault.
const MAX_GRAVES: usize = 64;

/// Follows one reader's records.
#[derive(Debug, Default)]
pub(super) struct Follower {
    /// The number of the next record; `None` before the first snapshot.
    expected: Option<u64>,
    in_snapshot: bool,
    lost: u64,
    is_stale: bool,
    processes: BTreeMap<u64, ProcessKey>,
    /// What was known before the snapshot that is being read.
    earlier: BTreeMap<u64, ProcessKey>,
    graves: VecDeque<(u64, ProcessKey)>,
}

impl Follower {
    /// Records lost since the beginning.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether records were lost since the last snapshot, so that a new one is due.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Lets the next snapshot be due: the module may have been silent.
    pub(super) fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Takes in one record. `start_time` reads when a process was started, in clock ticks since boot.
    pub(super) fn record(&mut self, notice: &Notice, start_time: impl Fn(Pid) -> Option<u64>) -> Vec<NoticeEvent> {
        let mut events = Vec::new();
        if notice.has(flag::SNAPSHOT) {
            self.snapshot(notice, start_time, &mut events);
            return events;
        }
        let expected = self.expected.unwrap_or(notice.seq);
        if notice.seq < expected {
            return events;
        }
        let gap = notice.seq - expected;
        let is_overrun = notice.kind == NoticeType::OVERRUN;
        let overrun = if is_overrun { u64::from(notice.count) } else { 0 };
        self.lose(gap.saturating_add(overrun), &mut events);
        self.expected = Some(notice.seq.saturating_add(if is_overrun { overrun } else { 1 }));
        if !is_overrun {
            let process = self.process(notice, start_time);
            events.push(NoticeEvent::of(notice, process));
        }
        events
    }

    /// Takes in what an earlier reader has still to tell: only the records before `end`, where another one begins.
    pub(super) fn record_before(
        &mut self,
        end: u64,
        notice: &Notice,
        start_time: impl Fn(Pid) -> Option<u64>,
    ) -> Vec<NoticeEvent> {
        if notice.has(flag::SNAPSHOT) || notice.seq >= end {
            return Vec::new();
        }
        let mut notice = *notice;
        if notice.kind == NoticeType::OVERRUN {
            notice.count = u32::try_from(end - notice.seq).map_or(notice.count, |before| notice.count.min(before));
        }
        self.record(&notice, start_time)
    }

    fn snapshot(&mut self, notice: &Notice, start_time: impl Fn(Pid) -> Option<u64>, events: &mut Vec<NoticeEvent>) {
        if !self.in_snapshot {
            let gap = self.expected.map_or(0, |expected| notice.seq.saturating_sub(expected));
            self.lose(gap, events);
            self.expected = Some(notice.seq);
            self.in_snapshot = true;
            self.is_stale = false;
            self.earlier = std::mem::take(&mut self.processes);
            events.push(NoticeEvent::SnapshotBegins);
        }
        if notice.kind == NoticeType::SNAPSHOT_END {
            self.in_snapshot = false;
            self.earlier.clear();
            events.push(NoticeEvent::SnapshotEnds);
        } else {
            let process = self.process(notice, start_time);
            events.push(NoticeEvent::of(notice, process));
        }
    }

    fn lose(&mut self, count: u64, events: &mut Vec<NoticeEvent>) {
        if count > 0 {
            self.lost = self.lost.saturating_add(count);
            self.is_stale = true;
            events.push(NoticeEvent::Lost(count));
        }
    }

    /// The process of a record: as it was when its address space was first heard of, since the pid of a dead client may
    /// be another's by now.
    fn process(&mut self, notice: &Notice, start_time: impl Fn(Pid) -> Option<u64>) -> Option<ProcessKey> {
        if notice.tgid == 0 {
            return None;
        }
        let id = notice.va_space_id;
        // A process that is younger than what is told of it is another one, with the same pid.
        let is_old_enough = |ticks: &u64| ticks.saturating_mul(TICK_NANOSECONDS) <= notice.time_ns;
        let key =
            |ticks: Option<u64>| ProcessKey { pid: notice.tgid, start_time: ticks.filter(is_old_enough).unwrap_or(0) };
        let known = self.processes.get(&id).or_else(|| self.earlier.get(&id)).copied();
        let buried = || self.graves.iter().find(|(va_space, _)| *va_space == id).map(|(_, process)| *process);
        let process = match known.or_else(buried).filter(|process| process.pid == notice.tgid) {
            Some(process) => key(Some(process.start_time)),
            None if is_over(notice) => key(None),
            None => key(start_time(notice.tgid)),
        };
        match notice.kind {
            // Of no client.
            _ if id == 0 => {}
            NoticeType::VASPACE_DEL => self.bury(id, process),
            NoticeType::ZOMBIE_FAULT => {}
            _ if self.processes.len() < MAX_PROCESSES => {
                self.processes.insert(id, process);
            }
            _ => {}
        }
        Some(process)
    }

    fn bury(&mut self, va_space: u64, process: ProcessKey) {
        self.processes.remove(&va_space);
        self.graves.push_back((va_space, process));
        if self.graves.len() > MAX_GRAVES {
            self.graves.pop_front();
        }
    }
}

/// Whether the client's process has ended, so that its pid may be another's.
fn is_over(notice: &Notice) -> bool {
    notice.has(flag::HELD) || matches!(notice.kind, NoticeType::ZOMBIE_FAULT | NoticeType::VASPACE_DEL)
}
