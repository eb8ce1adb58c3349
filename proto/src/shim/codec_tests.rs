use proptest::prelude::*;

use super::*;
use crate::shim::message::Range;
use crate::shim::{MAX_COMMIT_BYTES, MAX_GPU_BYTES, MAX_RANGES, MOST_STEPS, Way};

fn region() -> Region {
    Region {
        key: 0x7000_0000_0001,
        name: "llm/weights".into(),
        gpu: "GPU-5e90f0d2-1111-2222-3333-444455556666".into(),
        bytes: 2 << 20,
        address: 0x7f00_0000_0000,
        handle_type: 1,
        flags: 5,
        owner: 0,
        left_ms: 0,
    }
}

fn any_word(most: usize) -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[!-~]{1,40}", Just("n".repeat(most))]
}

fn any_region() -> impl Strategy<Value = Region> {
    let numbers = (any::<u64>(), 1..=u64::MAX, any::<u64>(), any::<u64>(), any::<u64>());
    (any_word(MAX_NAME_BYTES), any_word(MAX_GPU_BYTES), numbers, any::<u32>(), any::<u32>()).prop_map(
        |(name, gpu, (key, bytes, address, flags, left_ms), handle_type, owner)| Region {
            key,
            name,
            gpu,
            bytes,
            address,
            handle_type,
            flags,
            owner,
            left_ms,
        },
    )
}

fn any_commit() -> impl Strategy<Value = Commit> {
    let range = ("[!-~]{1,64}", 0..u64::MAX / 2, 0..u64::MAX / 2, any::<u64>())
        .prop_map(|(label, address, bytes, flags)| Range { label, address, bytes, flags });
    let ranges = prop_oneof![prop::collection::vec(range.clone(), 0..4), prop::collection::vec(range, MAX_RANGES)];
    let data = prop_oneof![prop::collection::vec(any::<u8>(), 0..9), Just(vec![0xff; MAX_COMMIT_BYTES])];
    (any::<u64>(), data, ranges).prop_map(|(generation, data, ranges)| Commit { generation, data, ranges })
}

fn any_recovered() -> impl Strategy<Value = Recovered> {
    let times = || prop::collection::vec(0..=1_000_000_u64, 0..=MOST_STEPS);
    (1..=u64::MAX, any::<u32>(), any::<u32>(), 0..=1_000_000_u64, times(), times()).prop_map(
        |(number, way, error, more_us, steps_us, switch_us)| {
            let most: u64 = steps_us.iter().sum::<u64>().max(switch_us.iter().sum());
            Recovered { number, way: Way(way), error, total_us: most + more_us, steps_us, switch_us }
        },
    )
}

fn any_ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        (any::<u32>(), any::<u64>())
            .prop_map(|(version, bits)| Ask::Hello { version, capabilities: Capabilities(bits) }),
        any_region().prop_map(Ask::Escrow),
        any::<u64>().prop_map(|key| Ask::Release { key }),
        any_word(MAX_NAME_BYTES).prop_map(|name| Ask::List { name }),
        "[!-~]{1,128}".prop_map(|name| Ask::Adopt { name }),
        "[!-~]{1,128}".prop_map(|name| Ask::Discard { name }),
        (any::<u32>(), any::<bool>(), any::<u64>()).prop_map(|(error, own_work, server)| Ask::Report {
            error,
            own_work,
            server
        }),
        ("[!-~]{1,128}", any_commit()).prop_map(|(name, commit)| Ask::Commit { name, commit }),
        ("[!-~]{1,128}", any::<u64>(), any::<bool>(), any::<u32>(), prop::option::of(any::<u64>())).prop_map(
            |(name, wait_ms, even_if_nobody, least, offer)| Ask::Succeed {
                name,
                wait_ms,
                even_if_nobody,
                least: Rest(least),
                offer
            }
        ),
        any::<u32>().prop_map(|pid| Ask::Fate { pid }),
        Just(Ask::HandBack),
        Just(Ask::Where),
        (any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(server, state, wait_ms)| Ask::Watch {
            server,
            state: ServerState(state),
            wait_ms
        }),
        any::<u64>().prop_map(|server| Ask::Subscribe { server }),
        Just(Ask::Renewed),
        any::<bool>().prop_map(|more| Ask::Follow { more }),
        any::<u64>().prop_map(|wait_ms| Ask::Spare { wait_ms }),
        (1..=u64::MAX, any::<bool>(), any::<u64>(), any::<u32>(), any::<u64>()).prop_map(
            |(token, is_ready, behind, threads, host_bytes)| Ask::SpareStands {
                token,
                is_ready,
                behind,
                takes: SpareTakes { threads, host_bytes }
            }
        ),
        (1..=u64::MAX).prop_map(|token| Ask::SpareLives { token }),
        (1..=u64::MAX).prop_map(|token| Ask::SpareGone { token }),
        any_recovered().prop_map(Ask::Recovered),
        (1..=u64::MAX, any::<u32>(), "[ -~]{1,160}", any::<bool>()).prop_map(|(number, error, reason, is_final)| {
            Ask::Unrecovered(Unrecovered { number, error, reason, is_final })
        }),
        any::<u32>().prop_map(|stage| Ask::Recovery { stage: RecoveryStage(stage) }),
    ]
}

