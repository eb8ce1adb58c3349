//! A standby maps what its predecessor leaves while that still ends, and has its turn with the proof that nothing can write
//! there any more, whoever dies meanwhile.
//!
//! The proof is held up by stopping the predecessor's server; a predecessor that is dead and has not ended is one of which a
//! thread is traced.

mod deaths;

use super::steps::is_succeeded;
use integration::lab::LIMIT;
use integration::lab::escrow::TAKES_MEMORY_FILES;
use integration::lab::half_dead::HalfDead;
use integration::lab::process::ended_within;
use integration::shim;
use integration::shim::heir::Heir;
use integration::sim::{Sim, wait};
use integration::under_test::{Subject, once};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;

/// A standby on another server, and no server that is killed because it is stopped.
const STANDBY: [(&str, &str); 2] = [("MPS_SHIM_STANDBY", "1"), ("MPS_DOMAIN", "standby")];
const CONFIG: &str = "kill_timeout = 3600\n[domains]\nby = \"label\"\n";
/// What a predecessor has: a slab for the small one, and the large one's own.
const REGIONS: usize = 2;
/// Steps of a standby that has mapped what was offered, while its predecessor's server has not ended.
pub(super) const MAPPING: [&str; 2] = ["offer-answered", "offer-mapped"];
/// Of one to which that is offered no more.
pub(super) const WITHDRAWN: &str = "offer-withdrawn";

/// Pieces of GPU memory that a process has mapped.
fn mapped(pid: Pid) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains("/memfd:nvidia-vmm")).count()
}

/// A predecessor that has committed, on a server that is stopped where that is wanted, and no standby yet.
struct Scene {
    sim: Sim,
    primary: Heir,
    server: Pid,
}

impl Scene {
    fn new(subject: &Subject) -> Self {
        Self::on(Sim::new(subject, &[TAKES_MEMORY_FILES]))
    }

    fn on(sim: Sim) -> Self {
        sim.config(CONFIG);
        sim.lab.start(&[]);
        let mut primary = Heir::start(&sim, "llm");
        primary.succeeds("make small 5000 1", "made");
        primary.succeeds("make large 34603012 3", "made");
        primary.succeeds("commit 6 10000", "committed");
        let server = Pid::from_raw(sim.server());
        Self { sim, primary, server }
    }

    /// One that waits for its turn.
    fn standby(&self, more: &[(&str, &str)]) -> Heir {
        let mut standby = Heir::begin(&self.sim, "llm", &[&STANDBY, more].concat());
        let _ready = standby.event("ready");
        standby.tell("wait 60000");
        standby
    }

    /// The predecessor ends by a signal, and its server stands still, so that there is no proof of rest.
    fn predecessor_dies(&mut self) {
        self.stop_server();
        let pid = self.primary.pid();
        self.primary.tell("abort");
        assert!(ended_within(pid, LIMIT), "{pid} does not end");
    }

    fn stop_server(&self) {
        kill(self.server, Signal::SIGSTOP).expect("it is ours");
    }

    fn server_goes_on(&self) {
        kill(self.server, Signal::SIGCONT).expect("it is ours");
    }

    /// Waits until a standby has mapped this many pieces.
    fn waits_until_mapped(&self, standby: &Heir, pieces: usize) {
        wait(&self.sim, &format!("{pieces} mapped pieces"), || mapped(standby.pid()) == pieces);
    }
}

/// What was adopted is what was there, with the proof that no channel is left.
fn is_whole(adopted: &Value) {
    assert_eq!((&adopted["code"], &adopted["is_intact"]), (&0.into(), &true.into()), "{adopted}");
    let recovery = &adopted["recovery"];
    assert_eq!((&recovery["generation"], &recovery["ranges"], &recovery["rest"]), (&6.into(), &2.into(), &2.into()));
    assert_eq!(recovery["regions"], REGIONS, "{adopted}");
}

/// The times of its steps: told of the end, mapped, at rest.
fn times(adopted: &Value) -> [u64; 3] {
    ["offered_us", "mapped_us", "wait_us"].map(|step| adopted["recovery"][step].as_u64().expect("a number"))
}

fn is_mapped_ahead(adopted: &Value) {
    is_whole(adopted);
    let [offered, mapped, at_rest] = times(adopted);
    assert!(0 < offered && offered <= mapped && mapped <= at_rest, "{adopted}");
}

#[test]
fn a_standby_has_all_mapped_before_its_predecessor_is_at_rest_and_its_turn_then() {
    once(|subject| {
        let scene = Scene::new(subject);
        let standby = scene.standby(&[]);
        assert_eq!(mapped(standby.pid()), 0, "nothing is offered of who lives");
        scene.stop_server();
        let Scene { sim, primary, server } = scene;
        primary.kill_9();
        wait(&sim, "the mapping", || mapped(standby.pid()) == REGIONS);
        let told = sim.lab.ask("vault list --json\n");
        let owners: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(owners.iter().all(|region| region["pid"] != standby.pid().as_raw()), "nothing is its own: {told}");
        kill(server, Signal::SIGCONT).expect("it is ours");
        is_mapped_ahead(&standby.event("adopted"));
        assert!(ended_within(server, LIMIT));
        standby.kill_9();
        is_succeeded(&sim, &[6], "after the standby");
    });
}

