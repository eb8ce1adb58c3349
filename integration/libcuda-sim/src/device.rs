//! What the pretended GPU says of itself: an H200 where a number is asked for.

use crate::codes::{Code, Outcome};
use sim_wire::hardware::Device;

/// Bytes of device memory, as `nvidia-smi` shows for an H200 (143,771 MiB).
pub(crate) const TOTAL_MEMORY: u64 = 143_771 << 20;
/// Streaming multiprocessors.
const MULTIPROCESSORS: i32 = 132;
/// As `cuDriverGetVersion` gives it: CUDA 13.0.
pub(crate) const DRIVER_VERSION: i32 = 13000;

/// An attribute by its number in `CUdevice_attribute`; `thread_percentage` is the share that MPS leaves to the client.
pub(crate) fn attribute(device: &Device, number: i32, thread_percentage: f64) -> Outcome<i32> {
    let small = |number: u32| i32::try_from(number).expect("a PCI number is small");
    Ok(match number {
        // Threads and grid dimensions.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 49152,
        9 => 65536,
        10 => 32,
        11 => i32::MAX,
        12 => 65536,
        13 => 1_980_000,
        14 => 512,
        // Concurrent copy, mapped host memory, concurrent kernels, unified addressing, overlap of copies.
        15 | 19 | 31 | 40 | 41 => 1,
        16 => multiprocessors(thread_percentage),
        34 => small(device.pci_device),
        36 => 3_201_000,
        37 => 6144,
        38 => 62_914_560,
        39 => 2048,
        75 => 9,
        78..=80 => 1,
        81 => 233_472,
        82 => 65536,
        95 => 1,
        97 => 232_448,
        // VMM with POSIX file descriptors, the one kind of handle there is.
        102 | 103 => 1,
        106 => 32,
        // Stream-ordered allocation.
        115 => 1,
        // The rest is not pretended: no run time limit, compute mode Default, no managed memory.
        _ if (1..=150).contains(&number) => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// Multiprocessors of a share of the GPU; at least one pair, as the hardware hands them out.
fn multiprocessors(thread_percentage: f64) -> i32 {
    let share = f64::from(MULTIPROCESSORS) * thread_percentage.clamp(0.0, 100.0) / 100.0;
    (1..=MULTIPROCESSORS / 2).map(|pairs| pairs * 2).find(|&count| f64::from(count) >= share).unwrap_or(MULTIPROCESSORS)
}

/// The address as `0000:00:06.0`.
pub(crate) fn pci_bus_id(device: &Device) -> String {
    format!("0000:00:{:02X}.0", device.pci_device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim_wire::hardware::machine;
    use sim_wire::script::Script;

    #[test]
    fn a_share_of_the_threads_is_a_share_of_the_multiprocessors() {
        let device = &machine(&Script::parse(""))[0];
        assert_eq!(attribute(device, 16, 100.0), Ok(132));
        assert_eq!(attribute(device, 16, 50.0), Ok(66));
        assert_eq!(attribute(device, 16, 1.0), Ok(2));
        assert_eq!(attribute(device, -1, 100.0), Err(Code::INVALID_VALUE));
        assert_eq!(pci_bus_id(device), "0000:00:06.0");
    }
}
