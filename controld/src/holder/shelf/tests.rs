//! Descriptors and notes on the shelf, held, given back and closed.

use super::*;
use crate::io::ends::{pipe, wait_for_hangup};
use remps_proto::holder::{ModeNote, ModeStage};

#[test]
fn holding_again_closes_what_was_there() {
    let mut shelf = Shelf::default();
    let (reader, writer) = pipe();
    shelf.hold(7, Kind::CLIENT_END, vec![1], vec![reader]).unwrap();
    shelf.hold(7, Kind::STATE, vec![2, 3], Vec::new()).unwrap();
    wait_for_hangup(&writer);
    assert_eq!(shelf.get(7).unwrap().state, [2, 3]);
    assert_eq!(shelf.state_bytes, 2);
    shelf.release(7);
    assert!(shelf.is_empty() && shelf.state_bytes == 0);
}

#[test]
fn a_dead_clients_copies_are_kept_for_their_time_and_closed_elsewhere() {
    let mut shelf = Shelf::default();
    let note = |until_ms| CopiesNote { until_ms, hold_ms: 5000, ..CopiesNote::default() }.encode_to_vec();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let pidfd = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    shelf.hold(1, Kind::COPIES, note(0), vec![pidfd(), writer.into()]).unwrap();
    shelf.hold(2, Kind::COPIES, note(u64::MAX), vec![pidfd()]).unwrap();
    assert_eq!(shelf.living_clients().map(|(key, _)| key).collect::<Vec<_>>(), [1]);
    assert_eq!(shelf.copies_end(), None);
    shelf.client_ended(1, Duration::from_secs(100));
    assert_eq!(shelf.living_clients().count(), 0);
    assert_eq!(shelf.copies_end(), Some(Duration::from_secs(105)));
    assert_eq!(CopiesNote::decode(shelf.get(1).unwrap().state.as_slice()).unwrap().until_ms, 105_000);
    shelf.expire_copies(Duration::from_secs(104));
    assert!(shelf.get(1).is_some());
    shelf.expire_copies(Duration::from_secs(105));
    assert!(shelf.get(1).is_none() && shelf.get(2).is_some());
    // By another thread; this ends when it is done.
    assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    shelf.update(2, note(7)).unwrap();
    shelf.expire_copies(Duration::from_millis(7));
    assert!(shelf.is_empty());
}

#[test]
fn what_is_noted_of_compute_modes_is_taken_once() {
    let mut shelf = Shelf::default();
    let gpu = ModeNote { uuid: "GPU-1".into(), original: 3, set: 0, stage: ModeStage::Set.into() };
    let note = ModesNote { gpus: vec![gpu], ..ModesNote::default() };
    shelf.hold(1, Kind::STATE, vec![7], Vec::new()).unwrap();
    shelf.hold(6, Kind::COMPUTE_MODES, note.encode_to_vec(), Vec::new()).unwrap();
    assert_eq!(shelf.take_modes(), Some(note));
    assert_eq!((shelf.take_modes(), shelf.get(1).is_some()), (None, true));
}

#[test]
fn descriptors_must_fit_their_kind() {
    let mut shelf = Shelf::default();
    let wrong = Err(Failure::WRONG_DESCRIPTORS);
    assert_eq!(shelf.hold(1, Kind::LISTENER_PUBLIC, Vec::new(), vec![pipe().0]), wrong);
    assert_eq!(shelf.hold(1, Kind::SERVER_CONNECTION, Vec::new(), Vec::new()), wrong);
    assert_eq!(shelf.hold(1, Kind::LOG_BACKLOG, Vec::new(), Vec::new()), wrong);
    let (reader, writer) = pipe();
    assert_eq!(shelf.hold(1, Kind::LOG_FIFO, Vec::new(), vec![reader, writer]), wrong);
    assert!(shelf.is_empty());
    assert_eq!(shelf.hold(1, Kind(77), Vec::new(), Vec::from(<[OwnedFd; 2]>::from(pipe()))), Ok(()));
}

#[test]
fn a_full_shelf_refuses_new_keys_and_serves_old_ones() {
    let mut shelf = Shelf::default();
    for key in 0..u64::try_from(MAX_ENTRIES).unwrap() {
        shelf.hold(key, Kind::STATE, Vec::new(), Vec::new()).unwrap();
    }
    assert_eq!(shelf.hold(u64::MAX, Kind::STATE, Vec::new(), Vec::new()), Err(Failure::TOO_MANY));
    assert_eq!(shelf.hold(u64::MAX, Kind::STATE_PIECE, Vec::new(), Vec::new()), Ok(()), "there is room for a state");
    shelf.release(u64::MAX);
    assert_eq!(shelf.hold(5, Kind::STATE, vec![9], Vec::new()), Ok(()));
    assert_eq!(shelf.update(5, vec![8; 100]), Ok(()));
    assert_eq!(shelf.update(u64::MAX, vec![8; 100]), Ok(()));
    assert_eq!(shelf.first_from(5).unwrap().1.state.len(), 100);
}

#[test]
fn the_sum_of_all_states_is_limited() {
    let mut shelf = Shelf::default();
    let large = 32 * 1024;
    let many = u64::try_from(MAX_TOTAL_STATE_BYTES / large).unwrap();
    for key in 0..many {
        shelf.hold(key, Kind::STATE, vec![0; large], Vec::new()).unwrap();
    }
    assert_eq!(shelf.hold(many, Kind::STATE, vec![0], Vec::new()), Err(Failure::TOO_MANY));
    assert_eq!(shelf.update(0, vec![0; large + 1]), Err(Failure::TOO_MANY));
    assert_eq!(shelf.update(0, vec![0; large - 1]), Ok(()));
    assert_eq!(shelf.hold(many, Kind::STATE, vec![0], Vec::new()), Ok(()));
}