fn any_answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        (any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>()).prop_map(
            |(version, bits, most_bytes, most_regions, ttl_ms)| Answer::Welcome(Welcome {
                version,
                capabilities: Capabilities(bits),
                most_bytes,
                most_regions,
                ttl_ms
            })
        ),
        any_region().prop_map(Answer::Region),
        any::<u32>().prop_map(|regions| Answer::Done { regions }),
        any::<u32>().prop_map(|reason| Answer::Failed(Failure(reason))),
        (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(server, state, part)| Answer::Epoch {
            server,
            state: ServerState(state),
            part: Part(part)
        }),
        (prop::option::of(any_commit()), any::<u32>(), any::<u64>(), any::<u32>()).prop_map(
            |(commit, predecessor, server, rest)| Answer::Inherited(Inherited {
                commit,
                predecessor,
                server,
                rest: Rest(rest)
            })
        ),
        (1..=u64::MAX).prop_map(|offer| Answer::Offered { offer }),
        (1..=u64::MAX, any::<u64>()).prop_map(|(token, server)| Answer::Spare { token, server }),
        (1..=u64::MAX).prop_map(|token| Answer::SpareVoid { token }),
    ]
}

proptest! {
    #[test]
    fn a_request_comes_back_as_it_went(request in any::<u64>(), ask in any_ask()) {
        let message = FromShim { request, ask };
        let packet = message.clone().encode().unwrap();
        prop_assert!(!packet.is_empty(), "an empty packet would look like the end of the connection");
        prop_assert_eq!(FromShim::decode(&packet).unwrap(), message);
    }

    #[test]
    fn an_answer_comes_back_as_it_went(request in any::<u64>(), answer in any_answer()) {
        let message = ToShim { request, answer };
        let packet = message.clone().encode().unwrap();
        prop_assert!(!packet.is_empty(), "an empty packet would look like the end of the connection");
        prop_assert_eq!(ToShim::decode(&packet).unwrap(), message);
    }

    #[test]
    fn a_damaged_message_gives_a_message_or_an_error(
        ask in any_ask(),
        at in any::<prop::sample::Index>(),
        change in 1..=u8::MAX,
    ) {
        let mut packet = FromShim { request: 1, ask }.encode().unwrap();
        let at = at.index(packet.len());
        packet[at] ^= change;
        if let Ok(message) = FromShim::decode(&packet) {
            prop_assert_eq!(FromShim::decode(&message.clone().encode().unwrap()).unwrap(), message);
        }
        let _ = FromShim::decode(&packet[..at]);
        let _ = ToShim::decode(&packet);
    }
}

#[test]
fn a_message_has_these_bytes() {
    let bytes = FromShim { request: 3, ask: Ask::Release { key: 7 } }.encode().unwrap();
    assert_eq!(bytes, [0x08, 3, 0x22, 2, 0x08, 7]);
    let bytes = ToShim { request: 3, answer: Answer::Failed(Failure::QUOTA) }.encode().unwrap();
    assert_eq!(bytes, [0x08, 3, 0x2a, 2, 0x08, 7]);
    let bytes = FromShim { request: 3, ask: Ask::Subscribe { server: 7 } }.encode().unwrap();
    assert_eq!(bytes, [0x08, 3, 0x8a, 1, 2, 0x08, 7]);
    let news = Answer::Epoch { server: 7, state: ServerState::TAINTED, part: Part::BYSTANDER };
    let bytes = ToShim { request: 0, answer: news }.encode().unwrap();
    assert_eq!(bytes, [0x32, 6, 0x08, 7, 0x10, 2, 0x18, 1]);
}

