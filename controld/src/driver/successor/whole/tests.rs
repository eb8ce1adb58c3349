//! A holder of a map, told step by step, with a successor that comes after any of them.

use super::*;

/// What a holder has; it may refuse some keys.
#[derive(Debug, Clone, Default)]
struct Shelf {
    held: BTreeMap<u64, (Kind, Vec<u8>)>,
    refuses: BTreeSet<u64>,
    refused: Vec<u64>,
    barrier: Option<u64>,
    sent: usize,
}

impl Shelf {
    fn take(&mut self, step: Step) {
        match step {
            Step::Hold { key, .. } if self.refuses.contains(&key) => self.refused.push(key),
            Step::Hold { key, kind, state } => {
                assert!(state.len() <= MAX_STATE_BYTES);
                self.sent += state.len();
                self.held.insert(key, (kind, state));
            }
            Step::Release { key } => drop(self.held.remove(&key)),
            Step::Barrier { number } => self.barrier = Some(number),
        }
    }

    fn left(&self) -> Left {
        let state = self.held.get(&keys::STATE).map(|(_, state)| state.clone());
        let is_piece = |(_, (kind, _)): &(&u64, &(Kind, Vec<u8>))| *kind == Kind::STATE_PIECE;
        let pieces = self.held.iter().filter(is_piece);
        Left::of(state, pieces.map(|(key, (_, piece))| (keys::piece_of(*key).unwrap(), piece.clone())).collect())
    }

    /// What a daemon of an earlier release reads.
    fn read_by_an_earlier_release(&self) -> Vec<u8> {
        let states: Vec<_> = self.held.values().filter(|(kind, _)| *kind == Kind::STATE).collect();
        let [(_, state)] = states.as_slice() else { panic!("it takes the last state for the whole") };
        state.clone()
    }
}

fn brief(most: usize) -> Vec<u8> {
    // A field of a state.
    let text = vec![b'x'; most - 64];
    Whole { generation: 77, pieces: Vec::new(), bytes: u64::try_from(text.len()).unwrap(), checksum: 5 }.encode_to_vec()
}

/// A state of so many records that look alike.
fn state(records: u64, changed: u64) -> Vec<u8> {
    let number = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = |at| format!("server {at} {} of {}\n", number(at), if at == changed { 1 } else { 2 });
    (0..records).flat_map(|at| text(at).into_bytes()).collect()
}

fn keep(keeping: &mut Keeping, shelf: &mut Shelf, state: &[u8]) {
    keeping.keep(state, brief).into_iter().for_each(|step| shelf.take(step));
}

/// The holder's word on what was sent.
fn settle(keeping: &mut Keeping, shelf: &mut Shelf) {
    for key in std::mem::take(&mut shelf.refused) {
        assert!(keeping.refused(key, "no room"));
    }
    if let Some(number) = shelf.barrier.take() {
        keeping.passed(number).into_iter().for_each(|step| shelf.take(step));
    }
}

#[test]
fn a_state_of_any_size_is_found_as_it_was_left_and_nothing_else_stays() {
    let (mut keeping, mut shelf) = (Keeping::default(), Shelf::default());
    for records in [0, 1, 100, 3000, 40_000, 2999, 1, 3000, 0] {
        let state = state(records, 1);
        keep(&mut keeping, &mut shelf, &state);
        settle(&mut keeping, &mut shelf);
        assert_eq!(keeping.readiness(), Readiness::Ready);
        let left = shelf.left();
        assert_eq!((left.state.as_deref(), left.remark), (Some(state.as_slice()), None));
        let pieces = if state.len() > MAX_STATE_BYTES { pieces::cut(&state).len() } else { 0 };
        assert_eq!(shelf.held.len(), 1 + pieces);
        assert!(keeping.keep(&state, brief).is_empty(), "what is there is not sent again");
    }
}

#[test]
fn a_small_change_of_a_large_state_sends_a_small_part_of_it() {
    let (mut keeping, mut shelf) = (Keeping::default(), Shelf::default());
    keep(&mut keeping, &mut shelf, &state(40_000, 1));
    let all = std::mem::take(&mut shelf.sent);
    keep(&mut keeping, &mut shelf, &state(40_000, 20_000));
    assert!(all > 1 << 20 && shelf.sent < 5 * MAX_STATE_BYTES, "{} of {all}", shelf.sent);
}

