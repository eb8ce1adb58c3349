//! Places that are not the daemon's: namespaces and cgroups of a test's own, as a container has them.
//!
//! A test that may not make them is [`Skipped`].

use super::stage::{CONTROL, Stage};
use crate::under_test::Skipped;
use nix::unistd::Pid;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A user namespace whose user 0 is this one's, as that of a container that maps its root to the machine's.
pub const USERS: &[&str] = &["unshare", "--user", "--map-root-user"];
/// A user namespace that maps nobody.
pub const SANDBOX: &[&str] = &["unshare", "--user"];
/// A PID namespace, as every container has one that is not told to share the machine's.
pub const PIDS: &[&str] = &["unshare", "--pid", "--fork"];

/// Whether a place can be made here.
///
/// # Errors
/// When it can't.
fn can_be_made(place: &[&str]) -> Result<(), Skipped> {
    let tried = Command::new(place[0]).args(&place[1..]).arg("true").stderr(Stdio::null()).status();
    if nix::unistd::geteuid().is_root() && tried.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(Skipped(format!("no right to {}", place.join(" "))))
}

/// Runs a test on a new bench where these places can be made, or says why not.
pub fn where_possible(places: &[&[&str]], test: impl FnOnce(&mut Stage)) {
    Stage::run(|stage| match places.iter().try_for_each(|place| can_be_made(place)) {
        Ok(()) => test(stage),
        Err(skipped) => skipped.report(),
    });
}

/// A program in another place.
#[must_use]
pub fn within(place: &[&str], program: &Command) -> Command {
    let Some((first, rest)) = place.split_first() else { panic!("no place") };
    let mut command = Command::new(first);
    command.args(rest).arg(program.get_program()).args(program.get_args()).env_clear();
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// What root is answered to these lines in another place.
#[must_use]
pub fn ask_within(stage: &Stage, place: &[&str], lines: &str) -> String {
    let mut command = within(place, &stage.command_as(0, CONTROL, &[]));
    stage.lab().finish(&mut command, lines.as_bytes()).stdout_text()
}

/// The same in the user and PID namespaces of a process.
#[must_use]
pub fn ask_beside(stage: &Stage, process: Pid, lines: &str) -> String {
    let target = process.to_string();
    ask_within(stage, &["nsenter", "--target", &target, "--pid"], lines)
}

/// The cgroup of a container, in whatever hierarchy one may be made.
#[derive(Debug)]
pub struct Container {
    made: Vec<PathBuf>,
    root: &'static str,
    path: PathBuf,
}

impl Container {
    /// Makes one as Kubernetes does: the pod's and below it the container's.
    ///
    /// # Errors
    /// When no cgroup can be made here.
    ///
    /// # Panics
    /// When the name of the second half is not hexadecimal digits as a container's must be.
    pub fn make(pod: &str, container: u32) -> Result<Self, Skipped> {
        let test = format!("kubepods-remps-{}", std::process::id());
        let steps = [test, format!("pod{pod}"), format!("{container:064x}")];
        for root in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/pids"] {
            let (mut path, mut made) = (PathBuf::from(root), Vec::new());
            for step in &steps {
                path.push(step);
                if fs::create_dir(&path).is_ok() {
                    made.push(path.clone());
                }
            }
            let container = Self { made, root, path };
            if container.path.join("cgroup.procs").exists() {
                return Ok(container);
            }
        }
        Err(Skipped("no right to make a cgroup".to_owned()))
    }

    /// The cgroup of its pod, as a process in it has it in `/proc`.
    ///
    /// # Panics
    /// Never: it is below the root.
    #[must_use]
    pub fn pod(&self) -> String {
        let pod = self.path.parent().and_then(|pod| pod.strip_prefix(self.root).ok()).expect("it was made there");
        format!("/{}", pod.display())
    }

    /// How a program gets there that shares everything else with the daemon.
    #[must_use]
    pub fn entered(&self) -> [String; 3] {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.path.display());
        ["sh".to_owned(), "-c".to_owned(), script]
    }

    /// Puts a process there.
    ///
    /// # Panics
    /// When that can't be done.
    pub fn add(&self, process: Pid) {
        fs::write(self.path.join("cgroup.procs"), process.to_string()).expect("a process of ours can be moved");
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // One that still has a process stays, which is the machine's only trace of a failed test.
        for path in self.made.iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}
