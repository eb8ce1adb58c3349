//! GPUs of the simulated management library: their modes, who is on them, and what goes wrong.

use crate::under_test::built_library;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The mode in which any number of processes have contexts.
pub const DEFAULT: u32 = 0;
/// That in which nobody has.
pub const PROHIBITED: u32 = 2;
/// That in which one process has.
pub const EXCLUSIVE_PROCESS: u32 = 3;

/// A folder with the library and its GPUs. The files are described in the library's own documentation.
#[derive(Debug)]
pub struct Gpus {
    folder: PathBuf,
}

impl Gpus {
    /// GPUs in these modes, below a folder that stays; their UUIDs are [`Gpus::uuid`].
    ///
    /// # Panics
    /// When the folder can't be made.
    #[must_use]
    pub fn new(folder: &Path, modes: &[u32]) -> Self {
        let gpus = Self { folder: folder.join("nvml") };
        fs::create_dir_all(&gpus.folder).expect("the bench's folder is ours");
        let library = gpus.folder.join("libnvidia-ml.so.1");
        std::os::unix::fs::symlink(built_library("libnvml_sim.so"), library).expect("the bench's folder is ours");
        let uuids: String = (0..modes.len()).map(|index| format!("{}\n", Self::uuid(index))).collect();
        gpus.write("gpus", &uuids);
        for (index, mode) in modes.iter().enumerate() {
            gpus.set_mode(index, *mode);
        }
        gpus
    }

    /// A GPU's UUID.
    #[must_use]
    pub fn uuid(index: usize) -> String {
        format!("GPU-0000000{index}-1111-2222-3333-444444444444")
    }

    /// What a program needs in its environment to find the library.
    #[must_use]
    pub fn environment(&self) -> (&'static str, OsString) {
        ("LD_LIBRARY_PATH", self.folder.clone().into_os_string())
    }

    /// Replaces one of its files in one step.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn write(&self, file: &str, text: &str) {
        let new = self.folder.join(format!("{file}.new"));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, self.folder.join(file)))
            .expect("the bench's folder is ours");
    }

    /// Gives a GPU another mode, as `nvidia-smi -c` does.
    pub fn set_mode(&self, index: usize, mode: u32) {
        self.write(&format!("{}.mode", Self::uuid(index)), &format!("{mode}\n"));
    }

    /// A GPU's mode.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn mode(&self, index: usize) -> u32 {
        let text = fs::read_to_string(self.folder.join(format!("{}.mode", Self::uuid(index)))).expect("it has a mode");
        text.trim().parse().expect("a number")
    }

    /// Who has a context on a GPU: lines `PID C` and `PID M+C`.
    pub fn processes(&self, index: usize, lines: &str) {
        self.write(&format!("{}.processes", Self::uuid(index)), lines);
    }

    /// What a GPU has and what of it is in use, in bytes.
    pub fn memory(&self, index: usize, total: u64, used: u64) {
        self.write(&format!("{}.memory", Self::uuid(index)), &format!("{total} {used}\n"));
    }

    /// Every mode that was set through the library, oldest first, as GPU and mode.
    #[must_use]
    pub fn sets(&self) -> Vec<(String, u32)> {
        let text = fs::read_to_string(self.folder.join("sets")).unwrap_or_default();
        let set =
            |line: &str| line.split_once(' ').and_then(|(uuid, mode)| Some((uuid.to_owned(), mode.parse().ok()?)));
        text.lines().filter_map(set).collect()
    }
}
