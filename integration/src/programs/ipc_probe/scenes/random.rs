//! Everything in an order that a number says.

use super::parties::{Found, Party, hears, pair};

/// A number below a bound, by xorshift.
fn below(state: &mut u64, bound: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % bound
}

/// A round that is right, after so many that have an error at most.
fn comes_round(owner: &mut Party, peer: &mut Party, key: u8, tries: usize) -> Found<()> {
    let mut last = String::new();
    for _ in 0..tries {
        for party in [&mut *owner, &mut *peer] {
            if tries == 1 {
                hears(party)?;
            } else {
                party.does("finish")?;
            }
        }
        let (fill, record, take) = (owner.does(&format!("fill {key}"))?, owner.does("record")?, peer.does("take")?);
        let look = peer.does(&format!("look {key}"))?;
        if [fill.0, record.0, take.0] == [0; 3] && look.0 == 0 {
            // What is wrong is so whatever else has happened.
            assert_eq!(look.1, "right", "{key}");
            return Ok(());
        }
        last = format!("{fill:?} {record:?} {take:?} {look:?}");
    }
    Err(last)
}

/// Everything in an order that a number says. What is taken is right, unless the owner was told that its work is lost, or
/// a fault has made an error possible. Those on the same server have errors of each other's faults, whenever they hear of them.
pub(super) fn at_random(seed: u64, are_together: bool) -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for turn in 0..40 {
        let key = turn + 1;
        let is_held = below(&mut state, 3) == 0;
        let does_wrong = below(&mut state, 4) == 0;
        let mut is_told = false;
        let hold = is_held.then(|| "hold".to_owned());
        let begin =
            [hold, Some(format!("fill {key}")), does_wrong.then(|| "trap".to_owned()), Some("record".to_owned())];
        for line in begin.iter().flatten() {
            is_told |= owner.does(line)?.0 != 0;
        }
        let mut has_taken = false;
        for _ in 0..=below(&mut state, 4) {
            match below(&mut state, 7) {
                0 => has_taken = peer.does("take")?.0 == 0,
                1 => drop(peer.does("query")?),
                2 => {
                    peer.does("harm")?;
                    peer.does("finish")?;
                    has_taken = false;
                }
                3 if !is_held => is_told |= owner.does("harm")?.0 != 0,
                4 if !is_held => is_told |= owner.does("finish")?.0 != 0,
                5 => {
                    peer.kill()?;
                    peer = Party::begin("another peer")?;
                    peer.ok(&format!("open {handles}"))?;
                    has_taken = false;
                }
                _ => {
                    is_told |= owner.does(&format!("elsewhere {}", below(&mut state, 12)))?.0 != 0;
                    // The last one is behind what was filled again.
                    is_told |= owner.does("record")?.0 != 0;
                }
            }
        }
        owner.ok("go")?;
        // Its fault is found by a call of its own.
        is_told |= owner.does("finish")?.0 != 0;
        let took = if has_taken { (0, String::new()) } else { peer.does("take")? };
        let looked = if took.0 == 0 { peer.does(&format!("look {key}"))? } else { took };
        let is_excused = is_told || (are_together && looked.0 != 0);
        if !is_excused && looked != (0, "right".to_owned()) {
            return Err(format!("seed {seed}, turn {turn}: {looked:?}"));
        }
        let tries = if are_together { 10 } else { 1 };
        comes_round(&mut owner, &mut peer, key + 100, tries)
            .map_err(|why| format!("seed {seed}, turn {turn}: {why}"))?;
    }
    Ok(())
}
