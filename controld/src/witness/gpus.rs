//! Which GPUs the machine has, by the files of NVIDIA's driver in `/proc/driver/nvidia`.
//!
//! | file | has |
//! |---|---|
//! | `gpus/0000:3b:00.0/information` | lines such as `GPU UUID: GPU-…` and `Device Minor: 0` |
//! | `capabilities/gpu0/mig/gi5` | a folder for each MIG GPU instance of the GPU with that minor number |
//!
//! No CUDA and no management library is asked, so it costs a few system calls. Root makes these files; whatever is not
//! as expected is left out. Reading one may wait for a GPU that hangs, so it happens on a thread of its own.

use crate::core::GpuPlace;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// GPUs that are looked at.
const MOST_GPUS: usize = 256;
/// Bytes of a file that are read; it has some 400.
const MOST_BYTES: u64 = 4096;
/// MIG GPU instances of a GPU that are listed; there are seven at most.
const MOST_INSTANCES: usize = 64;

/// The GPUs, by their address; none when the driver is not there. Blocks.
pub(crate) fn list(root: &Path) -> Vec<GpuPlace> {
    let Ok(entries) = fs::read_dir(root.join("gpus")) else {
        return Vec::new();
    };
    let names = entries.flatten().take(MOST_GPUS).filter_map(|entry| entry.file_name().into_string().ok());
    let mut gpus: Vec<GpuPlace> = names.filter_map(|name| gpu(root, &name)).collect();
    gpus.sort_by(|one, other| one.bus.cmp(&other.bus));
    gpus
}

fn gpu(root: &Path, address: &str) -> Option<GpuPlace> {
    let mut text = String::new();
    let file = File::open(root.join("gpus").join(address).join("information")).ok()?;
    file.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let value = |key: &str| {
        text.lines().find_map(|line| Some(line.split_once(':').filter(|(name, _)| name.trim() == key)?.1.trim()))
    };
    // A GPU that nobody has used yet has question marks there.
    let uuid = value("GPU UUID").filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'))?;
    let instances = value("Device Minor").map(|minor| instances(root, minor)).unwrap_or_default();
    let bus = address.rsplit_once('.').map_or(address, |(bus, _)| bus).to_ascii_lowercase();
    Some(GpuPlace { uuid: uuid.to_ascii_lowercase().replacen("gpu-", "GPU-", 1), bus, instances })
}

fn instances(root: &Path, minor: &str) -> Vec<u32> {
    let Ok(minor) = minor.parse::<u32>() else {
        return Vec::new();
    };
    let entries = fs::read_dir(root.join(format!("capabilities/gpu{minor}/mig"))).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix("gi")?.parse().ok();
    let names = entries.take(MOST_INSTANCES).filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|name| number(&name)).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 580 writes it.
    const INFORMATION: &str = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 56\nGPU UUID: \t GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca\n\
        Video BIOS: \t 96.00.a5.00.01\nBus Type: \t PCIe\nBus Location: \t 0000:00:06.0\nDevice Minor: \t 1\n\
        GPU Excluded:\t No\n";

    fn machine(gpus: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (address, text) in gpus {
            let folder = root.path().join("gpus").join(address);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("information"), text).unwrap();
        }
        root
    }

    #[test]
    fn gpus_are_listed_by_their_address_with_their_instances() {
        let unused =
            INFORMATION.replace("3d6da830-3ec1-ba21-50e0-3be12cfc8eca", "????????-????-????-????-????????????");
        let root = machine(&[("0000:00:07.0", &unused), ("0000:3B:06.0", INFORMATION), ("nonsense", "GPU UUID: x\n")]);
        for folder in ["gi5", "gi1", "config", "gix"] {
            fs::create_dir_all(root.path().join("capabilities/gpu1/mig").join(folder)).unwrap();
        }
        let uuid = "GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca".to_owned();
        let expected = GpuPlace { uuid, bus: "0000:3b:06".to_owned(), instances: vec![1, 5] };
        assert_eq!(list(root.path()), [expected]);
    }

    #[test]
    fn without_the_driver_there_are_none() {
        assert_eq!(list(Path::new("/nonexistent")), []);
        assert_eq!(list(machine(&[("0000:00:06.0", "")]).path()), []);
    }
}
