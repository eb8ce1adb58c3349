//! Who and what there is on the machine: its processes, its GPUs, and what a server says of them.

use super::*;
use remps_proto::mps::device::{DeviceInfo, DeviceRecord, DeviceUuid};
use remps_proto::mps::server::{ClientContext, DeviceClients};

/// The process that has this pid after so many others had it.
pub(in super::super) fn key(pid: u32, birth: u64) -> ProcessKey {
    ProcessKey { pid, start_time: u64::from(pid) * 1000 + birth }
}

pub(in super::super) fn identity(pid: u32, birth: u64) -> Arc<Identity> {
    let command = format!("program-{pid}");
    Arc::new(Identity { start_time: key(pid, birth).start_time, command, ..Identity::default() })
}

pub(in super::super) fn fault() -> MemoryFault {
    MemoryFault { address: 0x10, access: Access::Write, kind: "invalid PDE".to_owned(), gpu: None }
}

/// The GPUs of a machine with several.
pub(in super::super) const GPUS: [u32; 2] = [0, 1];

/// A GPU's UUID.
pub(in super::super) fn uuid(gpu: u32) -> DeviceUuid {
    DeviceUuid([u8::try_from(gpu + 1).expect("few"); 16])
}

/// Its address on the bus.
pub(in super::super) fn bus(gpu: u32) -> String {
    format!("0000:00:{:02x}", gpu + 6)
}

/// The machine's GPUs, as the driver finds them.
pub(in super::super) fn places() -> Vec<GpuPlace> {
    GPUS.iter().map(|gpu| GpuPlace { uuid: uuid(*gpu).to_string(), bus: bus(*gpu), instances: vec![] }).collect()
}

/// What a server says of them.
pub(in super::super) fn records() -> Vec<DeviceRecord> {
    let record = |ordinal: &u32| DeviceRecord {
        ordinal: *ordinal,
        bus: 0,
        device: ordinal + 6,
        domain: 0,
        attributes: [0; 2],
        uuid: uuid(*ordinal),
        name: "GPU".to_owned(),
    };
    GPUS.iter().map(record).collect()
}

/// What a server lists of these contexts: each one's process, its number there, and its GPU.
pub(in super::super) fn listing(contexts: &[(u32, u32, u32)]) -> Reply {
    let on = |gpu: u32| contexts.iter().filter(move |context| context.2 == gpu);
    let row = |(pid, context, _): &(u32, u32, u32)| ClientContext {
        pid: *pid,
        context: *context,
        reserved: 0,
        device: DeviceUuid::default(),
        id: 0,
    };
    let info = DeviceInfo { first: 0, second: 0, name: "GPU".to_owned() };
    let device =
        |gpu: &u32| DeviceClients { uuid: uuid(*gpu), info: info.clone(), clients: on(*gpu).map(row).collect() };
    Reply::DeviceClients(GPUS.iter().map(device).collect())
}
