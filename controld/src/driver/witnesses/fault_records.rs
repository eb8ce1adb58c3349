//! Records of the log FIFO that speak of a fault: anybody can write them, in any server's name, as fast as he likes.
//!
//! What such a record is good for is that the server is asked how it is. A server writes a handful at a fault, so each
//! has [`BURST`] at once and [`PER_SECOND`] in the long run; the rest costs a comparison, is counted, and is told all
//! together: to the core as one more sign, as soon as it hears this server again, so that a fault whose own records
//! were lost among others is asked about all the same; and to the operator once in [`TELLING`].
//!
//! Pure: the time is an argument.

use crate::core::{Evidence, Pid};
use remps_proto::mps::fault_log::FaultLine;
use remps_proto::mps::log::Record;
use std::collections::BTreeMap;
use std::time::Duration;

/// Records heard in one server's name in a second, in the long run.
const PER_SECOND: u32 = 4;
/// Records heard at once after a quiet time. A fault with 60 clients has some five of them.
const BURST: u32 = 32;
/// How often the operator is told how many were not heard, so that it takes years to turn the journal over by that.
const TELLING: Duration = Duration::from_secs(60);
/// Bytes of a record that a verdict repeats.
const MAX_SIGN: usize = 256;

#[derive(Debug, Default)]
struct Source {
    /// Until when its records are used up; in the past when it was quiet.
    used_until: Duration,
    /// Records not heard, of which the core is still to be told.
    unheard: u64,
}

impl Source {
    const RECORD: Duration = Duration::from_secs(1).checked_div(PER_SECOND).expect("more than none");
    const CAPACITY: Duration = Self::RECORD.saturating_mul(BURST);

    fn hears(&mut self, now: Duration) -> bool {
        let until = self.used_until.max(now) + Self::RECORD;
        let hears = until <= now + Self::CAPACITY;
        if hears {
            self.used_until = until;
        }
        hears
    }

    fn hears_at(&self) -> Duration {
        (self.used_until + Self::RECORD).saturating_sub(Self::CAPACITY)
    }
}

/// What is heard of each server.
#[derive(Debug, Default)]
pub(in crate::driver) struct FaultRecords {
    sources: BTreeMap<Pid, Source>,
    /// Records not heard of which the operator is still to be told.
    untold: u64,
    told_at: Option<Duration>,
}

impl FaultRecords {
    /// What a record says that the core should hear now. `is_server` says whether records of this pid are heard at all.
    pub(in crate::driver) fn hear(
        &mut self,
        now: Duration,
        record: &Record,
        is_server: impl Fn(Pid) -> bool,
    ) -> Option<Evidence> {
        if !is_server(record.pid) {
            return None;
        }
        let line = FaultLine::parse(&record.text).filter(|line| line.begins() || line.blames())?;
        if !self.sources.contains_key(&record.pid) {
            // As many at most as there are servers.
            self.sources.retain(|pid, _| is_server(*pid));
        }
        let source = self.sources.entry(record.pid).or_default();
        if !source.hears(now) {
            source.unheard = source.unheard.saturating_add(1);
            self.untold = self.untold.saturating_add(1);
            return None;
        }
        let text = String::from_utf8_lossy(&record.text[..record.text.len().min(MAX_SIGN)]).into_owned();
        let (server, named, blames) = (record.pid, line.accused(), line.blames());
        Some(Evidence::ServerLog { server, named, blames, text })
    }

    /// When there is something to tell.
    pub(in crate::driver) fn next_deadline(&self) -> Option<Duration> {
        let sources = self.sources.values().filter(|source| source.unheard > 0).map(Source::hears_at);
        let telling = (self.untold > 0).then(|| self.told_at.map_or(Duration::ZERO, |at| at + TELLING));
        sources.chain(telling).min()
    }

    /// One more sign of each server of which some were not heard, and which can be heard again.
    pub(in crate::driver) fn overdue(&mut self, now: Duration) -> Vec<Evidence> {
        let mut signs = Vec::new();
        for (server, source) in &mut self.sources {
            if source.unheard > 0 && source.hears(now) {
                let text = format!("{} more records of a fault", std::mem::take(&mut source.unheard));
                signs.push(Evidence::ServerLog { server: *server, named: None, blames: false, text });
            }
        }
        signs
    }

