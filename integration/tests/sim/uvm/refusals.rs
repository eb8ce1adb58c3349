//! What a witness says that comes to nothing, and what only looks like a client's descriptors.

use super::{addresses, bear, event, once, space, wait_events, witness};
use integration::lab::process::Process;
use integration::sim::{Sim, find_event};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;

/// A user without rights.
const NOBODY: u32 = 65_534;

/// What a witness says that comes to nothing.
fn failure(sim: &Sim, arguments: &[&str], variables: &[(&str, &str)], user: Option<u32>) -> String {
    let mut command = sim.witness(arguments);
    command.envs(variables.iter().copied());
    if let Some(user) = user {
        command.uid(user);
    }
    let finished = sim.finish(Process::start(&mut command));
    assert_eq!(finished.code, Some(1), "{}", finished.stdout_text());
    let failed = find_event(&finished.stdout_text(), "failed").expect("it says why");
    failed["error"].as_str().expect("a text").to_owned()
}

#[test]
fn what_is_missing_is_said_clearly() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let client = bear(&[]);
        let pid = client.pid().to_string();
        let brief = ["--wait", "0.1", &pid];
        assert!(failure(&sim, &brief, &[], None).contains("no new UVM address space yet"));
        assert!(failure(&sim, &brief, &[("MPS_SIM_UVM_TOOLS", "missing")], None).contains("/dev/nvidia-uvm-tools"));
        assert!(failure(&sim, &brief, &[("MPS_SIM_UVM_TOOLS", "forbidden")], None).contains("not permitted"));
        assert!(failure(&sim, &["--", "true"], &[], None).contains("the process has ended"));
    });
}

#[test]
fn without_the_right_to_trace_the_refusal_says_which_right_is_missing() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let files = space(3);
        let client = bear(&[&files[0], &files[1]]);
        let installed = sim.lab.bin_dir(&[("witness", sim.witness(&[]).get_program().as_ref())]);
        let command = sim.witness(&[&client.pid().to_string()]);
        let library = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, value)| value);
        let readable = sim.lab.bin_dir(&[("libuvm_sim.so", library.expect("it is preloaded").as_ref())]);
        let mut unprivileged = std::process::Command::new(installed.join("witness"));
        unprivileged.args(command.get_args()).env_clear();
        unprivileged.env("LD_PRELOAD", readable.join("libuvm_sim.so")).env("MPS_SIM_UVM_DIR", sim.uvm_dir());
        if nix::unistd::geteuid().is_root() {
            unprivileged.uid(NOBODY).gid(NOBODY);
            let finished = sim.finish(Process::start(&mut unprivileged));
            let failed = find_event(&finished.stdout_text(), "failed").expect("it says why");
            assert!(failed["error"].as_str().is_some_and(|text| text.contains("CAP_SYS_PTRACE")), "{failed}");
        } else {
            integration::under_test::Skipped("only root can become another user".to_owned()).report();
        }
    });
}

#[test]
fn files_that_only_look_like_uvm_descriptors_harm_nobody() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let dir = sim.lab.dir();
        let fifo = dir.join("nvidia-uvm");
        mkfifo(&fifo, Mode::S_IRWXU).expect("the bench's folder is ours");
        let fifo = OpenOptions::new().read(true).write(true).open(&fifo).expect("a FIFO opens for both");
        let plain = File::create(dir.join("a-nvidia-uvm")).expect("the bench's folder is ours");
        let files = space(5);
        let client = bear(&[&fifo, &plain, &files[0], &files[1]]);
        let witness = witness(&sim, &client, &[]);
        let attached = wait_events(&sim, &witness, "attached", 1);
        assert_eq!(attached[0]["descriptors"].as_array().map(Vec::len), Some(2), "{attached:?}");
        event(5, 0x99).send(&sim.uvm_dir()).expect("somebody listens");
        assert_eq!(addresses(&wait_events(&sim, &witness, "fault", 1)), ["0x99"]);
    });
}
