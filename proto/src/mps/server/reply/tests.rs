//! Answers that are read as they were written, and packets that are none.

use super::*;
use proptest::prelude::*;

fn context(pid: u32) -> ClientContext {
    ClientContext { pid, context: 1, reserved: 0, device: DeviceUuid([3; 16]), id: 2 }
}

fn device(clients: Vec<ClientContext>) -> DeviceClients {
    let info = DeviceInfo { first: 0, second: 1, name: "NVIDIA H200".into() };
    DeviceClients { uuid: DeviceUuid([9; 16]), info, clients }
}

#[test]
fn answers_round_trip() {
    let record = DeviceRecord {
        ordinal: 0,
        bus: 0,
        device: 6,
        domain: 0,
        attributes: [0; 2],
        uuid: DeviceUuid([1; 16]),
        name: "NVIDIA H200".into(),
    };
    for (request, reply) in [
        (Request::Shutdown, Reply::ActiveWorkers(4)),
        (Request::Clients, Reply::Clients(vec![])),
        (Request::Clients, Reply::Clients(vec![693, 704])),
        (Request::DeviceClients, Reply::DeviceClients(vec![])),
        (Request::DeviceClients, Reply::DeviceClients(vec![device(vec![]), device(vec![context(1), context(2)])])),
        (Request::GetThreadPercentage, Reply::ThreadPercentage(40.0)),
        (Request::TerminateClient(1), Reply::Terminated(201)),
        (Request::Snapshot, Reply::Snapshot(vec![context(693), context(704)])),
        (Request::Status, Reply::Active(true)),
        (Request::GetPinnedLimit(crate::mps::device::DeviceKey::new("0").expect("short")), Reply::PinnedLimit(5)),
        (Request::QueryDevices, Reply::Devices(vec![record.clone(), record])),
    ] {
        let mut decoder = ReplyDecoder::new(&request).expect("it has an answer");
        let mut decoded = None;
        for packet in reply.packets() {
            assert_eq!(decoded, None, "no packet follows a whole answer");
            decoded = decoder.feed(&packet).expect("our own packets are sound");
        }
        assert_eq!(decoded, Some(reply));
    }
}

proptest! {
    #[test]
    fn no_packets_can_make_it_panic(
        which in 0usize..9,
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
    ) {
        let key = crate::mps::device::DeviceKey::new("0").expect("short");
        let request = [
            Request::Shutdown, Request::Clients, Request::DeviceClients, Request::GetThreadPercentage,
            Request::TerminateClient(1), Request::Snapshot, Request::Status, Request::GetPinnedLimit(key),
            Request::QueryDevices,
        ][which].clone();
        let mut decoder = ReplyDecoder::new(&request).expect("it has an answer");
        for packet in &packets {
            if !matches!(decoder.feed(packet), Ok(None)) {
                break;
            }
        }
    }
}
