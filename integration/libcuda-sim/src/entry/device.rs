//! Initialisation and devices.
#![expect(unsafe_code, reason = "asks what to do at the end of the process")]

use crate::abi::{Out, Text, entry_points};
use crate::codes::{Code, Outcome};
use crate::contexts::current;
use crate::device::{DRIVER_VERSION, TOTAL_MEMORY, attribute, pci_bus_id};
use crate::driver::{Driver, driver, initialise};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::Once;

/// The share of the device that MPS leaves to this process, as its current context knows it.
fn thread_percentage() -> f64 {
    current().map_or(100.0, |(_, context)| context.thread_percentage)
}

fn put_uuid(uuid: &Out<[u8; 16]>, device: c_int) -> Outcome {
    uuid.put(driver()?.device(device)?.uuid.0)
}

fn by_bus_id(driver: &Driver, wanted: &str) -> Outcome<c_int> {
    let short = |text: &str| text.trim_start_matches("0000:").to_ascii_uppercase();
    let at = driver.devices.iter().position(|device| short(&pci_bus_id(device)) == short(wanted));
    at.and_then(|at| c_int::try_from(at).ok()).ok_or(Code::INVALID_DEVICE)
}

/// With `MPS_SIM_SAYS_END` each copy of this library says on standard error that it does at the end of the process what it has
/// asked for.
fn says_its_end() {
    extern "C" fn say() {
        let line = b"a copy of the simulated driver ends\n";
        // SAFETY: the bytes are there.
        let _said = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
    static ASKED: Once = Once::new();
    if std::env::var_os("MPS_SIM_SAYS_END").is_some() {
        ASKED.call_once(|| {
            // SAFETY: a function of this library, which asks for it by itself.
            let _full = unsafe { libc::atexit(say) };
        });
    }
}

entry_points! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        says_its_end();
        initialise()
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.put(DRIVER_VERSION)
    }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        driver()?.device(ordinal)?;
        device.put(ordinal)
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        count.put(c_int::try_from(driver()?.devices.len()).map_err(|_| Code::UNKNOWN)?)
    }

    fn cuDeviceGetName(name: Out<c_char>, room: c_int, device: c_int) {
        name.put_text(&driver()?.device(device)?.name, room)
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) {
        put_uuid(&uuid, device)
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) {
        put_uuid(&uuid, device)
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        driver()?.device(device)?;
        bytes.put(usize::try_from(TOTAL_MEMORY).map_err(|_| Code::UNKNOWN)?)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, number: c_int, device: c_int) {
        value.put(attribute(driver()?.device(device)?, number, thread_percentage())?)
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        let device = driver()?.device(device)?;
        major.put(attribute(device, 75, 100.0)?)?;
        minor.put(attribute(device, 76, 100.0)?)
    }

    fn cuDeviceGetPCIBusId(text: Out<c_char>, room: c_int, device: c_int) {
        text.put_text(&pci_bus_id(driver()?.device(device)?), room)
    }

    fn cuDeviceGetByPCIBusId(device: Out<c_int>, text: Text) {
        device.put(by_bus_id(driver()?, text.get()?)?)
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        driver()?.device(device)?;
        driver()?.device(peer)?;
        can.put(0)
    }
}
