//! Checks on machines that are folders.

mod places;
mod rights;
mod state;
mod words;

use super::machine::{Daemon, Gpu, Listening, Machine, Space};
use super::{CHECKS, Finding, Severity, examine};
use crate::devices::gpus::ProbedGpu;
use crate::settings::ConfigFile;
use remps_proto::notice::Mode;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const DAEMON: u32 = 500;
const GIB: u64 = 1 << 30;
const ALL_CAPABILITIES: &str = "000001ffffffffff";
const VERSION: &str =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (user@host)  Wed\n";

/// A machine in a folder, on which everything is as it should be until a test changes it.
struct Made {
    folder: TempDir,
    machine: Machine,
}

fn plenty(_: &Path) -> io::Result<Space> {
    Ok(Space { total: 32 * GIB, free: 16 * GIB })
}

/// The device of a made-up module is a file with the number of its mode.
fn of_file(path: &Path) -> io::Result<Mode> {
    fs::read_to_string(path)?.trim().parse().map(Mode).map_err(io::Error::other)
}

fn opens(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

impl Made {
    fn sound() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let made = Self {
            machine: Machine {
                root: root.clone(),
                daemon_pid: Some(DAEMON),
                daemon: Daemon::Answers { took: Duration::from_millis(1), servers: vec![(600, "ACTIVE".into())] },
                pipe_directory: root.join("pipe"),
                log_directory: root.join("log"),
                config: Ok(ConfigFile::default()),
                remarks: Vec::new(),
                own_program: root.join("bin/nvidia-cuda-mps-control"),
                search_path: Some(root.join("bin").into()),
                server_binary: None,
                library_folders: vec![root.join("lib")],
                gpus: Ok(vec![Gpu {
                    index: "0".into(),
                    compute_mode: "Default".into(),
                    persistence: "Enabled".into(),
                    mig: "Disabled".into(),
                }]),
                look: Ok(vec![ProbedGpu {
                    index: 0,
                    uuid: "GPU-0".into(),
                    mode: None,
                    whole: true,
                    outside: Some(Vec::new()),
                    memory: None,
                    library: String::new(),
                }]),
                open: opens,
                fault_mode: of_file,
                space: plenty,
                listening: |_| Listening::Nobody,
            },
            folder,
        };
        made.file("proc/driver/nvidia/version", VERSION);
        made.file("proc/sys/kernel/yama/ptrace_scope", "1\n");
        made.file("proc/sys/kernel/dmesg_restrict", "1\n");
        made.file("proc/sys/kernel/osrelease", "6.18.44\n");
        made.file("proc/self/mounts", "tmpfs / tmpfs rw 0 0\n");
        made.process(DAEMON, ALL_CAPABILITIES, [4_026_531_836, 4_026_531_837]);
        made.file("sys/module/nvidia_uvm/parameters/uvm_mps_mode", "2\n");
        for name in ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-uvm-mps", "nvidia0", "kmsg"] {
            made.file(&format!("dev/{name}"), "");
            made.mode(&format!("dev/{name}"), 0o666);
        }
        made.file("dev/nvidia-uvm-mps", "2\n");
        for (name, mode) in [("dev/shm", 0o1777), ("pipe", 0o755), ("log", 0o700)] {
            fs::create_dir_all(made.path(name)).unwrap();
            made.mode(name, mode);
        }
        made.file("lib/libcuda.so.580.159.04", "");
        symlink("libcuda.so.580.159.04", made.path("lib/libcuda.so.1")).unwrap();
        for name in ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server"] {
            made.file(&format!("bin/{name}"), "");
            made.mode(&format!("bin/{name}"), 0o755);
        }
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn remove(&self, name: &str) {
        let path = self.path(name);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// A process with these capabilities in these namespaces, of pids and of users.
    fn process(&self, pid: u32, capabilities: &str, [pids, users]: [u64; 2]) {
        let folder = format!("proc/{pid}");
        self.file(&format!("{folder}/status"), &format!("Uid:\t0\t0\t0\t0\nCapEff:\t{capabilities}\n"));
        self.file(
            &format!("{folder}/limits"),
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max open files            1024                 65536                files     \n\
             Max locked memory         unlimited            unlimited            bytes     \n",
        );
        self.file(&format!("{folder}/mounts"), "tmpfs /dev/shm tmpfs rw 0 0\n");
        fs::create_dir_all(self.path(&format!("{folder}/fd"))).unwrap();
        fs::create_dir_all(self.path(&format!("{folder}/ns"))).unwrap();
        for (kind, inode) in [("pid", pids), ("user", users)] {
            let link = self.path(&format!("{folder}/ns/{kind}"));
            let _ = fs::remove_file(&link);
            symlink(format!("{kind}:[{inode}]"), link).unwrap();
        }
        let root = self.path(&format!("{folder}/root"));
        let _ = fs::remove_file(&root);
        symlink("/", root).unwrap();
    }

    fn finding(&self, id: &str) -> Finding {
        let found = examine(&self.machine).into_iter().find(|finding| finding.id == id);
        found.unwrap_or_else(|| panic!("no check {id}"))
    }

    /// A check's finding is this bad and says this; what costs something says what.
    #[track_caller]
    fn assert(&self, id: &str, severity: Severity, says: &str) {
        let finding = self.finding(id);
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.what.contains(says), "{finding:?}");
        if severity >= Severity::Warning {
            assert!(!finding.costs.is_empty() && !finding.advice.is_empty(), "{finding:?}");
        }
    }
}

#[test]
fn a_sound_machine_has_nothing_but_ok() {
    let made = Made::sound();
    for finding in examine(&made.machine) {
        assert_eq!(finding.severity, Severity::Ok, "{finding:?}");
        assert!(!finding.what.is_empty(), "{finding:?}");
    }
}

#[test]
fn a_machine_of_which_nothing_can_be_read_is_examined_to_the_end() {
    let made = Made::sound();
    for name in ["proc", "sys", "dev", "pipe", "log", "lib", "bin"] {
        made.remove(name);
    }
    assert_eq!(examine(&made.machine).len(), CHECKS.len());
}

#[test]
fn files_of_nonsense_are_no_facts() {
    let made = Made::sound();
    let folder = format!("proc/{DAEMON}");
    for name in ["status", "limits", "mounts"] {
        fs::write(made.path(&format!("{folder}/{name}")), [0xff; 100_000]).unwrap();
    }
    fs::write(made.path("proc/sys/kernel/osrelease"), [0xff; 64]).unwrap();
    for id in ["user", "ptrace", "kill", "open-files", "locked-memory", "kernel"] {
        made.assert(id, Severity::Note, "not known");
    }
}

#[test]
fn no_name_of_a_check_is_used_twice_and_the_help_has_the_same() {
    let mut names: Vec<&str> = CHECKS.iter().map(|(id, _)| *id).collect();
    assert_eq!(names, crate::cli::CHECKS.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKS.len());
}
