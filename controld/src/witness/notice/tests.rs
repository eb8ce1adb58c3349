//! The reader against a stand-in for the device.

mod module;

use std::io::Write;
use std::task::Poll;
use std::time::Duration;

use remps_proto::notice::{AccessType, CLASS_GLOBAL, FaultType, NoticeType, Verdict};

use super::*;
use crate::core::{Evidence, Isolation, ProcessKey};
use module::{Device, of};

/// How long a test waits for what must come.
const DEADLINE: Duration = Duration::from_secs(120);
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.unwrap() });
}

/// Events until one that ends the wait, which is the last of them.
async fn until(notices: &mut Notices, last: impl Fn(&NoticeEvent) -> bool) -> Vec<NoticeEvent> {
    let mut all = Vec::new();
    loop {
        all.extend(notices.next().await);
        if all.iter().any(&last) {
            return all;
        }
    }
}

async fn opened(device: &Device) -> Notices {
    let mut notices = Notices::new(device.clone());
    assert!(matches!(notices.look(), Presence::Present(_)), "{:?}", notices.presence());
    until(&mut notices, |event| *event == NoticeEvent::SnapshotEnds).await;
    notices
}

fn own_key() -> ProcessKey {
    let pid = std::process::id();
    ProcessKey { pid, start_time: start_time(pid).unwrap() }
}

