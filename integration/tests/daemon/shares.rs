//! Limits that the clients of a domain share: no client has more than its part, and no more come in than there are parts.

use integration::lab::claim::Claim;
use integration::lab::place::{Container, within};
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, Stage};
use integration::under_test::Skipped;
use nix::unistd::geteuid;

/// The limits of a container, as the device plugin sets them.
const LIMITS: &str = "set_default_device_pinned_mem_limit 0 8192M\nset_default_active_thread_percentage 50\n";

/// What each client of a server may have.
fn of_each(stage: &Stage, server: impl std::fmt::Display) -> String {
    stage.ask(&format!("get_device_pinned_mem_limit {server} 0\nget_active_thread_percentage {server}\n"))
}

fn client(stage: &Stage, place: Option<&Container>) -> Program {
    let command = stage.command_as(geteuid().as_raw(), CLIENT, &[]);
    let Some(container) = place else { return Program::started_as(command) };
    let entered = container.entered();
    Program::started_as(within(&entered.each_ref().map(String::as_str), &command))
}

fn is_refused(stage: &Stage, place: Option<&Container>) {
    let one_more = client(stage, place);
    assert!(!one_more.is_served(), "there is no part for it");
    let line = "refused, limits are shared by 2 clients (shared_by), and as many are there";
    stage.wait_for("the reason in the log", || {
        stage.daemon().output().contains(&format!("NEW CLIENT {} from user {}: {line}", one_more.pid(), geteuid()))
    });
}

#[test]
fn clients_that_share_a_limit_have_a_part_each_and_one_more_is_refused_until_one_leaves() {
    Stage::run(|stage| {
        stage.config("[domains]\nshared_by = 2\n");
        stage.start(&[]);
        let _defaults = stage.ask(LIMITS);
        let mut clients: Vec<Program> = (0..2).map(|_| client(stage, None)).collect();
        clients.iter().for_each(|client| client.expect("attached"));
        let [server] = stage.servers()[..] else { panic!("{:?}", stage.servers()) };
        assert_eq!(of_each(stage, server), "4G\n25.0\n");
        is_refused(stage, None);
        clients.iter_mut().for_each(Program::ping);
        // Who was there knows nothing of a daemon's death, and counts with the next one.
        stage.kill_daemon();
        stage.start(&[]);
        is_refused(stage, None);
        assert_eq!(of_each(stage, server), "4G\n25.0\n");
        clients.pop().expect("two").leave();
        let next = client(stage, None);
        next.expect("attached");
        is_refused(stage, None);
        clients.into_iter().chain([next]).for_each(Program::leave);
    });
}

#[test]
fn each_pod_has_its_limit_for_all_its_clients_together() {
    Stage::run(|stage| {
        let pods =
            [1, 2].map(|number| Container::make(&format!("22222222-0000-0000-0000-{number:012x}"), 0xc0 + number));
        let [Ok(one), Ok(two)] = pods else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        stage.config("[domains]\nby = \"cgroup\"\nshared_by = 2\n");
        stage.start(&[]);
        let _defaults = stage.ask(LIMITS);
        let places = [&one, &one, &two];
        let clients = places.map(|place| client(stage, Some(place)));
        clients.iter().for_each(|client| client.expect("attached"));
        let servers = stage.servers();
        assert_eq!(servers.len(), 2);
        assert!(servers.iter().all(|server| of_each(stage, server) == "4G\n25.0\n"));
        is_refused(stage, Some(&one));
        let fourth = client(stage, Some(&two));
        fourth.expect("attached");
        is_refused(stage, Some(&two));
        clients.into_iter().chain([fourth]).for_each(Program::leave);
    });
}

#[test]
fn a_claims_limit_is_for_all_its_clients_together() {
    Stage::run(|stage| {
        stage.config("[domains]\nshared_by = 2\n");
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        for line in LIMITS.lines() {
            claim.ask(stage, line);
        }
        let clients = [claim.client(stage), claim.client(stage)];
        let [server] = &claim.servers(stage)[..] else { panic!("{:?}", claim.servers(stage)) };
        assert_eq!(of_each(stage, server), "4G\n25.0\n");
        assert_eq!(claim.ask(stage, "get_default_device_pinned_mem_limit 0"), "8G\n", "what was said of all");
        let mut command = stage.command_as(geteuid().as_raw(), CLIENT, &[]);
        command.env("CUDA_MPS_PIPE_DIRECTORY", &claim.pipe);
        assert!(!Program::started_as(command).is_served());
        clients.into_iter().for_each(Program::leave);
    });
}
