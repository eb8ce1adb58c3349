//! Two short stories for tests: one of ours in which all goes well, and one of NVIDIA's.

use super::acts::{DEATH, END, FAULT, KEPT_BYTES, KILL, SHARE, UPGRADE};
use super::story::{End, Event, Lane, Side, Story, What};

fn event(ms: f64, lane: Lane, what: What) -> Event {
    Event { ms, lane, what }
}

fn act(ms: f64, number: u8) -> Event {
    event(ms, Lane::Daemon, What::Act { number })
}

fn started(ms: f64, lane: Lane, pid: i32) -> Event {
    event(ms, lane, What::Started { pid })
}

fn served(ms: f64, lane: Lane, pid: i32, after_ms: f64) -> Event {
    event(ms, lane, What::Served { pid, after_ms })
}

fn worked(ms: f64, longest_ms: f64) -> Event {
    event(ms, Lane::Elsewhere, What::Worked { steps: 1, longest_ms })
}

fn failed(ms: f64, lane: Lane, code: u32) -> Event {
    event(ms, lane, What::Failed { call: "cuCtxSynchronize".to_owned(), code, name: "NAME".to_owned() })
}

fn took(ms: f64, server: i32, pid: i32) -> Event {
    event(ms, Lane::Server(server), What::Took { pid })
}

/// Up to the fault, the same with either daemon.
fn beginning() -> Vec<Event> {
    vec![
        started(1.0, Lane::Daemon, 10),
        act(2.0, SHARE),
        started(3.0, Lane::Server(50), 50),
        event(4.0, Lane::Server(50), What::Ready),
        served(100.0, Lane::Plain, 11, 100.0),
        served(300.0, Lane::InPlace, 12, 300.0),
        served(120.0, Lane::Culprit, 13, 120.0),
        served(130.0, Lane::Elsewhere, 14, 130.0),
        act(400.0, FAULT),
        event(500.0, Lane::Culprit, What::Faulted),
        event(600.0, Lane::Server(50), What::Blamed { pid: 11 }),
        failed(610.0, Lane::Plain, 700),
        failed(612.0, Lane::Culprit, 700),
    ]
}

fn story(side: Side, more: Vec<Event>, end: Option<End>) -> Story {
    let mut events = [beginning(), more].concat();
    events.sort_by(|one, other| one.ms.total_cmp(&other.ms));
    Story { side, setting: "a sample".to_owned(), events, end }
}

/// All goes well.
pub(super) fn remps() -> Story {
    let verdict = What::Verdict { pid: Some(13), confidence: "certain".to_owned(), witness: "uvm-event".to_owned() };
    let newcomer = |number: u8, came: f64, after: f64| {
        let (lane, pid) = (Lane::Newcomer(number), 30 + i32::from(number));
        vec![started(came, lane, pid), took(came + 1.0, 51, pid), served(came + after, lane, pid, after)]
    };
    let events = vec![
        event(500.7, Lane::Daemon, verdict),
        started(502.0, Lane::Server(51), 51),
        event(503.0, Lane::Server(51), What::Ready),
        served(650.0, Lane::Culprit, 15, 38.0),
        event(640.0, Lane::InPlace, What::Recovered { took_ms: 31.0, bytes: 8 << 20, is_intact: true }),
        event(700.0, Lane::Culprit, What::Found { bytes: KEPT_BYTES, is_intact: true }),
        worked(710.0, 2.5),
        act(800.0, DEATH),
        event(810.0, Lane::Killed, What::Launched),
        event(811.0, Lane::Killed, What::Killed),
        worked(900.0, 3.5),
        act(1000.0, KILL),
        event(1001.0, Lane::Daemon, What::Killed),
        event(1002.0, Lane::Daemon, What::Gone { status: None, signal: Some(9) }),
        started(1100.0, Lane::Daemon, 20),
        worked(1300.0, 1.0),
        act(1400.0, UPGRADE),
        event(1401.0, Lane::Daemon, What::Upgraded),
        worked(1600.0, 1.0),
        act(1700.0, END),
        event(1710.0, Lane::InPlace, What::Ended { is_intact: Some(true) }),
    ];
    let newcomers = [newcomer(1, 520.0, 80.0), newcomer(2, 1010.0, 250.0), newcomer(3, 1410.0, 90.0)].concat();
    let end = End { status: Some(0), files_left: Vec::new(), processes_left: Vec::new() };
    story(Side::Remps, [events, newcomers].concat(), Some(end))
}

/// Everybody is lost, time and again.
pub(super) fn nvidia() -> Story {
    let events = vec![
        event(350.0, Lane::Culprit, What::Committed { is_kept: false }),
        failed(613.0, Lane::InPlace, 700),
        failed(614.0, Lane::Elsewhere, 700),
        started(520.0, Lane::Newcomer(1), 31),
        failed(560.0, Lane::Newcomer(1), 807),
        took(590.0, 50, 32),
        served(600.0, Lane::Newcomer(1), 32, 80.0),
        served(650.0, Lane::Culprit, 15, 38.0),
        event(660.0, Lane::Culprit, What::Ended { is_intact: None }),
        served(700.0, Lane::Elsewhere, 16, 40.0),
        act(800.0, DEATH),
        event(811.0, Lane::Killed, What::Killed),
        failed(900.0, Lane::Elsewhere, 719),
        served(950.0, Lane::Elsewhere, 17, 20.0),
        act(1000.0, KILL),
        event(1001.0, Lane::Daemon, What::Killed),
        failed(1003.0, Lane::Elsewhere, 806),
        started(1010.0, Lane::Newcomer(2), 33),
        served(1020.0, Lane::Newcomer(2), 33, 10.0),
        act(1100.0, END),
    ];
    story(Side::Nvidia, events, None)
}

/// The same with another thing in the place of those that are so.
pub(super) fn with(mut story: Story, is_it: impl Fn(&What) -> bool, what: What) -> Story {
    let found: Vec<&mut Event> = story.events.iter_mut().filter(|event| is_it(&event.what)).collect();
    assert!(!found.is_empty(), "the sample has it");
    found.into_iter().for_each(|event| event.what = what.clone());
    story
}

/// The same without those of a lane that are so.
pub(super) fn without(mut story: Story, lane: Lane, is_it: impl Fn(&What) -> bool) -> Story {
    story.events.retain(|event| event.lane != lane || !is_it(&event.what));
    story
}
