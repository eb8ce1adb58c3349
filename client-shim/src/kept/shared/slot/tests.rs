use super::{COUNT, CUresult, ERROR, EXTERNAL, LOSSES, RECORDED, RELEASED, RING, Slot, State, WORDS, Wait, pages};

fn slot() -> Slot {
    let (_, page) = pages::new().expect("a page");
    let slot = Slot::of(page, 3).expect("there are more");
    slot.begin();
    slot
}

/// The GPU has come so far.
fn come(slot: Slot, number: u64) {
    slot.put(Slot::of_number(number), number);
}

fn recorded(slot: Slot) -> u64 {
    let number = slot.recorded() + 1;
    slot.settle(number);
    slot.publish(number);
    number
}

#[test]
fn a_page_has_no_place_outside() {
    let (_, page) = pages::new().expect("a page");
    let last = u64::try_from(COUNT).unwrap() - 1;
    assert!(Slot::of(page, last).unwrap().address(RING - 1) + 8 <= u64::try_from(page + pages::SIZE).unwrap());
    assert!([last + 1, u64::MAX].iter().all(|index| Slot::of(page, *index).is_none()));
}

#[test]
fn a_wait_is_over_when_its_record_has_come_in_whatever_order() {
    let slot = slot();
    assert_eq!(slot.wait([0; 16]).state(false), State::Come, "nothing was recorded");
    let (first, early) = (recorded(slot), slot.wait([0; 16]));
    let (second, late) = (recorded(slot), slot.wait([0; 16]));
    come(slot, second);
    assert_eq!([early, late].map(|wait| wait.state(false)), [State::Open, State::Come]);
    come(slot, first);
    assert_eq!([early, late].map(|wait| wait.state(false)), [State::Come; 2]);
    assert_eq!(slot.first_open(second), None);
}

#[test]
fn what_has_not_come_is_lost_from_the_first_on_and_nothing_else() {
    let slot = slot();
    let waits: Vec<_> = (0..11)
        .map(|_| {
            let number = recorded(slot);
            if number < 12 {
                come(slot, number);
            }
            slot.wait([0; 16])
        })
        .collect();
    let last = slot.recorded();
    assert_eq!((last, slot.first_open(last), slot.has_room(last + 1)), (18, Some(12), true));
    assert!(!slot.has_room(20) && slot.has_room(19));
    slot.lose(12, last, CUresult(719));
    slot.release(last);
    let found: Vec<_> = waits.iter().map(|wait| wait.state(false)).collect();
    assert_eq!(found[..4], [State::Come; 4]);
    assert!(found[4..].iter().all(|state| *state == State::Lost(CUresult(719))), "{found:?}");
    assert_eq!((slot.lost(last), slot.lost(11)), (Some(CUresult(719)), None));
    let next = recorded(slot);
    assert_eq!(
        (slot.lost(next), slot.first_open(next), slot.wait([0; 16]).state(false)),
        (None, Some(next), State::Open)
    );
    // Who has not looked for two losses knows of nothing that it was not lost.
    slot.lose(next, next, CUresult(700));
    assert_eq!(waits[0].state(false), State::Lost(CUresult(700)));
}

#[test]
fn of_an_owner_that_has_ended_nothing_more_comes() {
    let slot = slot();
    let (first, early) = (recorded(slot), slot.wait([0; 16]));
    recorded(slot);
    let late = slot.wait([0; 16]);
    come(slot, first);
    assert_eq!([early, late].map(|wait| wait.state(true)), [State::Come, State::Lost(EXTERNAL)]);
    [early, late].iter().for_each(Wait::release_for_good);
    assert_eq!([early, late].map(|wait| wait.state(false)), [State::Come, State::Lost(EXTERNAL)]);
}

#[test]
fn what_is_not_settled_is_not_believed_yet() {
    let slot = slot();
    let number = slot.recorded() + 1;
    slot.publish(number);
    come(slot, number);
    let wait = slot.wait([0; 16]);
    assert_eq!([false, true].map(|has_ended| wait.state(has_ended)), [State::Unsettled, State::Lost(EXTERNAL)]);
    slot.settle(number);
    assert_eq!(wait.state(true), State::Come);
}

#[test]
fn a_stream_is_released_whatever_another_process_has_written_there() {
    let slot = slot();
    for number in [RING, 1 << 61, RELEASED - 1] {
        slot.put(RECORDED, number);
        let wait = slot.wait([0; 16]);
        for value in [0, number - 1, u64::MAX, 1 << 63, number | 1 << 63] {
            // What the page says of the last record or of losses is another thing by now.
            [(RECORDED, 3), (LOSSES, value)].into_iter().for_each(|(at, value)| slot.put(at, value));
            slot.put(Slot::of_number(number), value);
            wait.release_for_good();
            let there = slot.get(Slot::of_number(number));
            assert!(there.wrapping_sub(number).cast_signed() >= 0, "{number:#x}: {value:#x}: {there:#x}");
        }
    }
    slot.put(RECORDED, RELEASED);
    assert_eq!(slot.wait([0; 16]).state(false), State::Lost(EXTERNAL), "no stream is to wait for that");
}

#[test]
fn another_process_may_write_anything_there() {
    let slot = slot();
    for value in [0, 1, RING, u64::MAX, u64::MAX - 3, 1 << 62, 1 << 63] {
        (0..WORDS).for_each(|at| slot.put(at, value));
        let wait = slot.wait([0; 16]);
        let (_, _) = (wait.state(false), wait.state(true));
        let last = slot.recorded();
        let _open = slot.first_open(last.max(RING));
        slot.lose(3, 4, CUresult(719));
        slot.release(9);
        wait.release_for_good();
        slot.withdraw(9);
    }
    for wrong in [0, 1, 600, 719 << 32, u64::MAX] {
        slot.put(ERROR, wrong);
        assert_eq!(slot.error(), EXTERNAL);
    }
}
