//! Clients that have something else where their UVM descriptors should be. A file on a file system that does not answer
//! keeps everybody waiting who asks for it, and everybody who closes it, a child of this process at its start included:
//! so no such file is opened in this process.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::watch::wait_for;
use integration::sim::mute_fs::MuteFs;
use integration::sim::{Sim, bearer, find_event};
use integration::under_test::{Subject, for_each, only_ours};
use sim_wire::uvm::{self, Kind};
use std::fs::{self, File};
use std::os::fd::AsFd;

fn once(test: impl Fn(&Subject)) {
    for_each(only_ours().map(|subjects| subjects.into_iter().take(1).collect()), test);
}

fn space(number: u64) -> [File; 2] {
    let files = [bearer::opened(), bearer::opened()];
    uvm::initialise(&files[0], Kind::SPACE, number).expect("the file is ours");
    uvm::initialise(&files[1], Kind::MM, number).expect("the file is ours");
    files
}

fn wait_output(sim: &Sim, process: &Process, text: &str) {
    let dir = sim.lab.dir();
    wait_for(dir, dir, LIMIT, text, || process.output().contains(text));
}

#[test]
fn a_file_system_that_does_not_answer_is_not_asked() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let place = sim.lab.dir().join("mute");
        fs::create_dir(&place).expect("the bench's folder is ours");
        let system = match MuteFs::mount(&place) {
            Ok(system) => system,
            Err(skipped) => return skipped.report(),
        };
        let files = space(5);
        let client = bearer::start_with_path(&[files[0].as_fd(), files[1].as_fd()], &system.file());
        wait_output(&sim, &client, "opened");
        let link = fs::read_link(format!("/proc/{}/fd/9", client.pid())).expect("it has the file");
        assert!(link.ends_with("nvidia-uvm"), "it has the right name: {}", link.display());
        system.be_mute();
        let before = system.unanswered();
        let witness = Process::start(&mut sim.witness(&[&client.pid().to_string()]));
        sim.wait_event(&witness, "attached");
        let attached = find_event(&witness.output(), "attached").expect("it was just waited for");
        assert_eq!(attached["descriptors"].as_array().map(Vec::len), Some(2), "{attached}");
        assert_eq!(system.unanswered(), before, "nobody has asked the file system for anything");
        drop(system);
    });
}

/// More descriptors than are looked at.
const CROWD: u64 = 70_000;

#[test]
fn a_process_with_very_many_descriptors_is_looked_through_up_to_a_bound() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let files = space(6);
        let client = match bearer::start_behind(CROWD, &[files[0].as_fd(), files[1].as_fd()]) {
            Ok(client) => client,
            Err(skipped) => return skipped.report(),
        };
        let finished = sim.finish(Process::start(&mut sim.witness(&[&client.pid().to_string()])));
        let failed = find_event(&finished.stdout_text(), "failed").expect("it says why");
        assert!(failed["error"].as_str().is_some_and(|text| text.contains("among the first 65536")), "{failed}");
    });
}
