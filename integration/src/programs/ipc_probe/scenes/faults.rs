//! Scenes of faults, of the owner, the peer, both, and in a chain of three.

use super::parties::{Found, Party, hears, pair, round};

pub(super) fn owner_faults_at_rest() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        peer.ok("take")?;
        peer.is(&format!("look {key}"), 0, "right")?;
        owner.is("harm", 719, "")?;
        hears(&mut owner)?;
        // What had come had come.
        peer.all(&["query", "wait"])?;
        peer.ok("take")?;
        peer.is(&format!("look {key}"), 0, "right")?;
        round(&mut owner, &mut peer, key + 100)?;
    }
    owner.is("recoveries", 0, "3")
}

pub(super) fn owner_faults_between_record_and_wait() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        owner.all(&["hold", "trap", &format!("fill {}", key + 50), "record"])?;
        peer.ok("take")?;
        owner.ok("go")?;
        owner.fails("finish")?;
        hears(&mut owner)?;
        peer.fails(&format!("look {}", key + 50))?;
        hears(&mut peer)?;
        // Who asks for that record is told too, whoever it is and whenever.
        peer.fails("query")?;
        peer.fails("wait")?;
        peer.fails("take")?;
        hears(&mut peer)?;
        let mut late = Party::begin("who comes late")?;
        late.ok(&format!("open {handles}"))?;
        late.fails("query")?;
        round(&mut owner, &mut peer, key + 100)?;
        late.ok("take")?;
        late.is(&format!("look {}", key + 100), 0, "right")?;
    }
    owner.is("recoveries", 0, "3")
}

/// A time from before a wait until behind it is there only when all between has been done.
pub(super) fn times_behind_lost_work() -> Found<()> {
    let (mut first, mut second, mut third) = chain()?;
    for key in 1..4 {
        first.all(&["hold", &format!("fill {key}"), "record"])?;
        second.all(&["start", "take", "hand", "stop"])?;
        third.all(&["start", "take", "stop"])?;
        first.ok("go")?;
        second.ok("time")?;
        third.ok("time")?;
        second.is(&format!("look {key}"), 0, "right")?;
        third.is(&format!("look {key}"), 0, "right")?;
        first.all(&["hold", "trap", &format!("fill {}", key + 50), "record"])?;
        second.all(&["start", "take", "hand", "stop"])?;
        third.all(&["start", "take", "stop"])?;
        first.ok("go")?;
        first.fails("finish")?;
        second.fails("time")?;
        third.fails("time")?;
        for party in [&mut first, &mut second, &mut third] {
            hears(party)?;
        }
    }
    Ok(())
}

pub(super) fn peer_faults_at_rest() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        peer.is("harm", 719, "")?;
        hears(&mut peer)?;
        // On the same server it may be hit too.
        hears(&mut owner)?;
        peer.all(&["query", "wait", "take"])?;
        peer.is(&format!("look {key}"), 0, "right")?;
        round(&mut owner, &mut peer, key + 100)?;
    }
    peer.is("recoveries", 0, "3")
}

pub(super) fn peer_faults_while_it_waits() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        owner.all(&["hold", &format!("fill {}", key + 50), "record"])?;
        peer.ok("take")?;
        peer.is("harm", 719, "")?;
        hears(&mut peer)?;
        // Its wait went with its stream, so it waits again. A GPU that both use may have told of the fault no sooner than the
        // owner had done its work by itself.
        let found = peer.does("query")?;
        if ![0, 600].contains(&found.0) {
            return Err(format!("the peer asks and gets {found:?}"));
        }
        peer.ok("take")?;
        owner.ok("go")?;
        peer.is(&format!("look {}", key + 50), 0, "right")?;
        owner.ok("finish")?;
    }
    peer.is("recoveries", 0, "3")
}

pub(super) fn both_fault_by_turns() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..6 {
        round(&mut owner, &mut peer, key)?;
        owner.is("harm", 719, "")?;
        peer.is("harm", 719, "")?;
        hears(&mut owner)?;
        hears(&mut peer)?;
        peer.ok("take")?;
        peer.is(&format!("look {key}"), 0, "right")?;
    }
    Ok(())
}

/// Memory and an event of the first one's go to the second, and what the second makes of them to the third.
fn chain() -> Found<(Party, Party, Party)> {
    let (first, mut second, _) = pair()?;
    let mut third = Party::begin("the third")?;
    let (_, handles) = second.does("pass")?;
    third.ok(&format!("open {handles}"))?;
    Ok((first, second, third))
}

pub(super) fn three_in_a_row() -> Found<()> {
    let (mut first, mut second, mut third) = chain()?;
    for key in 1..4 {
        first.all(&["hold", &format!("fill {key}"), "record"])?;
        second.all(&["take", "hand"])?;
        third.ok("take")?;
        first.ok("go")?;
        third.is(&format!("look {key}"), 0, "right")?;
        second.is(&format!("look {key}"), 0, "right")?;
        // The second never looks, and the third believes nothing that is lost.
        first.all(&["hold", "trap", &format!("fill {}", key + 50), "record"])?;
        second.all(&["take", "hand"])?;
        third.ok("take")?;
        first.ok("go")?;
        first.fails("finish")?;
        third.fails(&format!("look {}", key + 50))?;
        for party in [&mut first, &mut second, &mut third] {
            hears(party)?;
        }
    }
    Ok(())
}

/// Of two, one goes on with a spare copy, the owner or the peer; the other one stands by itself.
fn with_a_spare_copy(is_owner: bool) -> Found<()> {
    const TRIES: usize = 20;
    let begin = |name, has_spare: bool| {
        let way = if has_spare { "spare" } else { "in-place" };
        Party::with(name, &[("MPS_SHIM_REPLAY", Some(way))])
    };
    for _ in 0..TRIES {
        let (mut owner, mut peer) = (begin("the owner", is_owner)?, begin("the peer", !is_owner)?);
        let (_, handles) = owner.does("share")?;
        peer.ok(&format!("open {handles}"))?;
        for key in 1..40 {
            round(&mut owner, &mut peer, key)?;
        }
        let faulty = if is_owner { &mut owner } else { &mut peer };
        faulty.is("harm", 719, "")?;
        hears(faulty)?;
        let is_by_a_spare = faulty.does("way")?.1 == "spare";
        peer.all(&["query", "wait", "take"])?;
        peer.is("look 39", 0, "right")?;
        for key in 40..50 {
            round(&mut owner, &mut peer, key)?;
        }
        if is_by_a_spare {
            return Ok(());
        }
    }
    Err(format!("no spare copy was ready {TRIES} times"))
}

pub(super) fn owner_goes_on_with_a_spare_copy() -> Found<()> {
    with_a_spare_copy(true)
}

pub(super) fn peer_goes_on_with_a_spare_copy() -> Found<()> {
    with_a_spare_copy(false)
}
