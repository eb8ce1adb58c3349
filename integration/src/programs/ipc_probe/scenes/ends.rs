//! Scenes in which one of them ends, or is not recovered.

use super::parties::{Found, Party, event_of, hears, pair, round};

pub(super) fn owner_is_killed_before_it_is_done() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.all(&["hold", "fill 2", "record"])?;
    peer.ok("take")?;
    owner.kill()?;
    peer.fails("look 2")?;
    hears(&mut peer)?;
    peer.fails("query")?;
    peer.fails("wait")?;
    peer.fails("take")?;
    peer.fails(&format!("more {}", event_of(&handles)))?;
    hears(&mut peer)
}

pub(super) fn owner_is_killed_when_it_is_done() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.kill()?;
    peer.all(&["query", "wait", "take"])?;
    peer.is("look 1", 0, "right")
}

pub(super) fn peer_is_killed() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    owner.all(&["hold", "fill 2", "record"])?;
    peer.ok("take")?;
    peer.kill()?;
    owner.all(&["go", "finish"])?;
    let mut peer = Party::begin("the next peer")?;
    peer.ok(&format!("open {handles}"))?;
    peer.ok("take")?;
    peer.is("look 2", 0, "right")?;
    round(&mut owner, &mut peer, 3)
}

/// Nothing is left to a peer but an error, whatever ends the work that it waits for.
fn loses(end: &[&str]) -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.all(&["hold", "trap", "fill 2", "record"])?;
    peer.ok("take")?;
    for line in end {
        // Whether it fails is not what this is about.
        let _code = owner.does(line)?;
    }
    peer.fails("look 2")?;
    hears(&mut peer)?;
    peer.fails("query").map(drop)
}

pub(super) fn owner_is_refused() -> Found<()> {
    loses(&["obstruct", "go", "finish"])
}

pub(super) fn owner_ends_its_context() -> Found<()> {
    loses(&["reset"])
}
