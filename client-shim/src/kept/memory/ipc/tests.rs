//! What a handle says, and how often its memory is open.

use super::{CUipcMemHandle, Closed, Ipc, PAGE, Said};

const SAID: Said = Said { secret: [7; 16], block: 4, piece: 5, size: 3 * PAGE, offset: 512 };

#[test]
fn a_handle_says_what_was_written_and_others_say_nothing() {
    assert_eq!(Said::read(&SAID.write()), Some(SAID));
    assert_eq!(Said::read(&CUipcMemHandle([3; 64])), None);
    for wrong in [Said { size: 5, ..SAID }, Said { offset: 3 * PAGE, ..SAID }, Said { size: 0, offset: 0, ..SAID }] {
        assert_eq!(Said::read(&wrong.write()), None, "{wrong:?}");
    }
}

#[test]
fn what_is_opened_twice_is_mapped_once_and_goes_when_both_are_closed() {
    let mut ipc = Ipc::default();
    assert_eq!(ipc.again(&SAID, 0), None);
    assert!(ipc.note(&SAID, 0x1000, 0) && ipc.knows(&SAID));
    let beside = Said { block: 6, offset: 1024, ..SAID };
    assert!(!ipc.knows(&beside), "its owner is to be asked");
    assert_eq!(ipc.again(&beside, 0), Some((0x1000, true)), "another block of the same slab");
    assert!(ipc.knows(&beside));
    assert!(!ipc.note(&SAID, 0x9000_0000, 0), "two threads at once");
    assert_eq!(ipc.again(&SAID, 1), Some((0x1000, false)), "another device");
    ipc.is_allowed(&SAID, 1);
    assert_eq!(ipc.again(&SAID, 1), Some((0x1000, true)));
    assert_eq!([0x1000, 0x1000].map(|at| ipc.close(at)), [Closed::StillOpen; 2]);
    assert_eq!(ipc.close(0x900), Closed::Unknown);
    assert_eq!([0x1200, 0x1000].map(|at| ipc.close(at)), [Closed::StillOpen, Closed::Last(0x1000, SAID.size)]);
    assert_eq!(ipc.close(0x1200), Closed::Unknown);
}
