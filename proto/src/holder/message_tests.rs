use proptest::prelude::*;

use super::*;

fn any_state() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..64), Just(vec![0xa5; MAX_STATE_BYTES]),]
}

fn any_request() -> impl Strategy<Value = ToHolder> {
    let paths = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..=32);
    prop_oneof![
        (any::<u64>(), any::<u32>(), any_state()).prop_map(|(key, kind, state)| ToHolder::Hold {
            key,
            kind: Kind(kind),
            state
        }),
        (any::<u64>(), any_state()).prop_map(|(key, state)| ToHolder::Update { key, state }),
        any::<u64>().prop_map(|key| ToHolder::Release { key }),
        (any::<u64>(), 0..=MAX_LOG_BUFFER_BYTES, paths, any::<bool>()).prop_map(
            |(successor_wait_ms, log_buffer_bytes, unlink, adds)| {
                ToHolder::Settings(Settings { successor_wait_ms, log_buffer_bytes, unlink, adds })
            }
        ),
        Just(ToHolder::Leave),
        any::<u64>().prop_map(|number| ToHolder::Barrier { number }),
    ]
}

fn any_news() -> impl Strategy<Value = FromHolder> {
    prop_oneof![
        (any::<u64>(), any::<u32>(), any_state(), any::<u32>(), any::<u64>()).prop_map(
            |(key, kind, state, listener, dropped_bytes)| FromHolder::Held(Held {
                key,
                kind: Kind(kind),
                state,
                listener: Kind(listener),
                dropped_bytes
            })
        ),
        (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
            |(version, pid, accept_pauses, malformed, abilities)| FromHolder::AttachDone(AttachDone {
                version,
                pid,
                accept_pauses,
                malformed,
                abilities
            })
        ),
        (any::<u64>(), any::<u32>()).prop_map(|(key, listener)| FromHolder::Accepted { key, listener: Kind(listener) }),
        any::<u32>().prop_map(|reason| FromHolder::Refused(Refusal(reason))),
        (any::<u64>(), any::<u32>()).prop_map(|(key, reason)| FromHolder::Failed { key, reason: Failure(reason) }),
        any::<u64>().prop_map(|number| FromHolder::Passed { number }),
    ]
}

proptest! {
    #[test]
    fn a_request_comes_back_as_it_went(request in any_request()) {
        let packet = request.clone().encode().unwrap();
        prop_assert!(!packet.is_empty(), "an empty packet would look like the end of the connection");
        prop_assert_eq!(ToHolder::decode(&packet).unwrap(), request);
    }

    #[test]
    fn news_come_back_as_they_went(news in any_news()) {
        let packet = news.clone().encode().unwrap();
        prop_assert!(!packet.is_empty(), "an empty packet would look like the end of the connection");
        prop_assert_eq!(FromHolder::decode(&packet).unwrap(), news);
    }

    #[test]
    fn any_bytes_give_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        // Whatever was read as a message can be written again and means the same.
        if let Ok(request) = ToHolder::decode(&bytes) {
            prop_assert_eq!(ToHolder::decode(&request.clone().encode().unwrap()).unwrap(), request);
        }
        if let Ok(news) = FromHolder::decode(&bytes) {
            prop_assert_eq!(FromHolder::decode(&news.clone().encode().unwrap()).unwrap(), news);
        }
    }

    #[test]
    fn a_damaged_message_gives_a_message_or_an_error(
        request in any_request(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut packet = request.encode().unwrap();
        let at = at.index(packet.len());
        packet[at] = byte;
        packet.truncate(cut.index(packet.len()) + 1);
        if let Ok(read) = ToHolder::decode(&packet) {
            prop_assert_eq!(ToHolder::decode(&read.clone().encode().unwrap()).unwrap(), read);
        }
    }
}

#[test]
fn what_exceeds_a_limit_is_refused_on_both_sides() {
    let state = vec![0; MAX_STATE_BYTES + 1];
    let too_large = DecodeError::TooLarge { what: "state", got: MAX_STATE_BYTES + 1, max: MAX_STATE_BYTES };
    let hold = ToHolder::Hold { key: 1, kind: Kind::STATE, state: state.clone() };
    assert_eq!(hold.encode(), Err(too_large.clone()));

    let request = Request::Hold(wire::Hold { key: 1, kind: Kind::STATE.0, state });
    let packet = wire::ToHolder { request: Some(request) }.encode_to_vec();
    assert_eq!(ToHolder::decode(&packet), Err(too_large));

    let paths = Settings { unlink: vec![Vec::new(); MAX_UNLINK_PATHS + 1], ..Settings::default() };
    assert!(matches!(ToHolder::Settings(paths).encode(), Err(DecodeError::TooLarge { .. })));
    let bytes = Settings { log_buffer_bytes: MAX_LOG_BUFFER_BYTES + 1, ..Settings::default() };
    assert!(matches!(ToHolder::Settings(bytes).encode(), Err(DecodeError::TooLarge { .. })));
    assert!(matches!(ToHolder::decode(&vec![0; MAX_MESSAGE_BYTES + 1]), Err(DecodeError::TooLarge { .. })));
}

#[test]
fn an_empty_packet_and_a_later_request_are_unknown() {
    assert_eq!(ToHolder::decode(b""), Err(DecodeError::Unknown));
    // Field 99, length-delimited, empty: a request that a later version may add.
    assert_eq!(ToHolder::decode(&[0x9a, 0x06, 0x00]), Err(DecodeError::Unknown));
    assert_eq!(FromHolder::decode(&[0x9a, 0x06, 0x00]), Err(DecodeError::Unknown));
}
