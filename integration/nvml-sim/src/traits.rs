//! What a GPU is, as NVIDIA's device plugin asks before it shares one: name, number, compute capability, place on the bus.

use super::{Handle, begin, gpus, lines, named, put, put_text, status};
use std::ffi::{c_char, c_int, c_uint};

/// Name and compute capability of a GPU that no file tells of.
const NAME: &str = "NVIDIA H100 80GB HBM3";
const CAPABILITY: (c_int, c_int) = (9, 0);
/// PCI device number of the first GPU, as the simulated driver has it.
const FIRST_PCI_DEVICE: u32 = 6;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Debug)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// The index of a handle's GPU.
fn index(device: Handle) -> Result<u32, c_int> {
    let (uuid, _) = named(device)?;
    let index = gpus().iter().position(|known| *known == uuid);
    index.and_then(|index| u32::try_from(index).ok()).ok_or(super::INVALID_ARGUMENT)
}

/// A text that is shorter than its place.
fn padded<const N: usize>(text: &str) -> [c_char; N] {
    let mut place = [0; N];
    for (to, from) in place.iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
    place
}

/// `nvmlShutdown`.
#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_int {
    status(begin("nvmlShutdown"))
}

/// `nvmlErrorString`: the same for every error, since nobody reads it for what it says.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(_result: c_int) -> *const c_char {
    c"an error of the simulated library".as_ptr()
}

/// `nvmlDeviceGetName`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetName(device: Handle, text: *mut c_char, length: c_uint) -> c_int {
    let result = begin("nvmlDeviceGetName").and_then(|()| named(device)).and_then(|(uuid, _)| {
        let lines = lines(&format!("{uuid}.name"));
        let name = lines.first().map_or_else(|| NAME.to_owned(), |words| words.join(" "));
        put_text(text, length, &name)
    });
    status(result)
}

/// `nvmlDeviceGetMinorNumber`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMinorNumber(device: Handle, number: *mut c_uint) -> c_int {
    status(begin("nvmlDeviceGetMinorNumber").and_then(|()| put(number, index(device)?)))
}

/// `nvmlDeviceGetCudaComputeCapability`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: *mut c_int, minor: *mut c_int) -> c_int {
    let result = begin("nvmlDeviceGetCudaComputeCapability").and_then(|()| named(device));
    status(result.and_then(|_| put(major, CAPABILITY.0)).and_then(|()| put(minor, CAPABILITY.1)))
}

/// `nvmlDeviceGetPciInfo_v3`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfo_v3(device: Handle, pci: *mut PciInfo) -> c_int {
    let result = begin("nvmlDeviceGetPciInfo_v3").and_then(|()| index(device)).and_then(|index| {
        let number = FIRST_PCI_DEVICE + index;
        let info = PciInfo {
            bus_id_legacy: padded(&format!("0000:00:{number:02X}.0")),
            domain: 0,
            bus: 0,
            device: number,
            pci_device_id: 0,
            pci_subsystem_id: 0,
            bus_id: padded(&format!("00000000:00:{number:02X}.0")),
        };
        put(pci, info)
    });
    status(result)
}
