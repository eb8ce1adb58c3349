//! A daemon in a PID namespace of its own, as in a pod without `hostPID`, for which the test's processes have no pid.
//!
//! Nobody outside may tell such a daemon to quit; it and all that it has started end with the bench.

use super::client::can_connect;
use super::process::Process;
use super::{LIMIT, Lab, watch};
use nix::unistd::Pid;
use std::fs;
use std::process::Command;

/// Its namespaces: pids and, by what is mounted there, a `/proc` of its own.
pub const POD: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount"];

/// What a pod begins with: a `/proc` of its own beside the machine's, and then the daemon.
const ALONE: &str = "mount --rbind /proc \"$1\" && mount -t proc proc /proc && shift && exec \"$@\"";
/// The same with a first process of the pod that outlives the daemon, and takes its orphans.
const UNDER_INIT: &str =
    "mount --rbind /proc \"$1\" && mount -t proc proc /proc && shift && { \"$@\" & while :; do wait; read x; done; }";

/// The daemon in such a place, which sees the machine's `/proc` where the bench has it.
#[derive(Debug)]
pub struct Pod(Process);

impl Pod {
    /// Starts a daemon as the first process of a pod.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(lab: &Lab, daemon: &Command) -> Self {
        Self::begin(lab, daemon, ALONE)
    }

    /// Starts one beside a first process that outlives it.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn under_init(lab: &Lab, daemon: &Command) -> Self {
        Self::begin(lab, daemon, UNDER_INIT)
    }

    fn begin(lab: &Lab, daemon: &Command, script: &str) -> Self {
        let folder = machines_proc(lab);
        fs::create_dir_all(&folder).expect("the bench's folder is ours");
        let mut outer = Command::new(POD[0]);
        outer.args(&POD[1..]).args(["sh", "-c", script, "sh"]).arg(&folder);
        let pod = Self(Process::start(with_its_environment(&mut outer, daemon)));
        let is_up = || lab.pipe_dir().join("control").exists() && can_connect(lab.pipe_dir());
        watch::wait_for(lab.dir(), lab.pipe_dir(), LIMIT, "the daemon", is_up);
        pod
    }

    /// The pod's first process: the daemon, or the one that outlives it.
    ///
    /// # Panics
    /// When the pod has ended.
    #[must_use]
    pub fn first(&self) -> Pid {
        let children = format!("/proc/{0}/task/{0}/children", self.0.pid());
        let children = fs::read_to_string(children).expect("the wrapper runs");
        Pid::from_raw(children.trim().parse().expect("it has one child"))
    }

    /// Another program in this pod.
    #[must_use]
    pub fn inside(&self, program: &Command) -> Command {
        let mut outer = Command::new("nsenter");
        outer.args(["--target", &self.first().to_string(), "--pid", "--mount"]);
        with_its_environment(&mut outer, program);
        outer
    }

    /// What the daemon's owner is answered, who is where it is.
    #[must_use]
    pub fn ask(&self, lab: &Lab, lines: &str) -> String {
        lab.finish(&mut self.inside(&lab.command(&[])), lines.as_bytes()).stdout_text()
    }

    /// What the daemon and its servers have written.
    #[must_use]
    pub fn output(&self) -> String {
        self.0.output()
    }

    /// Waits until they have written this.
    ///
    /// # Panics
    /// When they don't.
    pub fn wait_for(&self, lab: &Lab, what: &str) {
        watch::wait_for(lab.dir(), lab.dir(), LIMIT, what, || self.output().contains(what));
    }
}

/// Adds a program that a command begins, which itself is found and run as here.
fn with_its_environment<'command>(outer: &'command mut Command, program: &Command) -> &'command mut Command {
    outer.args(["env", "-i"]);
    for (name, value) in program.get_envs() {
        let Some(value) = value else { continue };
        let mut word = name.to_owned();
        word.push("=");
        word.push(value);
        outer.arg(word);
    }
    outer.arg(program.get_program()).args(program.get_args())
}

/// Where the machine's `/proc` is for a daemon of this bench.
#[must_use]
pub fn machines_proc(lab: &Lab) -> String {
    lab.dir().join("machine").display().to_string()
}