#[test]
fn a_daemon_that_dies_after_any_step_leaves_the_state_before_or_this_one() {
    let states = [state(10, 1), state(3000, 1), state(3000, 7), state(4000, 2), state(10, 2), state(3000, 1)];
    let (mut keeping, mut shelf) = (Keeping::default(), Shelf::default());
    keep(&mut keeping, &mut shelf, &states[0]);
    for pair in states.windows(2) {
        let mut seen = Vec::new();
        let mut look = |shelf: &Shelf| {
            let left = shelf.left();
            assert_eq!(left.remark, None);
            let which = pair.iter().position(|state| Some(state) == left.state.as_ref()).expect("one of the two");
            seen.push(which);
            // A successor goes on from there, and its first state is kept as well.
            let (mut keeping, mut shelf) = (left.keeping, shelf.clone());
            let next = state(3500, 9);
            keep(&mut keeping, &mut shelf, &next);
            settle(&mut keeping, &mut shelf);
            assert_eq!(shelf.left().state, Some(next.clone()));
            assert_eq!(shelf.held.len(), 1 + pieces::cut(&next).len(), "nothing of the dead one stays");
        };
        look(&shelf);
        for step in keeping.keep(&pair[1], brief) {
            shelf.take(step);
            look(&shelf);
        }
        settle(&mut keeping, &mut shelf);
        look(&shelf);
        assert!(seen.is_sorted() && seen.first() == Some(&0) && seen.last() == Some(&1), "{seen:?}");
    }
}

#[test]
fn where_the_holder_refuses_a_piece_the_state_before_is_there_and_a_later_one_is_kept() {
    let (mut keeping, mut shelf) = (Keeping::default(), Shelf::default());
    let before = state(3000, 1);
    keep(&mut keeping, &mut shelf, &before);
    settle(&mut keeping, &mut shelf);
    shelf.refuses = (keeping.last_piece + 1..keeping.last_piece + 10).map(keys::piece).collect();
    keep(&mut keeping, &mut shelf, &state(3000, 7));
    assert_eq!(keeping.readiness(), Readiness::Asked);
    // The daemon has not heard of it yet, and goes on.
    keep(&mut keeping, &mut shelf, &state(3000, 8));
    assert_eq!(shelf.left().state.as_ref(), Some(&before));
    assert!(shelf.left().remark.is_some());
    settle(&mut keeping, &mut shelf);
    assert_eq!(keeping.readiness(), Readiness::Lacking("the holder refuses it: no room".to_owned()));
    assert!(keeping.trouble().is_some());

    shelf.refuses.clear();
    let after = state(3000, 8);
    keep(&mut keeping, &mut shelf, &after);
    assert!(keeping.trouble().is_some(), "it is not known yet");
    settle(&mut keeping, &mut shelf);
    assert_eq!((keeping.trouble(), keeping.readiness()), (None, Readiness::Ready));
    assert_eq!(shelf.left().state, Some(after.clone()));
    assert_eq!(shelf.held.len(), 1 + pieces::cut(&after).len());
    assert!(!keeping.refused(keys::LOG_FIFO, "no room"), "not of the state");
}

#[test]
fn a_state_that_is_too_large_is_not_sent_and_the_one_before_stays() {
    let (mut keeping, mut shelf) = (Keeping::default(), Shelf::default());
    let before = state(10, 1);
    keep(&mut keeping, &mut shelf, &before);
    assert_eq!(keeping.keep(&vec![7; pieces::most_bytes() + 1], brief), []);
    assert!(matches!(keeping.readiness(), Readiness::Lacking(why) if why.contains("the most that are kept")));
    assert_eq!(shelf.left().state.as_ref(), Some(&before));
    // The largest is kept, with the one before.
    let most = |byte| {
        let mut seed = byte;
        let next = || {
            seed = u64::wrapping_add(u64::wrapping_mul(seed, 6_364_136_223_846_793_005), 1_442_695_040_888_963_407);
            seed.to_le_bytes()[7]
        };
        std::iter::repeat_with(next).take(pieces::most_bytes()).collect::<Vec<u8>>()
    };
    for byte in [1, 2] {
        keep(&mut keeping, &mut shelf, &most(byte));
    }
    settle(&mut keeping, &mut shelf);
    assert_eq!((keeping.trouble(), shelf.left().state), (None, Some(most(2))));
}

#[test]
fn a_daemon_of_an_earlier_release_reads_the_brief_state_and_leaves_pieces_that_a_later_one_clears_away() {
    let (mut keeping, mut shelf) = (Keeping::default(), Shelf::default());
    keep(&mut keeping, &mut shelf, &state(3000, 1));
    let read = Whole::decode(shelf.read_by_an_earlier_release().as_slice()).unwrap();
    assert_eq!((read.generation, read.checksum), (77, 5), "the index is a field that it passes over");
    // It saves in its own way.
    let its = state(10, 3);
    shelf.take(Step::Hold { key: keys::STATE, kind: Kind::STATE, state: its.clone() });
    let mut left = shelf.left();
    assert_eq!((left.state.as_ref(), left.remark), (Some(&its), None));
    keep(&mut left.keeping, &mut shelf, &its);
    settle(&mut left.keeping, &mut shelf);
    assert_eq!(shelf.held.len(), 1);
}

#[test]
fn another_holder_is_given_everything() {
    let (mut keeping, mut shelf) = (Keeping::default(), Shelf::default());
    let state = state(3000, 1);
    keep(&mut keeping, &mut shelf, &state);
    keeping.begin_anew();
    let mut other = Shelf::default();
    keep(&mut keeping, &mut other, &state);
    assert_eq!(other.left().state, Some(state));
}
