//! Attacks on the start of the whole daemon, and on who talks to it.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use remps_controld::parts::holder::SOCKET_NAME;
use remps_controld::parts::io::runtime_dir::{CONTROL, LOG};

use super::{Victim, open_to_everybody, skipped_without_root};
use crate::lab::{Lab, trials};
use crate::racer::{Racer, STRANGER};

trials![no_start_of_the_daemon_is_won_whatever_was_put_into_its_directory, another_users_socket_is_not_talked_to,];

/// Starts of the whole daemon.
const DAEMONS: usize = 12;

async fn another_users_socket_is_not_talked_to(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let folder = lab.path("mps");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(lab.dir(), Permissions::from_mode(0o755)).unwrap();
    open_to_everybody(&folder);
    for name in ["control_privileged", CONTROL] {
        let racer = Racer::daemon(&folder.join(name));
        assert!(!RealDaemon::answers(lab.dir(), "terminate_client 1 2\n"));
        assert_eq!(racer.won(), 0, "{name}");
        drop(racer);
        fs::remove_file(folder.join(name)).unwrap();
    }
}

/// The daemon itself.
struct RealDaemon {
    child: Child,
    lab: PathBuf,
}

impl RealDaemon {
    fn command(lab: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-cuda-mps-control"));
        command
            .env_clear()
            .env("CUDA_MPS_PIPE_DIRECTORY", lab.join("mps"))
            .env("CUDA_MPS_LOG_DIRECTORY", lab.join("logs"));
        command.env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command
    }

    fn start(lab: &Path) -> Self {
        let said = fs::File::create(lab.join("said")).unwrap();
        let child = Self::command(lab).arg("-f").stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap();
        Self { child, lab: lab.to_owned() }
    }

    fn child_lives(&self) -> bool {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        // Not reaped, which the value does at its end.
        let ended = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT);
        ended == Ok(WaitStatus::StillAlive)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.lab.join("said")).unwrap()
    }

    fn answers(lab: &Path, command: &str) -> bool {
        let mut ui =
            Self::command(lab).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // One that finds no daemon ends before it has read.
        let _ = ui.stdin.take().unwrap().write_all(command.as_bytes());
        ui.wait().unwrap().success()
    }
}

impl Drop for RealDaemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn no_start_of_the_daemon_is_won_whatever_was_put_into_its_directory(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let victim = Victim::new();
    let folder = lab.path("mps");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(lab.dir(), Permissions::from_mode(0o755)).unwrap();
    open_to_everybody(&folder);
    let holder = Racer::holder(&folder.join(SOCKET_NAME));
    let links = [CONTROL, "control_privileged", LOG].map(|name| Racer::link_first(&folder.join(name), &victim.path));
    for round in 0..DAEMONS {
        open_to_everybody(&folder);
        // Of another user, and of a kind that can't simply be replaced.
        for (name, is_lock) in [("shim", false), ("nvidia-cuda-mps-control.pid", false), ("control_lock", true)] {
            let path = folder.join(name);
            let made = if is_lock { fs::write(&path, "") } else { fs::create_dir(&path) };
            made.unwrap();
            std::os::unix::fs::lchown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
        }
        let daemon = RealDaemon::start(lab.dir());
        crate::lab::eventually("the daemon answers", || {
            assert!(daemon.child_lives(), "round {round}: {}", daemon.said());
            daemon.said().contains("Starting control daemon") && RealDaemon::answers(lab.dir(), "get_server_list\n")
        });
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o755);
        let foreign = |name: &&str| fs::symlink_metadata(folder.join(name)).unwrap().uid() != 0;
        let names = [CONTROL, "control_privileged", LOG, SOCKET_NAME, "shim", "nvidia-cuda-mps-control.pid"];
        assert_eq!(names.iter().find(|name| foreign(name)), None, "{}", daemon.said());
        assert!(daemon.said().contains("had mode 0777"), "{}", daemon.said());
        assert!(RealDaemon::answers(lab.dir(), "quit\n"));
        crate::lab::eventually("the daemon ends", || !daemon.child_lives());
        assert!(!victim.was_hit());
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
    assert_eq!(holder.won(), 0, "of {DAEMONS}");
    assert!(links.iter().all(|link| link.placed() > 0), "nothing was tried");
}