    /// How many records were not heard since the operator was told last, if it is time to tell him.
    pub(in crate::driver) fn take_untold(&mut self, now: Duration) -> Option<u64> {
        let is_time = self.told_at.is_none_or(|at| at + TELLING <= now);
        if self.untold == 0 || !is_time {
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remps_proto::mps::log::{LocalTime, Source as Origin};

    const SERVERS: [Pid; 2] = [500, 501];
    const MANY: u32 = 1_000_000;

    fn record(pid: Pid, text: &str) -> Record {
        Record { source: Origin::SERVER, pid, time: LocalTime::default(), text: text.as_bytes().to_vec() }
    }

    fn forged(number: u32) -> Record {
        let text = format!("Client {{PID: {number}, Context ID: 1}} exiting. Worker is in reset.");
        record(SERVERS[0], &text)
    }

    fn is_server(pid: Pid) -> bool {
        SERVERS.contains(&pid)
    }

    #[test]
    fn of_a_million_records_in_ten_seconds_a_bounded_number_is_heard_and_every_other_one_counted() {
        let mut faults = FaultRecords::default();
        let (mut heard, mut summaries, mut told, mut tellings) = (0u64, 0u64, 0, 0);
        let mut now = Duration::ZERO;
        let records: Vec<Record> = (1..100).map(forged).collect();
        for record in records.iter().cycle().take(MANY as usize) {
            now += Duration::from_micros(10);
            heard += u64::from(faults.hear(now, record, is_server).is_some());
            if faults.next_deadline().is_some_and(|at| at <= now) {
                summaries += faults.overdue(now).len() as u64;
                let count = faults.take_untold(now);
                tellings += u32::from(count.is_some());
                told += count.unwrap_or_default();
            }
        }
        assert!(heard + summaries <= u64::from(BURST + 11 * PER_SECOND), "{heard} {summaries}");
        assert!(tellings <= 2, "{tellings}");
        now += TELLING;
        told += faults.take_untold(now).unwrap_or_default();
        assert_eq!(heard + told, u64::from(MANY));
    }

    #[test]
    fn the_last_record_of_a_flood_leads_to_one_more_sign() {
        let mut faults = FaultRecords::default();
        let now = Duration::from_secs(7);
        while faults.hear(now, &forged(1), is_server).is_some() {}
        assert_eq!(faults.overdue(now), []);
        faults.take_untold(now);
        let at = faults.next_deadline().expect("it is still to be told");
        assert!(at > now);
        let text = "1 more records of a fault".to_owned();
        assert_eq!(faults.overdue(at), [Evidence::ServerLog { server: SERVERS[0], named: None, blames: false, text }]);
        assert_eq!(faults.next_deadline(), None);
    }

    #[test]
    fn a_flood_in_one_servers_name_keeps_nothing_of_another_from_being_heard() {
        let mut faults = FaultRecords::default();
        let now = Duration::from_secs(7);
        while faults.hear(now, &forged(1), is_server).is_some() {}
        let own = record(SERVERS[1], "Server is handling a fatal GPU error.");
        assert!(faults.hear(now, &own, is_server).is_some());
    }

    #[test]
    fn what_is_in_no_servers_name_or_says_nothing_of_a_fault_takes_no_room() {
        let mut faults = FaultRecords::default();
        for pid in 1000..3000 {
            assert_eq!(
                faults.hear(Duration::ZERO, &record(pid, "Server is handling a fatal GPU error."), is_server),
                None
            );
        }
        assert_eq!(faults.hear(Duration::ZERO, &record(SERVERS[0], "New client"), is_server), None);
        assert!(faults.sources.is_empty());
        // Servers come and go.
        for pid in 1000..3000 {
            let text = "Server is handling a fatal GPU error.";
            assert!(faults.hear(Duration::ZERO, &record(pid, text), |known| known == pid).is_some());
            assert_eq!(faults.sources.len(), 1);
        }
    }
}
