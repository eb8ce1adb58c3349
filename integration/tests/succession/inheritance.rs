//! Copies of clients' UVM descriptors when the daemon dies: the holder has them too, and a successor goes on with it.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::sim::{Sim, error_of, held, is_unharmed, wait};
use integration::under_test::{Subject, for_each, only_ours};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sim_wire::uvm;
use std::fs::File;

fn once(test: impl Fn(&Subject)) {
    for_each(only_ours().map(|subjects| subjects.into_iter().skip(1).collect()), test);
}

/// Copies are kept for longer than a test takes: what ends them is told by the test.
const KEEPS: &str = "[funerals]\nhold_timeout = 3600\nendless_hold = 0\n";
/// They are kept for a moment.
const KEEPS_BRIEFLY: &str = "[funerals]\nhold_timeout = 0.5\nendless_hold = 0\n";

fn bench(subject: &Subject, config: &str) -> Sim {
    let sim = Sim::watched(subject, &[]);
    sim.config(config);
    sim.lab.start(&[]);
    sim
}

fn kill_daemon(sim: &Sim) {
    let daemon = sim.lab.running_daemon();
    kill(daemon, Signal::SIGKILL).expect("it runs");
    sim.lab.wait_gone(daemon);
}

/// A client in a kernel that ends when the test says so, beside a bystander.
struct Scene {
    bystander: Process,
    dying: Process,
    file: File,
}

impl Scene {
    fn begin(sim: &Sim) -> Self {
        let bystander = sim.start("mps-bystander", &["--every-ms", "50"], "ready");
        let dying = sim.start("mps-aggressor", &["endless"], "launched");
        let file = held::look_at(dying.pid());
        // Launching returns before the kernel runs.
        wait(sim, "the kernel runs", || uvm::busy_until(&file).is_ok_and(|until| until > uvm::now()));
        Self { bystander, dying, file }
    }

    /// Kills the client; returns its pid when nobody but a keeper has its descriptors.
    fn kill(&self) -> Pid {
        self.dying.signal(Signal::SIGKILL);
        assert!(self.dying.ended_within(LIMIT));
        self.dying.pid()
    }

    fn is_held(&self) -> bool {
        uvm::is_held(&self.file).expect("the file is open")
    }

    fn end_the_kernel(&self) {
        uvm::end_work(&self.file).expect("the file is open");
    }

    /// Lets everybody leave, which is the end of the server and of what is kept for its sake.
    fn leave(self, sim: &Sim) -> File {
        let Self { bystander, dying, file } = self;
        drop((bystander, dying));
        wait(sim, "the end of the funeral", || !uvm::is_held(&file).expect("the file is open"));
        file
    }
}

fn funeral(event: &str, pid: Pid) -> String {
    format!("\"event\":\"funeral-{event}\",\"process\":{{\"pid\":{pid},")
}

#[test]
fn a_funeral_outlives_the_daemon_and_its_successor_ends_it() {
    once(|subject| {
        let sim = bench(subject, KEEPS);
        let scene = Scene::begin(&sim);
        let pid = scene.kill();
        wait(&sim, "the funeral", || sim.lab.log("events.jsonl").contains(&funeral("begun", pid)));
        kill_daemon(&sim);
        assert!(scene.is_held(), "the holder has them");
        sim.lab.start(&[]);
        assert!(scene.is_held(), "{}", sim.lab.log("control.log"));
        is_unharmed(&sim, &scene.bystander);
        scene.end_the_kernel();
        assert!(sim.lab.ask("status --json\n").contains(&format!("\"pid\":{pid}")), "the successor mourns it");
        let _ = scene.leave(&sim);
        wait(&sim, "its record", || sim.lab.log("events.jsonl").contains(&funeral("ended", pid)));

        // Whoever is there when its time is over, the first daemon, the holder or the second, ends it.
        let sim = bench(subject, KEEPS_BRIEFLY);
        let scene = Scene::begin(&sim);
        scene.end_the_kernel();
        let pid = scene.kill();
        wait(&sim, "the funeral", || sim.lab.log("events.jsonl").contains(&funeral("begun", pid)));
        kill_daemon(&sim);
        sim.lab.start(&[]);
        wait(&sim, "the end of the funeral", || !scene.is_held());
        is_unharmed(&sim, &scene.bystander);
    });
}

#[test]
fn a_client_that_dies_while_there_is_no_daemon_harms_nobody_and_the_holder_keeps_its_copies_for_their_time() {
    once(|subject| {
        let sim = bench(subject, KEEPS);
        let scene = Scene::begin(&sim);
        kill_daemon(&sim);
        scene.kill();
        assert!(scene.is_held());
        is_unharmed(&sim, &scene.bystander);
        drop((scene, sim));

        let sim = bench(subject, KEEPS_BRIEFLY);
        let scene = Scene::begin(&sim);
        kill_daemon(&sim);
        scene.end_the_kernel();
        scene.kill();
        wait(&sim, "the holder closes them", || !scene.is_held());
        is_unharmed(&sim, &scene.bystander);
    });
}

#[test]
fn a_client_that_dies_after_a_successor_came_is_mourned_as_ever() {
    once(|subject| dies_after_a_successor_came(bench(subject, KEEPS)));
}

#[test]
fn a_client_that_dies_before_its_successor_has_looked_at_it_is_mourned_too() {
    once(|subject| {
        let mut sim = bench(subject, KEEPS);
        // Longer than it takes to kill the client; the first daemon has been started without.
        sim.lab = sim.lab.with("MPS_SIM_UVM_INIT_MS", "1500");
        dies_after_a_successor_came(sim);
    });
}

fn dies_after_a_successor_came(sim: Sim) {
    let scene = Scene::begin(&sim);
    kill_daemon(&sim);
    sim.lab.start(&[]);
    let pid = scene.kill();
    wait(&sim, "the funeral", || sim.lab.log("events.jsonl").contains(&funeral("begun", pid)));
    assert!(scene.is_held(), "{}", sim.lab.log("control.log"));
    is_unharmed(&sim, &scene.bystander);
    scene.end_the_kernel();
    let _ = scene.leave(&sim);
    wait(&sim, "its record", || sim.lab.log("events.jsonl").contains(&funeral("ended", pid)));
}

#[test]
fn nothing_is_kept_of_a_client_that_left_in_good_order_before_or_after() {
    once(|subject| {
        let sim = bench(subject, "[funerals]\nhold_timeout = 1\n");
        let leaving = || {
            let process = sim.start_with_input("mps-bystander", &["--until-stdin-closes"], "ready");
            let file = held::look_at(process.pid());
            (process, file)
        };
        let (first, file) = leaving();
        assert_eq!(error_of(&sim.finish(first)), None);
        wait(&sim, "its copies are closed", || !uvm::is_held(&file).expect("the file is open"));
        let (second, file) = leaving();
        kill_daemon(&sim);
        assert_eq!(error_of(&sim.finish(second)), None);
        // Nobody is there to say how it ended.
        wait(&sim, "its copies are closed", || !uvm::is_held(&file).expect("the file is open"));
    });
}
