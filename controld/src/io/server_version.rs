//! Which release of the driver the installed server belongs to: the daemon plays that release's control program.
//!
//! The server program itself says nothing: in the releases of Debian (535.309.01 and 550.163.01) it is a launcher of
//! 18 KiB that loads `libcuda.so.1` and holds no version text. So the release is that of the driver beside it, in this
//! order: what the operator set (`MPS_PERSONALITY`), the loaded kernel module, the file that `libcuda.so.1` leads to.
//! The kernel module comes before the library because a newer compatibility library may stand before the driver's own.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::sys::proc::NVIDIA_VERSION;

const LIBRARY: &str = "libcuda.so.1";
/// What precedes the version in the library's real file name.
const LIBRARY_STEM: &str = "libcuda.so.";
/// Folders of the driver's library on Debian, Red Hat and SUSE, in containers of NVIDIA's and Google's kind, and where
/// Debian's packages keep it.
const LIBRARY_FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
];
/// Bytes read of the kernel module's file, which has some two hundred.
const MOST_PROC_BYTES: u64 = 4096;
/// Smallest main number that can be a driver's; anything below it in the text is a date or a compiler version.
const FIRST_MAJOR: u32 = 300;

/// Where a version was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VersionSource {
    /// The operator set it.
    Override,
    /// The loaded kernel module.
    KernelModule,
    /// The name of this file, to which `libcuda.so.1` leads.
    Library(PathBuf),
}

impl std::fmt::Display for VersionSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Override => f.write_str("MPS_PERSONALITY"),
            Self::KernelModule => f.write_str(NVIDIA_VERSION),
            Self::Library(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A driver version and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerVersion {
    /// As `580.159.04`; of the operator, whatever text was set.
    pub version: String,
    /// Where it was found.
    pub source: VersionSource,
}

/// Finds the version: `chosen` (`MPS_PERSONALITY`) if not empty, else the kernel module's, else that of the library
/// found in `library_path` (`LD_LIBRARY_PATH`) or the usual folders. `None` on a machine without a driver.
pub(crate) fn find(chosen: Option<&str>, library_path: Option<&OsStr>) -> Option<ServerVersion> {
    if let Some(chosen) = chosen.map(str::trim).filter(|text| !text.is_empty()) {
        return Some(ServerVersion { version: chosen.to_owned(), source: VersionSource::Override });
    }
    let of_kernel = || {
        let version = of_kernel_module(Path::new(NVIDIA_VERSION))?;
        Some(ServerVersion { version, source: VersionSource::KernelModule })
    };
    of_kernel().or_else(|| of_library(library_folders(library_path).into_iter()))
}

/// Where the driver's library may lie, in the order in which it is looked for: `LD_LIBRARY_PATH`, then the usual places.
pub(crate) fn library_folders(library_path: Option<&OsStr>) -> Vec<PathBuf> {
    let set = library_path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    set.into_iter().chain(LIBRARY_FOLDERS.map(PathBuf::from)).collect()
}

/// From the text `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ...` or its open-module kind.
pub(crate) fn of_kernel_module(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST_PROC_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| is_driver_version(word)).map(str::to_owned)
}

/// The version in the name of the first library of these folders that has one.
pub(crate) fn of_library(folders: impl Iterator<Item = PathBuf>) -> Option<ServerVersion> {
    folders.filter_map(|folder| std::fs::canonicalize(folder.join(LIBRARY)).ok()).find_map(|path| {
        let version = path.file_name()?.to_str()?.strip_prefix(LIBRARY_STEM)?;
        let version = is_driver_version(version).then(|| version.to_owned())?;
        Some(ServerVersion { version, source: VersionSource::Library(path) })
    })
}

fn is_driver_version(text: &str) -> bool {
    let numbers: Vec<Option<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    let digits_only = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (2..=3).contains(&numbers.len())
        && digits_only
        && numbers.iter().all(Option::is_some)
        && numbers[0].is_some_and(|major| major >= FIRST_MAJOR)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_operators_word_goes_before_everything() {
        let found = find(Some(" 535 "), None).unwrap();
        assert_eq!(found, ServerVersion { version: "535".to_owned(), source: VersionSource::Override });
    }

    #[test]
    fn both_kinds_of_kernel_module_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("version");
        for (text, want) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Tue Mar 10 10:00:00 UTC 2026\n\
                 GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
                Some("535.309.01"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (user@host)  Wed\n",
                Some("580.159.04"),
            ),
            ("GCC version:  gcc version 580.1.2\n", None),
            ("NVRM version: NVIDIA UNIX Kernel Module unknown 12.2.0\n", None),
            ("", None),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(of_kernel_module(&file).as_deref(), want, "{text:?}");
        }
        std::fs::write(&file, [0xff; 100_000]).unwrap();
        assert_eq!(of_kernel_module(&file), None);
        assert_eq!(of_kernel_module(folder.path()), None);
    }

    #[test]
    fn the_library_gives_its_version_by_the_name_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("libcuda.so.550.163.01");
        std::fs::write(&real, "").unwrap();
        let (first, second) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::create_dir(&first).unwrap();
        std::fs::create_dir(&second).unwrap();
        // A library without a version in its name, as a stand-in has it, says nothing and is passed over.
        std::fs::write(first.join(LIBRARY), "").unwrap();
        symlink("libcuda.so", second.join(LIBRARY)).unwrap();
        symlink("../libcuda.so.550.163.01", second.join("libcuda.so")).unwrap();
        let found = of_library([folder.path().join("missing"), first, second].into_iter()).unwrap();
        assert_eq!(found.version, "550.163.01");
        assert_eq!(found.source, VersionSource::Library(std::fs::canonicalize(real).unwrap()));
    }
}