#[test]
fn the_state_comes_first_and_then_what_happens() {
    run(async {
        let device = Device::new();
        let own = own_key();
        device.tell(&[of(NoticeType::VASPACE_ADD, own.pid, 4)]);
        let mut notices = Notices::new(device.clone());
        notices.look();
        let events = until(&mut notices, |event| *event == NoticeEvent::SnapshotEnds).await;
        let [NoticeEvent::SnapshotBegins, NoticeEvent::VaSpaceAdded(client), NoticeEvent::SnapshotEnds] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((client.va_space, client.process), (4, Some(own)));

        let channel = Notice {
            runlist_id: 2,
            channel_id: 9,
            tsg_id: 5,
            ve_id: 1,
            flags: flag::SUBCONTEXT,
            instance_ptr: 0x1000,
            gpu_uuid: [7; 16],
            ..of(NoticeType::CHANNEL_ADD, own.pid, 4)
        };
        device.tell(&[channel]);
        let events = notices.next().await;
        let [NoticeEvent::ChannelAdded(client, name, facts)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(client.process, Some(own));
        assert_eq!(
            (name.gpu.as_str(), name.runlist, name.channel),
            ("GPU-07070707-0707-0707-0707-070707070707", Some(2), 9)
        );
        assert_eq!((facts.va_space, facts.tsg, facts.subcontext, facts.instance), (4, Some(5), Some(1), 0x1000));
        assert_eq!(notices.lost(), 0);
    });
}

#[test]
fn an_isolated_fault_is_evidence_against_its_own_process() {
    run(async {
        let device = Device::new();
        let own = own_key();
        device.tell(&[of(NoticeType::VASPACE_ADD, own.pid, 4)]);
        let mut notices = opened(&device).await;
        device.tell(&[Notice {
            address: 0xdead_0000,
            access_type: AccessType::WRITE,
            fault_type: FaultType::INVALID_PTE,
            verdict: Verdict::ISOLATED,
            fault_class: b'A',
            flags: flag::REPLAYABLE | flag::CONDEMNED,
            ve_id: 3,
            channel_id: 77,
            ..of(NoticeType::FATAL_FAULT, own.pid, 4)
        }]);
        let events = notices.next().await;
        let [NoticeEvent::Fault(fault)] = &events[..] else { panic!("{events:?}") };
        assert!(fault.client.is_condemned);
        assert_eq!((fault.subcontext, fault.class), (Some(3), 'A'));
        let Some(Evidence::Notice { process, fault, channel, isolation }) = events[0].evidence() else { panic!() };
        assert_eq!((process, channel, isolation), (own, None, Isolation::Isolated));
        assert_eq!((fault.address, fault.kind.as_str()), (0xdead_0000, "invalid PTE"));
    });
}

#[test]
fn an_error_that_is_nobodys_fault_is_evidence_against_nobody() {
    run(async {
        let device = Device::new();
        let mut notices = opened(&device).await;
        let global = Notice {
            fault_class: CLASS_GLOBAL,
            verdict: Verdict::CLASS,
            ..of(NoticeType::FATAL_FAULT, std::process::id(), 4)
        };
        let unseen = Notice { verdict: Verdict::ISOLATED, fault_class: b'A', ..of(NoticeType::FATAL_FAULT, 0, 5) };
        device.tell(&[global, unseen]);
        for event in notices.next().await {
            assert!(matches!(event, NoticeEvent::Fault(_)), "{event:?}");
            assert_eq!(event.evidence(), None);
        }
    });
}

#[test]
fn a_slow_reader_learns_exactly_how_much_it_lost_and_then_the_state() {
    run(async {
        let device = Device::new();
        let mut notices = opened(&device).await;
        // 20 records for a ring of 8: 12 are lost, and the address spaces among them are told by the snapshot.
        let burst: Vec<Notice> = (1..=20).map(|id| of(NoticeType::VASPACE_ADD, 0, id)).collect();
        device.tell(&burst);
        let events = until(&mut notices, |event| *event == NoticeEvent::SnapshotEnds).await;
        assert_eq!(events[0], NoticeEvent::Lost(12));
        let begin = events.iter().position(|event| *event == NoticeEvent::SnapshotBegins).unwrap();
        assert_eq!(begin, 9, "the eight that were left come before the snapshot");
        let state = events[begin..].iter().filter(|event| matches!(event, NoticeEvent::VaSpaceAdded(_)));
        assert_eq!(state.count(), 20);
        assert_eq!(notices.lost(), 12);

        device.tell(&[of(NoticeType::VASPACE_DEL, 0, 20)]);
        let events = notices.next().await;
        assert!(matches!(&events[..], [NoticeEvent::VaSpaceRemoved(client)] if client.va_space == 20), "{events:?}");
        assert_eq!(notices.lost(), 12, "the change of descriptors lost nothing");
    });
}

#[test]
fn a_gap_that_nothing_explains_is_a_loss_too() {
    run(async {
        let device = Device::new();
        let mut notices = opened(&device).await;
        device.with(|module| {
            (0..5).for_each(|id| module.push(of(NoticeType::VASPACE_ADD, 0, id)));
            module.readers[0].1 = 3;
            module.deliver();
        });
        let events = until(&mut notices, |event| *event == NoticeEvent::SnapshotEnds).await;
        assert_eq!(events[0], NoticeEvent::Lost(3));
        assert_eq!(notices.lost(), 3);
    });
}

#[test]
fn a_device_that_goes_away_is_told_once_and_found_again_when_asked() {
    run(async {
        let device = Device::new();
        let mut notices = opened(&device).await;
        device.with(|module| {
            module.readers.clear();
            module.error = Some(libc::ENOENT);
        });
        let events = notices.next().await;
        assert!(matches!(&events[..], [NoticeEvent::Gone(_)]), "{events:?}");
        assert!(matches!(notices.presence(), Presence::Failed(_)));
        {
            let mut next = std::pin::pin!(notices.next());
            let waits = std::future::poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await;
            assert!(waits, "nothing comes from a device that is not there");
        }
        assert_eq!(notices.look(), &Presence::Absent);
        assert_eq!(notices.policy().unwrap_err().raw_os_error(), Some(libc::ENODEV));

        device.with(|module| module.error = None);
        assert!(matches!(notices.look(), Presence::Present(_)));
        until(&mut notices, |event| *event == NoticeEvent::SnapshotEnds).await;
        notices.close();
        assert_eq!(notices.presence(), &Presence::Closed);
    });
}

#[test]
fn other_versions_and_other_files_are_told_apart() {
    run(async {
        let device = Device::new();
        for (version, expected) in [(0, Presence::Older(0)), (2, Presence::Newer(2))] {
            device.with(|module| module.version = version);
            assert_eq!(Notices::new(device.clone()).look(), &expected);
        }
        device.with(|module| module.error = Some(libc::EACCES));
        assert_eq!(Notices::new(device.clone()).look(), &Presence::Forbidden);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        assert_eq!(Notices::new(DeviceFile::new(&path)).look(), &Presence::Absent);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(Notices::new(DeviceFile::new(&path)).look(), &Presence::Foreign);
    });
}

#[test]
fn bytes_that_are_no_records_end_the_reading() {
    run(async {
        let device = Device::new();
        let mut notices = opened(&device).await;
        device.with(|module| module.readers[0].0.write_all(&[0x55; 300]).unwrap());
        let events = notices.next().await;
        assert!(matches!(&events[..], [NoticeEvent::Gone(_)]), "{events:?}");
    });
}

#[test]
fn a_policy_that_wakes_the_module_takes_the_state_anew() {
    run(async {
        let device = Device::new();
        device.with(|module| module.policy.mode = Mode::OFF);
        let mut notices = opened(&device).await;
        // Silent: the module was off.
        device.with(|module| module.alive.insert(1, 0));
        let policy = Policy { mode: Mode::ISOLATE, kill_ms: 10_000, ..notices.policy().unwrap() };
        notices.set_policy(&policy).unwrap();
        assert_eq!(device.with(|module| module.policy), policy);
        let events = notices.next().await;
        assert!(matches!(
            &events[..],
            [NoticeEvent::SnapshotBegins, NoticeEvent::VaSpaceAdded(client), NoticeEvent::SnapshotEnds] if client.va_space == 1
        ));
        notices.claim(7, 5000).unwrap();
        assert_eq!(device.with(|module| module.claims.clone()), [Claim { va_space_id: 7, kill_ms: 5000, reserved: 0 }]);
    });
}

#[test]
fn a_process_younger_than_its_record_is_another_one_with_its_pid() {
    let mut follower = Follower::default();
    let at = |time_ns| Notice { time_ns, ..of(NoticeType::VASPACE_ADD, 30, 1) };
    let process = |event: &NoticeEvent| {
        let NoticeEvent::VaSpaceAdded(client) = event else { panic!("{event:?}") };
        client.process
    };
    // Started 5 seconds after boot, told of at 6 seconds, and at 4.
    let events = follower.record(&at(6_000_000_000), |_| Some(500));
    assert_eq!(process(&events[0]), Some(ProcessKey { pid: 30, start_time: 500 }));
    let younger = Notice { va_space_id: 2, seq: 1, ..at(4_000_000_000) };
    let events = follower.record(&younger, |_| Some(500));
    assert_eq!(process(&events[0]), Some(ProcessKey { pid: 30, start_time: 0 }));
}

#[test]
fn a_dead_clients_zombie_is_named_by_what_was_known_of_it() {
    let mut follower = Follower::default();
    let nobody_asks = |_| panic!("a dead process's pid may be another's");
    follower.record(&Notice { seq: 0, ..of(NoticeType::VASPACE_ADD, 30, 1) }, |_| Some(500));
    follower.record(&Notice { seq: 1, ..of(NoticeType::VASPACE_DEL, 30, 1) }, nobody_asks);
    let zombie = Notice { seq: 2, fault_class: b'P', ..of(NoticeType::ZOMBIE_FAULT, 30, 1) };
    let events = follower.record(&zombie, nobody_asks);
    let [NoticeEvent::ZombieFault(fault)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(fault.client.process, Some(ProcessKey { pid: 30, start_time: 500 }));
    assert!(matches!(events[0].evidence(), Some(Evidence::ZombieFault { process: ProcessKey { pid: 30, .. }, .. })));
    assert_eq!(fault.isolation, Isolation::Passed { reason: "work of a dead client".to_owned() });
}

#[test]
fn a_fault_on_a_machine_that_was_never_tried_says_what_allows_it() {
    let mut follower = Follower::default();
    follower.record(&Notice { seq: 0, ..of(NoticeType::VASPACE_ADD, 30, 1) }, |_| Some(500));
    let fault = Notice { verdict: Verdict::UNTRIED, nv_status: 2 | 8, ..of(NoticeType::FATAL_FAULT, 30, 1) };
    let events = follower.record(&Notice { seq: 1, ..fault }, |_| Some(500));
    let [NoticeEvent::Fault(fault)] = &events[..] else { panic!("{events:?}") };
    let reason = "isolation was never tried with this GPU's page tables, MIG (uvm_mps_untested=10)".to_owned();
    assert_eq!(fault.isolation, Isolation::Passed { reason });
}
