//! What a handle says, and how often its memory is open.

use super::{CUipcMemHandle, Closed, Ipc, PAGE, Said};

const SAID: Said = Said { secret: [7; 16], block: 4, piece: 5, size: 3 * PAGE, offset: 512, length: 500 };

#[test]
fn a_handle_says_what_was_written_and_others_say_nothing() {
    assert_eq!(Said::read(&SAID.write()), Some(SAID));
    assert_eq!(Said::read(&CUipcMemHandle([3; 64])), None);
    let whole = Said { offset: 0, length: 3 * PAGE, ..SAID };
    assert_eq!(Said::read(&whole.write()), Some(whole));
    for wrong in [
        Said { size: 5, ..SAID },
        Said { size: 0, offset: 0, ..SAID },
        Said { offset: 3 * PAGE, ..SAID },
        Said { offset: u64::MAX, ..SAID },
        Said { length: 0, ..SAID },
        Said { length: 3 * PAGE, ..SAID },
    ] {
        assert_eq!(Said::read(&wrong.write()), None, "{wrong:?}");
    }
}

#[test]
fn what_is_opened_twice_is_mapped_once_and_goes_when_both_are_closed() {
    let mut ipc = Ipc::default();
    assert_eq!(ipc.again(&SAID, 0), None);
    assert!(ipc.note(&SAID, 0x1000, 0) && ipc.knows(&SAID));
    let beside = Said { block: 6, offset: 1024, length: 100, ..SAID };
    assert!(!ipc.knows(&beside), "its owner is to be asked");
    assert_eq!(ipc.again(&beside, 0), Some((0x1000, true)), "another block of the same slab");
    assert!(ipc.knows(&beside));
    assert!(!ipc.note(&SAID, 0x9000_0000, 0), "two threads at once");
    assert_eq!(ipc.again(&SAID, 1), Some((0x1000, false)), "another device");
    ipc.is_allowed(&SAID, 1);
    assert_eq!(ipc.again(&SAID, 1), Some((0x1000, true)));
    assert_eq!([0x900, 0x1000, 0x1464].map(|at| ipc.close(at)), [Closed::Unknown; 3], "no block lies there");
    assert_eq!([0x1200, 0x1400].map(|at| ipc.close(at)), [Closed::StillOpen; 2]);
    assert!(ipc.knows(&SAID) && !ipc.knows(&beside), "its owner is to be asked again");
    assert_eq!(ipc.close(0x1400), Closed::Unknown);
    assert_eq!([0x1200, 0x1200].map(|at| ipc.close(at)), [Closed::StillOpen, Closed::Last(0x1000, SAID.size)]);
    assert_eq!(ipc.close(0x1200), Closed::Unknown);
}

#[test]
fn what_is_open_is_the_block_and_has_a_number_of_its_own() {
    let mut ipc = Ipc::default();
    assert_eq!(ipc.around(0x1200), None);
    assert!(ipc.note(&SAID, 0x1000, 0));
    let beside = Said { block: 6, offset: 1024, length: 100, ..SAID };
    assert_eq!(ipc.again(&beside, 0), Some((0x1000, true)));
    let block = |address| ipc.around(address).flatten();
    let [first, second] = [0x1200, 0x1400].map(|at| block(at).expect("it is open"));
    assert_eq!([first.start, first.size, second.start, second.size], [0x1200, 500, 0x1400, 100]);
    assert!(first.number != second.number && block(0x13f3) == Some(first));
    assert_eq!([0xfff, 0x1000, 0x13f4, 0x1464].map(|at| ipc.around(at)), [None, Some(None), Some(None), Some(None)]);
    // Opened once more it is the same, and another one when it was closed in between.
    assert_eq!(ipc.again(&SAID, 0), Some((0x1000, true)));
    assert_eq!(ipc.around(0x1200), Some(Some(first)));
    assert_eq!([ipc.close(0x1400), ipc.unopen(&SAID)], [Closed::StillOpen; 2]);
    assert_eq!(ipc.again(&beside, 0), Some((0x1000, true)));
    assert!(ipc.around(0x1400).flatten().is_some_and(|third| third.number != second.number));
}
