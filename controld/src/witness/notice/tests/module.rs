//! A stand-in for the device: a ring, sockets that carry records, and requests.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use remps_proto::notice::control::{self, Claim, Info, Policy};
use remps_proto::notice::{AccessType, FaultType, Mode, Notice, NoticeType, Sink, UNKNOWN, Verdict, flag};

use crate::witness::notice::NoticeSource;

/// Records that the stand-in keeps.
const RING: u64 = 8;

pub(super) fn blank(kind: NoticeType) -> Notice {
    Notice {
        seq: 0,
        time_ns: u64::MAX,
        gpu_time_ns: 0,
        kind,
        count: 0,
        tgid: 0,
        tgid_init: 0,
        va_space_id: 0,
        gpu_uuid: [0; 16],
        address: 0,
        instance_ptr: 0,
        runlist_id: UNKNOWN,
        channel_id: UNKNOWN,
        tsg_id: UNKNOWN,
        ve_id: UNKNOWN,
        client_id: 0,
        gpc_id: 0,
        utlb_id: 0,
        mmu_engine_id: 0,
        fault_type: FaultType::INVALID_PDE,
        access_type: AccessType::READ,
        fault_class: 0,
        fatal_reason: 0,
        engine_type: 0,
        range_type: 0,
        verdict: Verdict::PASSED,
        sink: Sink::NONE,
        nv_status: 0,
        flags: 0,
    }
}

pub(super) fn of(kind: NoticeType, tgid: u32, va_space_id: u64) -> Notice {
    Notice { tgid, tgid_init: tgid, va_space_id, ..blank(kind) }
}

#[derive(Debug)]
pub(super) struct Module {
    /// What is alive, by address space.
    pub(super) alive: BTreeMap<u64, u32>,
    pub(super) ring: Vec<Notice>,
    pub(super) readers: Vec<(UnixStream, u64)>,
    pub(super) policy: Policy,
    pub(super) claims: Vec<Claim>,
    pub(super) version: u32,
    pub(super) error: Option<i32>,
}

impl Module {
    /// Writes a record, and keeps the state as the module would.
    pub(super) fn push(&mut self, mut notice: Notice) {
        notice.seq = self.ring.len() as u64;
        match notice.kind {
            NoticeType::VASPACE_ADD => drop(self.alive.insert(notice.va_space_id, notice.tgid)),
            NoticeType::VASPACE_DEL => drop(self.alive.remove(&notice.va_space_id)),
            _ => {}
        }
        self.ring.push(notice);
    }

    /// Gives every reader what it has not had, or how much of it is overwritten.
    pub(super) fn deliver(&mut self) {
        let head = self.ring.len() as u64;
        for (socket, next) in &mut self.readers {
            let lost = head.saturating_sub(*next).saturating_sub(RING);
            if lost > 0 {
                let count = u32::try_from(lost).unwrap();
                let overrun = Notice { seq: *next, count, ..blank(NoticeType::OVERRUN) };
                // A reader that has gone is no concern of the module's.
                let _ = socket.write_all(&overrun.encode());
            }
            for notice in &self.ring[usize::try_from(*next + lost).unwrap()..] {
                let _ = socket.write_all(&notice.encode());
            }
            *next = head;
        }
    }
}

/// The stand-in.
#[derive(Debug, Clone)]
pub(super) struct Device(Arc<Mutex<Module>>);

impl Device {
    pub(super) fn new() -> Self {
        let policy = Policy { version: 1, mode: Mode::OBSERVE, kill_ms: 3000, hold_ms: 0, max_sinks: 256, flags: 0 };
        Self(Arc::new(Mutex::new(Module {
            alive: BTreeMap::new(),
            ring: Vec::new(),
            readers: Vec::new(),
            policy,
            claims: Vec::new(),
            version: 1,
            error: None,
        })))
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Module) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(super) fn tell(&self, notices: &[Notice]) {
        self.with(|module| {
            notices.iter().for_each(|notice| module.push(*notice));
            module.deliver();
        });
    }
}

impl NoticeSource for Device {
    fn open(&self) -> io::Result<OwnedFd> {
        self.with(|module| {
            if let Some(error) = module.error {
                return Err(io::Error::from_raw_os_error(error));
            }
            let (ours, theirs) = UnixStream::pair()?;
            theirs.set_nonblocking(true)?;
            let head = module.ring.len() as u64;
            let mut state: Vec<_> =
                module.alive.iter().map(|(id, tgid)| of(NoticeType::VASPACE_ADD, *tgid, *id)).collect();
            state.push(blank(NoticeType::SNAPSHOT_END));
            for mut notice in state {
                notice.seq = head;
                notice.flags |= flag::SNAPSHOT;
                (&ours).write_all(&notice.encode())?;
            }
            module.readers.push((ours, head));
            Ok(theirs.into())
        })
    }

    fn control(&self, _: BorrowedFd<'_>, request: u32, argument: &mut [u8]) -> io::Result<()> {
        self.with(|module| {
            match request {
                control::INFO => {
                    let mut driver = [0; 32];
                    driver[..10].copy_from_slice(b"580.159.04");
                    let info = Info { version: module.version, record_size: 128, ring_records: 8, tested: 1, driver };
                    argument.copy_from_slice(&info.encode());
                }
                control::GET_POLICY => argument.copy_from_slice(&module.policy.encode()),
                control::SET_POLICY => module.policy = Policy::decode((&*argument).try_into().unwrap()),
                control::CLAIM => module.claims.push(Claim::decode((&*argument).try_into().unwrap())),
                _ => return Err(io::Error::from_raw_os_error(libc::ENOTTY)),
            }
            Ok(())
        })
    }
}
