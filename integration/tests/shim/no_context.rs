//! A server that answers a newcomer's context with 401, as one of NVIDIA's has until it ended (`OBSERVED.md`): newcomers
//! get another one, on a program's word.

use integration::lab::LIMIT;
use integration::lab::process::{Process, run};
use integration::shim;
use integration::sim::{Sim, error_of, find_event, is_unharmed, wait};
use integration::under_test::once;
use std::process::Command;

const REFUSED: u64 = 401;
const SAID: &str = "a newcomer got no context there (CUDA error 401)";

/// A program whose copy of the driver of this number gets 401 for its first context.
fn refused(sim: &Sim, copy: u32, replay: &str, arguments: &[&str]) -> Command {
    let mut command = shim::recording(sim.command("mps-replay-probe", arguments));
    command
        .env("MPS_SHIM_REPLAY", replay)
        .env("MPS_SIM_FAIL_AT", format!("{copy}:cuDevicePrimaryCtxRetain:1:{REFUSED}"));
    command
}

#[test]
fn a_newcomer_that_gets_no_context_has_the_next_ones_get_another_server_and_nobody_loses_anything() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let bystander = sim.start_with_input("mps-bystander", &[], "ready");
        let before = sim.server();
        let finished = run(&mut refused(&sim, 1, "in-place", &["--light"]), b"", LIMIT).expect("it runs");
        assert_eq!(error_of(&finished), Some(REFUSED), "{subject}: {finished:?}");
        sim.lab.wait_log("control.log", SAID);
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}: the next one is served");
        wait(&sim, "another server", || sim.servers().iter().any(|server| *server != before));
        is_unharmed(&sim, &bystander);
        assert!(sim.servers().contains(&before), "{subject}: it stays as long as somebody is there");
        drop(bystander);
        wait(&sim, "its end", || !sim.servers().contains(&before));
    });
}

#[test]
fn without_the_library_and_with_another_error_the_server_stays() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let _bystander = sim.start_with_input("mps-bystander", &[], "ready");
        let before = sim.servers();
        let mut bare = sim.command("mps-first-alloc", &[]);
        bare.env("MPS_SIM_FAIL_AT", format!("1:cuDevicePrimaryCtxRetain:1:{REFUSED}"));
        assert_eq!(error_of(&run(&mut bare, b"", LIMIT).expect("it runs")), Some(REFUSED), "{subject}");
        let mut other = refused(&sim, 1, "in-place", &["--light"]);
        other.env("MPS_SIM_FAIL_AT", "1:cuDevicePrimaryCtxRetain:1:2");
        assert_eq!(error_of(&run(&mut other, b"", LIMIT).expect("it runs")), Some(2), "{subject}");
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
        assert_eq!(sim.servers(), before, "{subject}");
        assert!(!sim.lab.log("control.log").contains(SAID), "{subject}");
    });
}

#[test]
fn a_recovery_whose_fresh_copy_gets_no_context_goes_on_on_another_server() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let finished =
            run(&mut refused(&sim, 2, "in-place", &["--faults", "trap", "--light"]), b"", LIMIT).expect("it runs");
        assert_eq!(error_of(&finished), None, "{subject}: {finished:?}");
        let end = find_event(&finished.stdout_text(), "end").expect("it ends");
        assert_eq!((&end["is_intact"], &end["last"]["begun_again"]), (&true.into(), &1.into()), "{subject}: {end}");
        assert!(sim.lab.log("control.log").contains(SAID), "{subject}: {}", sim.lab.log("control.log"));
    });
}

#[test]
fn a_spare_copy_that_gets_no_context_has_its_server_left_and_gets_another_one() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        let mut command = refused(&sim, 2, "spare", &["--light", "--until-stdin-closes"]);
        let program = Process::start_with_input(command.env("MPS_SHIM_LOG", "1"));
        sim.wait_event(&program, "ready");
        sim.lab.wait_log("control.log", SAID);
        wait(&sim, "a spare copy", || program.errors().contains("a spare copy of the driver stands"));
        let log = sim.lab.log("control.log");
        let said = log.lines().find(|line| line.contains(SAID)).expect("it says so");
        let is_left = |server: &i32| said.contains(&format!("Server {server} takes"));
        wait(&sim, "its end", || !sim.servers().iter().any(is_left));
        assert!(!sim.servers().is_empty(), "{subject}: the program's own stays");
        let finished = program.finish(LIMIT).expect("it ends");
        assert_eq!(find_event(&finished.stdout_text(), "end").expect("it ends")["is_intact"], true, "{subject}");
    });
}
