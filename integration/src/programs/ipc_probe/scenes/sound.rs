//! Scenes without faults: events and handles in any order, and what is refused.

use super::parties::{Found, Party, event_of, pair, round};

pub(super) fn without_faults() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..20 {
        round(&mut owner, &mut peer, key)?;
        peer.all(&["query", "wait"])?;
    }
    // The one waits for the other.
    for key in 20..30 {
        owner.all(&["hold", &format!("fill {key}"), "record"])?;
        peer.is("query", 600, "")?;
        peer.ok("take")?;
        owner.ok("go")?;
        peer.all(&["wait", "query"])?;
        peer.is(&format!("look {key}"), 0, "right")?;
    }
    Ok(())
}

pub(super) fn recorded_before_it_was_exported() -> Found<()> {
    let (mut owner, mut peer) = (Party::begin("the owner")?, Party::begin("the peer")?);
    owner.ok("hold")?;
    let (_, handles) = owner.does("share")?;
    peer.ok(&format!("open {handles}"))?;
    peer.is("query", 600, "")?;
    peer.ok("take")?;
    owner.ok("go")?;
    peer.all(&["wait", "query"])?;
    round(&mut owner, &mut peer, 9)
}

pub(super) fn handles_and_what_is_refused() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    let event = event_of(&handles);
    // As the driver has it: a process cannot open its own.
    owner.is(&format!("more {event}"), 201, "")?;
    peer.all(&[&format!("more {event}"), &format!("more {event}")])?;
    round(&mut owner, &mut peer, 1)?;
    let (code, codes) = peer.does("misuse")?;
    if code != 0 || !codes.starts_with("801,400,801,905") {
        return Err(format!("misuse: {code} {codes}"));
    }
    round(&mut owner, &mut peer, 2)?;
    let (_, next) = owner.does("again")?;
    // A graph that records it would go on doing so when it was given away.
    owner.is("premature", 0, "801")?;
    // What it was of is no more, and another one has its place.
    peer.is(&format!("more {event}"), 400, "")?;
    peer.ok(&format!("more {next}"))?;
    // Who is not to be recovered cannot have it, nor who has no library.
    let mut other = Party::with("who is not recovered", &[("MPS_SHIM_REPLAY", None)])?;
    other.is(&format!("more {next}"), 801, "")?;
    let mut other = Party::with("who has no library", &[("LD_PRELOAD", None)])?;
    other.fails(&format!("more {next}")).map(drop)
}

pub(super) fn records_come_in_another_order() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.all(&["hold", "fill 2", "record", "elsewhere 3"])?;
    // The last record is behind nothing.
    peer.all(&["wait", "query"])?;
    owner.all(&["go", "finish"])?;
    peer.all(&["wait", "query"])?;
    round(&mut owner, &mut peer, 3)?;
    owner.all(&["hold", "record", "elsewhere 20", "go", "finish"])?;
    peer.all(&["wait", "query"])?;
    round(&mut owner, &mut peer, 4)
}

/// The number of a later record is there for good, whatever an earlier one of another stream has still to write: the first record
/// after the handle's is held, and the last one has its word.
pub(super) fn numbers_are_not_taken_back() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    owner.all(&["hold", "record", "elsewhere 8", "go", "finish"])?;
    peer.all(&["query", "wait"])?;
    round(&mut owner, &mut peer, 1)
}