#[test]
fn how_far_a_recovery_is_has_these_bytes() {
    let bytes = FromShim { request: 3, ask: Ask::Recovery { stage: RecoveryStage::BACK } }.encode().unwrap();
    assert_eq!(bytes, [0x08, 3, 0xba, 1, 2, 0x08, 2]);
    let later = FromShim { request: 3, ask: Ask::Recovery { stage: RecoveryStage(99) } };
    assert_eq!(FromShim::decode(&later.clone().encode().unwrap()), Ok(later), "one of a later library");
}

#[test]
fn a_message_about_a_spare_has_these_bytes() {
    let bytes = |ask| FromShim { request: 3, ask }.encode().unwrap();
    assert_eq!(bytes(Ask::Spare { wait_ms: 7 }), [0x08, 3, 0x92, 1, 2, 0x08, 7]);
    let stands = |takes| Ask::SpareStands { token: 5, is_ready: true, behind: 7, takes };
    // An earlier library's, which has counted nothing.
    assert_eq!(bytes(stands(SpareTakes::default())), [0x08, 3, 0x9a, 1, 6, 0x08, 5, 0x10, 1, 0x18, 7]);
    let takes = SpareTakes { threads: 4, host_bytes: 9 };
    assert_eq!(bytes(stands(takes)), [0x08, 3, 0x9a, 1, 10, 0x08, 5, 0x10, 1, 0x18, 7, 0x20, 4, 0x28, 9]);
    assert_eq!(bytes(Ask::SpareLives { token: 5 }), [0x08, 3, 0xa2, 1, 2, 0x08, 5]);
    assert_eq!(bytes(Ask::SpareGone { token: 5 }), [0x08, 3, 0xaa, 1, 2, 0x08, 5]);
    let bytes = |request, answer| ToShim { request, answer }.encode().unwrap();
    assert_eq!(bytes(3, Answer::Spare { token: 5, server: 7 }), [0x08, 3, 0x42, 4, 0x08, 5, 0x10, 7]);
    assert_eq!(bytes(0, Answer::SpareVoid { token: 5 }), [0x4a, 2, 0x08, 5]);
    assert_eq!(bytes(3, Answer::Failed(Failure::NO_SPARE_SERVER)), [0x08, 3, 0x2a, 2, 0x08, 19]);
}

#[test]
fn no_spare_is_without_a_token() {
    for ask in [
        Ask::SpareStands { token: 0, is_ready: true, behind: 0, takes: SpareTakes::default() },
        Ask::SpareLives { token: 0 },
        Ask::SpareGone { token: 0 },
    ] {
        assert!(matches!(FromShim { request: 1, ask }.encode(), Err(DecodeError::Value(_))));
    }
    for content in [
        Asked::SpareStands(wire::SpareStands { token: 0, is_ready: true, ..wire::SpareStands::default() }),
        Asked::SpareLives(wire::SpareLives { token: 0 }),
        Asked::SpareGone(wire::SpareGone { token: 0 }),
    ] {
        let packet = wire::FromShim { request: 1, content: Some(content) }.encode_to_vec();
        assert!(matches!(FromShim::decode(&packet), Err(DecodeError::Value(_))));
    }
    for answer in [Answer::Spare { token: 0, server: 7 }, Answer::SpareVoid { token: 0 }] {
        assert!(matches!(ToShim { request: 1, answer }.encode(), Err(DecodeError::Value(_))));
    }
    for content in [
        Answered::SpareGranted(wire::SpareGranted { token: 0, server: 7 }),
        Answered::SpareVoid(wire::SpareVoid { token: 0 }),
    ] {
        let packet = wire::ToShim { request: 1, content: Some(content) }.encode_to_vec();
        assert!(matches!(ToShim::decode(&packet), Err(DecodeError::Value(_))));
    }
}

