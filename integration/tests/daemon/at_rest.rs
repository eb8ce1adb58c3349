//! `at-rest`: it is said only where there is proof that nothing can write to GPU memory any more.

use integration::lab::process::{Finished, Process};
use integration::lab::{LIMIT, watch};
use integration::sim::{Sim, held};
use integration::under_test::{for_each, only_ours};
use nix::sys::signal::Signal;
use sim_wire::uvm;

/// Seconds that are not over before whatever is waited for has happened.
const PATIENT: &str = "3600";

fn ask(sim: &Sim, arguments: &[&str]) -> Finished {
    sim.lab.run(&[&["at-rest"], arguments].concat(), b"")
}

#[track_caller]
fn assert_rest(finished: &Finished, code: i32, lines: &[String]) {
    let text: Vec<String> = finished.stdout_text().lines().map(str::to_owned).collect();
    assert_eq!((finished.code, text.as_slice(), finished.stderr_text().as_str()), (Some(code), lines, ""));
}

#[track_caller]
fn assert_unknown(finished: &Finished, whom: &str) {
    let told = (finished.code, finished.stdout_text(), finished.stderr_text());
    assert_eq!(told, (Some(1), String::new(), format!("{whom} not found\n")));
}

/// A client in a kernel that never ends.
fn in_endless_kernel(sim: &Sim) -> Process {
    let process = sim.start("mps-aggressor", &["endless"], "launched");
    let file = held::look_at(process.pid());
    let runs = || uvm::busy_until(&file).is_ok_and(|until| until > uvm::now());
    watch::wait_for(sim.lab.dir(), sim.lab.dir(), LIMIT, "the kernel runs", runs);
    process
}

/// The client is in no list any more.
fn wait_forgotten(sim: &Sim, server: i32, pid: &str) {
    let question = format!("get_client_list {server}\n");
    let is_gone = || !sim.lab.ask(&question).lines().any(|line| line.trim() == pid);
    watch::wait_for(sim.lab.dir(), sim.lab.dir(), LIMIT, "the server has forgotten it", is_gone);
    let lives = format!("  process {pid} lives");
    let is_noticed = || !ask(sim, &[pid]).stdout_text().lines().any(|line| line == lives);
    watch::wait_for(sim.lab.dir(), sim.lab.dir(), LIMIT, "the daemon has noticed its end", is_noticed);
}

#[test]
fn a_client_killed_in_a_kernel_is_not_at_rest_until_its_server_is_reaped() {
    for_each(only_ours(), |subject| {
        // The daemon holds what keeps the dead client's kernel from harming others, so their server lives on.
        let sim = Sim::watched(subject, &[]);
        sim.lab.start(&[]);
        let other = sim.start_with_input("mps-bystander", &["--until-stdin-closes"], "ready");
        let client = in_endless_kernel(&sim);
        let (server, pid) = (sim.server(), client.pid().to_string());
        let not_yet = format!("Client {pid} is not at rest");
        assert_rest(&ask(&sim, &[&pid]), 1, &[not_yet.clone(), format!("  process {pid} lives")]);
        client.signal(Signal::SIGKILL);
        let _ = sim.finish(client);
        wait_forgotten(&sim, server, &pid);
        let kernel = format!("  server {server} lives: a kernel may still run there");
        assert_rest(&ask(&sim, &[&pid]), 1, &[not_yet.clone(), kernel.clone()]);
        // A wait that is over says the same.
        assert_rest(&ask(&sim, &[&pid, "--wait", "1"]), 1, &[not_yet, kernel]);
        other.signal(Signal::SIGKILL);
        let _ = sim.finish(other);
        let _ = sim.lab.ask(&format!("shutdown_server {server} -f\n"));
        let proof = |whom: &str| format!("{whom} is at rest");
        let reaped = format!("  server {server} has ended, and no channel of it is left");
        let lines = [proof(&format!("Client {pid}")), format!("  process {pid} has ended"), reaped.clone()];
        assert_rest(&ask(&sim, &[&pid, "--wait", PATIENT]), 0, &lines);
        assert_rest(&ask(&sim, &["--server", &server.to_string()]), 0, &[proof(&format!("Server {server}")), reaped]);
    });
}

#[test]
fn a_user_is_at_rest_when_all_his_clients_and_their_servers_are_gone() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        let uid = nix::unistd::geteuid().to_string();
        let idle = ask(&sim, &["--user", &uid]);
        assert_eq!((idle.code, idle.stdout_text().lines().count()), (Some(0), 2), "{idle:?}");
        let client = sim.start("mps-bystander", &[], "ready");
        let server = sim.server();
        let busy: serde_json::Value =
            serde_json::from_str(&ask(&sim, &["--user", &uid, "--json"]).stdout_text()).expect("JSON");
        assert_eq!((&busy["at_rest"], &busy["awaited"][0]["what"]), (&false.into(), &"process".into()), "{busy}");
        assert_eq!(busy["awaited"][0]["pid"], client.pid().as_raw());
        client.signal(Signal::SIGKILL);
        let _ = sim.finish(client);
        let _ = sim.lab.ask(&format!("shutdown_server {server} -f\n"));
        let finished = ask(&sim, &["--user", &uid, "--json", "--wait", PATIENT]);
        let rest: serde_json::Value = serde_json::from_str(&finished.stdout_text()).expect("JSON");
        assert_eq!((finished.code, &rest["at_rest"]), (Some(0), &true.into()), "{rest}");
        assert_eq!(rest["ended"]["servers"][0], server);
    });
}

#[test]
fn of_who_is_unknown_nothing_is_proven() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        // This process is no client, and one with the largest number is none.
        let own = std::process::id().to_string();
        assert_unknown(&ask(&sim, &[&own]), &format!("Client {own}"));
        assert_unknown(&ask(&sim, &["4294967295", "--wait", PATIENT]), "Client 4294967295");
        assert_unknown(&ask(&sim, &["--server", &own]), &format!("Server {own}"));
    });
}