#[test]
fn a_predecessor_that_dies_and_has_not_ended_is_known_by_its_connection_and_its_server_ends_meanwhile() {
    once(|subject| {
        let Scene { sim, primary, server } = Scene::new(subject);
        let mut standby = Heir::begin(&sim, "llm", &STANDBY);
        let _ready = standby.event("ready");
        standby.tell("wait 60000");
        let dying = HalfDead::keep(primary.pid());
        kill(primary.pid(), Signal::SIGKILL).expect("it is ours");
        wait(&sim, "the mapping", || mapped(standby.pid()) == REGIONS);
        wait(&sim, "its server's end", || !sim.servers().contains(&server.as_raw()));
        let told = sim.lab.ask("vault list --json\n");
        assert_eq!(told.matches(&format!("\"pid\":{}", primary.pid())).count(), REGIONS, "its own as yet: {told}");
        drop(dying);
        is_mapped_ahead(&standby.event("adopted"));
        primary.kill_9();
        standby.kill_9();
        is_succeeded(&sim, &[6], "after the standby");
    });
}

#[test]
fn a_predecessor_whose_server_others_are_on_is_waited_for_and_its_server_left_alone() {
    once(|subject| {
        let Scene { sim, primary, server } = Scene::new(subject);
        let mut other = Heir::start(&sim, "other");
        let mut standby = Heir::begin(&sim, "llm", &STANDBY);
        let _ready = standby.event("ready");
        standby.tell("wait 60000");
        let dying = HalfDead::keep(primary.pid());
        kill(primary.pid(), Signal::SIGKILL).expect("it is ours");
        wait(&sim, "the mapping", || mapped(standby.pid()) == REGIONS);
        drop(dying);
        let adopted = standby.event("adopted");
        assert_eq!((&adopted["code"], &adopted["recovery"]["rest"]), (&0.into(), &1.into()), "{adopted}");
        assert!(sim.servers().contains(&server.as_raw()));
        other.succeeds("make small 5000 1", "made");
        assert!(other.ended().success());
        drop(primary);
    });
}

#[test]
fn a_standby_that_dies_with_the_memory_mapped_is_followed_by_the_next_one() {
    once(|subject| {
        let mut scene = Scene::new(subject);
        let first = scene.standby(&[]);
        scene.predecessor_dies();
        scene.waits_until_mapped(&first, REGIONS);
        let second = scene.standby(&[]);
        first.kill_9();
        scene.waits_until_mapped(&second, REGIONS);
        scene.server_goes_on();
        is_mapped_ahead(&second.event("adopted"));
        second.kill_9();
        is_succeeded(&scene.sim, &[6], "after both");
    });
}

#[test]
fn a_daemon_that_is_killed_or_replaced_meanwhile_offers_anew_and_gives_all() {
    once(|subject| {
        for signal in [Signal::SIGKILL, Signal::SIGUSR1] {
            let mut scene = Scene::new(subject);
            let standby = scene.standby(&[]);
            scene.predecessor_dies();
            scene.waits_until_mapped(&standby, REGIONS);
            let daemon = scene.sim.lab.running_daemon();
            kill(daemon, signal).expect("it is ours");
            scene.sim.lab.wait_gone(daemon);
            scene.sim.lab.start(&[]);
            scene.server_goes_on();
            is_whole(&standby.event("adopted"));
            standby.kill_9();
            is_succeeded(&scene.sim, &[6], signal.as_ref());
        }
    });
}

#[test]
fn a_name_that_the_restarted_predecessor_takes_meanwhile_is_unmapped_and_waited_for_again() {
    once(|subject| {
        let mut scene = Scene::new(subject);
        let standby = scene.standby(&[]);
        scene.predecessor_dies();
        scene.waits_until_mapped(&standby, REGIONS);
        // Of an earlier release: it adopts without a proof.
        let mut restarted = Heir::of(scene.sim.command("mps-vault-client", &[]));
        assert_eq!(restarted.line(), Some("attached".into()));
        restarted.tell("adopt llm");
        let told = restarted.line().expect("an answer").to_string();
        assert!(told.contains(&format!("done {REGIONS}")), "{told}");
        scene.waits_until_mapped(&standby, 0);
        scene.server_goes_on();
        restarted.kill_9();
        is_whole(&standby.event("adopted"));
        standby.kill_9();
        is_succeeded(&scene.sim, &[6], "after all");
    });
}

#[test]
fn a_predecessor_that_has_lost_its_work_is_mapped_ahead_while_it_lives() {
    once(|subject| {
        let sim = Sim::new(subject, &[TAKES_MEMORY_FILES]);
        let scene = Scene::on(sim);
        let standby = scene.standby(&[]);
        let mut culprit = Heir::start(&scene.sim, "culprit");
        culprit.tell("fault trap");
        let _launched = culprit.event("launched");
        let _lost = culprit.event("lost");
        scene.waits_until_mapped(&standby, REGIONS);
        assert!(fs::exists(format!("/proc/{}", scene.primary.pid())).unwrap(), "it does not know");
        drop(culprit);
        scene.primary.kill_9();
        is_mapped_ahead(&standby.event("adopted"));
    });
}

#[test]
fn memory_that_can_not_be_mapped_ahead_is_mapped_when_its_turn_has_come() {
    once(|subject| {
        let mut scene = Scene::new(subject);
        let library = shim::with_steps().to_str().expect("a plain path").to_owned();
        let standby = scene.standby(&[("LD_PRELOAD", &library), ("MPS_SHIM_TEST_AT", "fail:map-ahead:1")]);
        scene.predecessor_dies();
        // With the news of the end the daemon has made the offer, which this one can't map.
        let is_left = |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|region| region["left_s"].is_number());
        wait(&scene.sim, "the end of its owner", || {
            let told = scene.sim.lab.ask("vault list --json\n");
            !told.is_empty() && told.lines().all(is_left)
        });
        scene.server_goes_on();
        let adopted = standby.event("adopted");
        is_whole(&adopted);
        let [offered, mapped, at_rest] = times(&adopted);
        assert!(offered == 0 && mapped >= at_rest, "{adopted}");
    });
}
