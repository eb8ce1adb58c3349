//! Becomes the successor of another process: waits for its end and the proof of its rest, and maps meanwhile what is offered of
//! its memory.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Failure, Inherited, Range, Region, Rest};

use super::super::{
    adopt::{Ahead, Trouble, map_all},
    linked,
};
use super::{Code, Recovery, code_of, is_in_doubt, shadows, state};
use crate::{
    daemon::connection::Told,
    kept,
    process::{descriptors::Held, failpoint::reached, settings::succession},
};

/// Longest wait that one request is asked for, so that the link has time for others.
const SLICE: Duration = Duration::from_millis(500);

/// Becomes the owner of the name, and maps what there is of it.
pub(super) fn succeed(timeout_ms: u32, even_if_nobody: bool) -> Result<(), Code> {
    let link = linked().ok_or(Code::Off)?;
    let name = succession::name().ok_or(Code::Off)?;
    let (begin, limit) = (Instant::now(), Duration::from_millis(timeout_ms.into()));
    let (mut ahead, mut maps_ahead, mut steps) = (None::<Ahead>, true, (Duration::ZERO, Duration::ZERO));
    let (inherited, regions) = loop {
        let left = limit.saturating_sub(begin.elapsed());
        let wait_ms = u64::try_from(left.min(SLICE).as_millis()).unwrap_or(0);
        let offer = maps_ahead.then(|| ahead.as_ref().map_or(0, Ahead::offer));
        let ask = Ask::Succeed { name: name.clone(), wait_ms, even_if_nobody, least: Rest::PROCESS, offer };
        match link.ask(ask, left.min(SLICE)).map(sorted) {
            Some(Ok(Left::Given(inherited, regions))) => break (inherited, regions),
            Some(Ok(Left::Offered(offer, regions))) => {
                reached("offer-answered");
                // Whatever was mapped before is of no use beside it.
                drop(ahead.take());
                steps.0 = begin.elapsed();
                // Without it all is mapped when it is this program's, which may have more room by then.
                ahead = Ahead::map(offer, regions).ok();
                maps_ahead = ahead.is_some();
                steps.1 = begin.elapsed();
            }
            Some(Err(Failure::WITHDRAWN)) if ahead.is_some() => {
                drop(ahead.take());
                reached("offer-withdrawn");
            }
            Some(Err(Failure::NOT_YET)) | None if begin.elapsed() < limit => {}
            Some(Err(failure)) => return Err(code_of(failure)),
            None => return Err(Code::NoDaemon),
        }
    };
    reached("succession-answered");
    let waited = begin.elapsed();
    let is_ahead = ahead.is_some();
    let commit = inherited.commit.clone().unwrap_or_default();
    let (count, bytes) = (regions.len(), regions.iter().map(|(region, _)| region.bytes).sum());
    let unmapped = map_all(link, regions, ahead, &commit.ranges).map_err(|trouble| match trouble {
        Trouble::Address => Code::Address,
        Trouble::Descriptor => Code::NotKept,
        Trouble::NoContext | Trouble::Device | Trouble::Driver(_) => Code::Driver,
    })?;
    for key in unmapped {
        // What was mapped nowhere can't be found again by anybody.
        let _released = link.ask(Ask::Release { key }, Duration::ZERO);
    }
    reached("adoption-done");
    link.may_escrow.store(true, Ordering::Release);
    link.wake();
    // What the predecessor has freed since is not there, whatever its commit says.
    let there = |range: &Range| kept::is_kept(range.address, range.bytes);
    let ranges: Vec<Range> = commit.ranges.into_iter().filter(there).collect();
    let ranges = shadows().adopt(ranges);
    let mut state = state();
    state.recovery = Some(Recovery {
        generation: commit.generation,
        server: inherited.server,
        region_bytes: bytes,
        wait_us: microseconds(waited),
        map_us: microseconds(begin.elapsed().saturating_sub(waited)),
        is_committed: inherited.commit.is_some().into(),
        data_bytes: count_of(commit.data.len()),
        predecessor: inherited.predecessor,
        rest: inherited.rest.0,
        regions: count_of(count),
        ranges: count_of(ranges.len()),
        ranges_in_doubt: count_of(ranges.iter().filter(|range| is_in_doubt(range)).count()),
        was_standby: even_if_nobody.into(),
        offered_us: if is_ahead { microseconds(steps.0) } else { 0 },
        mapped_us: if is_ahead { microseconds(steps.1) } else { microseconds(begin.elapsed()) },
    });
    state.data = commit.data;
    // A standby may have labels of its own.
    state.ranges.extend(ranges.into_iter().map(|range| (range.label.clone(), range)));
    Ok(())
}

type Regions = Vec<(Region, Held)>;

/// What is told of a predecessor.
enum Left {
    /// It is this program's.
    Given(Inherited, Regions),
    /// It may be mapped, and is not this program's yet.
    Offered(u64, Regions),
}

fn sorted(told: Vec<Told>) -> Result<Left, Failure> {
    let (mut inherited, mut regions, mut offered) = (Inherited::default(), Vec::new(), None);
    for answer in told {
        match answer {
            (Answer::Inherited(found), _) => inherited = found,
            (Answer::Offered { offer }, _) => offered = Some(offer),
            (Answer::Region(region), Some(descriptor)) => regions.push((region, descriptor)),
            (Answer::Failed(failure), _) => return Err(failure),
            _ => {}
        }
    }
    Ok(match offered {
        Some(offer) => Left::Offered(offer, regions),
        None => Left::Given(inherited, regions),
    })
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn count_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
