//! What a handle says, and how often its memory is open.

use super::{CUipcMemHandle, Closed, Ipc, Opened, PAGE, Said};

const SAID: Said = Said { secret: [7; 16], piece: 5, size: 3 * PAGE, offset: 512 };

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
    assert_eq!(ipc.again(&SAID), None);
    assert_eq!(ipc.note(&SAID, Opened { base: 0x1000, size: SAID.size, count: 1 }), None);
    assert_eq!(ipc.again(&Said { offset: 1024, ..SAID }), Some(0x1000), "another block of the same slab");
    let other = Opened { base: 0x9000_0000, size: SAID.size, count: 1 };
    assert_eq!(ipc.note(&SAID, other), Some(0x1000), "two threads at once");
    assert_eq!(ipc.close(0x900), Closed::Unknown);
    assert_eq!(
        [0x1200, 0x1400, 0x1000].map(|at| ipc.close(at)),
        [Closed::StillOpen, Closed::StillOpen, Closed::Last(0x1000, SAID.size),]
    );
    assert_eq!(ipc.close(0x1200), Closed::Unknown);
}
