//! What a long life costs in memory: faults upon faults through the core and the recorder, with every byte of the heap
//! counted.
//!
//! What is remembered of faults, events and clients lies in rings with a bound each. When the rings are full the heap
//! must not grow any more, and what they take together is promised to operators.
#![expect(unsafe_code, reason = "an allocator that counts")]

use crate::core::{
    Access, ConnectionId, Core, Effect, End, Evidence, ExitCause, Identity, Input, MemoryFault, NoReply, Peer, Pid,
    Place, PodNames, Policy, ProcessKey, RequestId, ServerEpoch, XidClass,
};
use crate::observe::recorder::Recorder;
use remps_proto::admin::defaults::Defaults;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

thread_local! {
    /// Bytes that this thread has in use of the heap; other tests run beside on theirs.
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

/// Counts for this thread, unless it is about to end.
fn count(change: impl FnOnce(usize) -> usize) {
    let _ = LIVE.try_with(|live| live.set(change(live.get())));
}

struct Counting;

// SAFETY: everything is the system's allocator's; the counter changes nothing about it and takes no memory itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|live| live.wrapping_add(layout.size()));
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(|live| live.wrapping_sub(layout.size()));
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Clients of each server that is lost; MPS has room for 60.
const CLIENTS: u32 = 9;
const UID: u32 = 1000;
/// Faults until every ring is full.
const WARM_UP: u32 = 400;
/// Faults after that.
const FAULTS: u32 = 400;
/// What all rings together may take when they are full, however long the daemon has lived by then.
const MOST_BYTES: usize = 1 << 20;
/// What the heap may grow by after the warm-up, as lines of different lengths come and go.
const SLACK: usize = 32 << 10;

/// A command line and a cgroup as long as real ones get.
fn identity(process: ProcessKey) -> Arc<Identity> {
    let pod = "kubepods-burstable-pod12345678_1234_1234_1234_123456789abc";
    Arc::new(Identity {
        elsewhere: None,
        start_time: process.start_time,
        cgroup: format!(
            "/kubepods.slice/kubepods-burstable.slice/{pod}.slice/cri-containerd-{:064x}.scope",
            process.pid
        ),
        container: Some(format!("{:064x}", process.pid)),
        pod: Some("12345678-1234-1234-1234-123456789abc".to_owned()),
        names: Some(Box::new(PodNames {
            namespace: "research".to_owned(),
            pod_name: format!("train-{:040x}", process.pid),
            container_name: "worker".to_owned(),
        })),
        label: None,
        visible: None,
        threads: None,
        command: format!("/usr/bin/python3 -m worker --number {} {}", process.pid, "--option=value ".repeat(14)),
        program: "/usr/bin/python3".to_owned(),
        place: Place::default(),
        awaits_more: false,
    })
}

/// The core and the recorder, and what a driver does between them.
struct Daemon {
    core: Core,
    recorder: Recorder,
    now: Duration,
    next: u64,
    servers: BTreeMap<ServerEpoch, Pid>,
    clients: Vec<ProcessKey>,
    starting: Vec<ServerEpoch>,
    /// What the servers were asked, which these do not answer.
    asked: Vec<(ServerEpoch, RequestId)>,
}

impl Daemon {
    fn new(log_directory: &std::path::Path) -> Self {
        Self {
            core: Core::new(Policy::default(), Defaults::default()),
            recorder: Recorder::new(Some((log_directory, 1 << 20)), false),
            now: Duration::ZERO,
            next: 1,
            servers: BTreeMap::new(),
            clients: Vec::new(),
            starting: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn feed(&mut self, input: Input) {
        self.now += Duration::from_micros(100);
        for effect in self.core.handle(self.now, input) {
            if let Effect::Record(event) = &effect {
                drop(self.recorder.record(event, SystemTime::now()));
            } else if let Effect::SpawnServer { server, .. } = effect {
                self.starting.push(server);
            } else if let Effect::Ask { server, id, .. } = effect {
                self.asked.push((server, id));
            }
        }
    }

    /// Servers that are asked for come up.
    fn start_servers(&mut self) {
        for server in std::mem::take(&mut self.starting) {
            let pid = u32::try_from(self.number()).expect("a small number");
            self.feed(Input::ServerSpawned { server, pid });
            let connection = ConnectionId(self.number());
            self.feed(Input::ServerHello { connection, peer: Peer { pid, uid: UID, gid: UID } });
            self.servers.insert(server, pid);
        }
    }

    fn arrive(&mut self) {
        let number = self.number();
        let process = ProcessKey { pid: u32::try_from(number).expect("a small number"), start_time: number * 10 };
        let (peer, identity) = (Peer { pid: process.pid, uid: UID, gid: UID }, identity(process));
        // One connection for itself, and one for its context.
        for _ in 0..2 {
            let connection = ConnectionId(self.number());
            self.feed(Input::ClientArrived { connection, peer, identity: identity.clone(), entrance: None });
            self.start_servers();
            self.feed(Input::ClientDone { connection, status: Some(0) });
        }
        self.feed(Input::CopiesHeld { process, descriptors: 2 });
        self.feed(Input::Tracked { process, tracked: true });
        self.clients.push(process);
    }

    /// Clients come, one does wrong, everybody says so, all of them and their server end.
    fn fault(&mut self) {
        (0..CLIENTS).for_each(|_| self.arrive());
        let lost: Vec<(ServerEpoch, Pid)> = self.servers.iter().map(|(epoch, pid)| (*epoch, *pid)).collect();
        let culprit = self.clients[3];
        let gpu = Some("GPU-5e90f0d2-1111-2222-3333-444455556666".to_owned());
        let fault = MemoryFault { address: self.next, access: Access::Write, kind: "invalid PTE".to_owned(), gpu };
        self.feed(Input::Evidence(Evidence::UvmEvent { process: culprit, fault, is_of_own_server: true }));
        for (_, server) in &lost {
            let text =
                "MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ 0x0_00000000. Fault is of type FAULT_PDE";
            let (bus, text) = ("0000:3b:00".to_owned(), text.to_owned());
            let (number, class, pid, channel) = (31, XidClass::Application, Some(*server), Some(8));
            self.feed(Input::Evidence(Evidence::Xid { number, class, bus, instance: None, pid, channel, text }));
            let text = "Client {PID: 123456, Context ID: 1} encountered a fatal GPU error.".to_owned();
            for named in self.clients.clone() {
                let named = Some(named.pid);
                self.feed(Input::Evidence(Evidence::ServerLog {
                    server: *server,
                    named,
                    blames: false,
                    text: text.clone(),
                }));
            }
        }
        self.start_servers();
        for client in std::mem::take(&mut self.clients) {
            self.feed(Input::ProcessGone { process: client, end: End::Signaled(6) });
        }
        for (server, _) in lost {
            self.servers.remove(&server);
            let (unanswered, others) = self.asked.drain(..).partition(|(of, _)| *of == server);
            self.asked = others;
            for (_, request) in Vec::<(ServerEpoch, RequestId)>::from_iter(unanswered) {
                self.feed(Input::Replied { request, reply: Err(NoReply::Lost) });
            }
            self.feed(Input::ServerLinkLost { server, reason: "it closed".to_owned() });
            self.feed(Input::ServerExited { server, cause: ExitCause::Exited(0) });
        }
        self.now += Duration::from_secs(2);
        self.feed(Input::Tick);
    }
}

#[test]
fn when_its_rings_are_full_the_daemons_heap_grows_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let before = LIVE.get();
    let mut daemon = Daemon::new(directory.path());
    let used = || LIVE.get().wrapping_sub(before);
    let mut most = 0;
    for _ in 0..WARM_UP {
        daemon.fault();
        most = most.max(used());
    }
    assert_eq!(daemon.core.servers().count(), 1, "the lost ones are gone");
    let before = most;
    for _ in 0..FAULTS {
        daemon.fault();
        most = most.max(used());
    }
    let _ = writeln!(std::io::stderr(), "{before} bytes at most in {WARM_UP} faults, {most} in {FAULTS} more");
    assert!(most <= before + SLACK, "{most} bytes at most in {FAULTS} faults more, {before} before");
    assert!(most <= MOST_BYTES, "{most} bytes");
}