#[test]
fn what_is_too_large_or_odd_is_refused_on_both_sides() {
    let escrow = |region| FromShim { request: 1, ask: Ask::Escrow(region) };
    let too_long = escrow(Region { name: "n".repeat(MAX_NAME_BYTES + 1), ..region() });
    assert!(matches!(too_long.encode(), Err(DecodeError::TooLarge { what: "name", .. })));
    for odd in ["two words", "new\nline", "\u{1b}[31m", "ä"] {
        let named = Region { name: odd.into(), ..region() };
        assert!(matches!(escrow(named).encode(), Err(DecodeError::Value(_))), "{odd:?}");
        let raw = wire::FromShim { request: 1, content: Some(Asked::Adopt(wire::Adopt { name: odd.into() })) };
        assert!(matches!(FromShim::decode(&raw.encode_to_vec()), Err(DecodeError::Value(_))), "{odd:?}");
    }
    assert!(matches!(escrow(Region { bytes: 0, ..region() }).encode(), Err(DecodeError::Value(_))));
    let nameless = FromShim { request: 1, ask: Ask::Adopt { name: String::new() } };
    assert!(matches!(nameless.encode(), Err(DecodeError::Value(_))));
    let empty = wire::FromShim { request: 1, content: Some(Asked::Escrow(wire::Escrow { region: None })) };
    assert!(matches!(FromShim::decode(&empty.encode_to_vec()), Err(DecodeError::Value(_))));
    assert!(matches!(FromShim::decode(&[0; MAX_MESSAGE_BYTES + 1]), Err(DecodeError::TooLarge { .. })));
}

#[test]
fn a_request_of_a_later_version_still_has_its_number() {
    // Field 99 is nobody's.
    let packet = [0x08, 9, 0x9a, 0x06, 0];
    assert_eq!(FromShim::decode(&packet), Err(DecodeError::Unknown { request: 9 }));
}

#[test]
fn the_largest_message_is_within_the_limit() {
    let region = Region {
        key: u64::MAX,
        name: "n".repeat(MAX_NAME_BYTES),
        gpu: "g".repeat(MAX_GPU_BYTES),
        bytes: u64::MAX,
        address: u64::MAX,
        handle_type: u32::MAX,
        flags: u64::MAX,
        owner: u32::MAX,
        left_ms: u64::MAX,
    };
    let packet = FromShim { request: u64::MAX, ask: Ask::Escrow(region) }.encode().unwrap();
    assert!(packet.len() < MAX_MESSAGE_BYTES / 2, "{}", packet.len());
}

#[test]
fn capabilities_are_had_all_or_not() {
    let both = Capabilities::VAULT.and(Capabilities::REPORTS);
    assert!(both.has(Capabilities::VAULT) && both.has(both));
    assert!(!Capabilities::VAULT.has(both) && !both.has(Capabilities::EPOCHS));
}

#[test]
fn a_commit_beyond_its_limits_is_refused_by_both_sides() {
    let range = Range { label: "weights".into(), address: 1 << 40, bytes: 5, flags: 0 };
    let sound = Commit { generation: 7, data: vec![1; MAX_COMMIT_BYTES], ranges: vec![range.clone(); MAX_RANGES] };
    let wrong = [
        Commit { data: vec![1; MAX_COMMIT_BYTES + 1], ..sound.clone() },
        Commit { ranges: vec![range.clone(); MAX_RANGES + 1], ..sound.clone() },
        Commit { ranges: vec![Range { label: String::new(), ..range.clone() }], ..sound.clone() },
        Commit { ranges: vec![Range { label: "two words".into(), ..range.clone() }], ..sound.clone() },
        Commit { ranges: vec![Range { bytes: u64::MAX, ..range }], ..sound.clone() },
    ];
    let ask = |name: &str, commit| FromShim { request: 1, ask: Ask::Commit { name: name.into(), commit } }.encode();
    assert!(ask("llm", sound.clone()).is_ok());
    assert!(ask("", sound).is_err());
    for commit in wrong {
        let (generation, data, ranges) = commit.clone().write();
        let content = wire::Commit { name: "llm".into(), generation, data, ranges };
        let packet = wire::FromShim { request: 1, content: Some(Asked::Commit(content)) }.encode_to_vec();
        assert!(FromShim::decode(&packet).is_err(), "{commit:?}");
        assert!(ask("llm", commit).is_err());
    }
}
