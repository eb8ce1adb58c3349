//! A state that one message to the holder has no room for: everybody goes on after sudden death and a hand-over, wherever a
//! daemon dies that changes it. One that is too large keeps the daemon where it is.

use integration::lab::LIMIT;
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, Stage};
use integration::lab::sudden_death::died;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::time::Duration;

const ROOT: u32 = 0;
/// Named servers, each with a process of its own.
const NAMED: usize = 20;
/// Namespaces of another one.
const NAMESPACES: usize = 230;
/// Servers that are somebody's, by labels.
const LABELLED: usize = 40;
/// What a message has room for.
const ONE_MESSAGE: usize = 32 * 1024;

/// A name as long as one may be.
fn name(number: usize) -> String {
    format!("{:x<64}", format!("server_{number}_"))
}

/// Makes named servers with a limit of their own.
fn make(stage: &Stage, numbers: std::ops::Range<usize>) {
    let lines = numbers.map(|number| {
        let name = name(number);
        format!("server create {name}\nserver set {name} --active-thread-percentage=50\n")
    });
    assert_eq!(stage.ask(&lines.collect::<String>()), "");
}

/// Makes namespaces with a limit of their own, and as many limits by default as there may be.
fn furnish(stage: &Stage) {
    let server = "rooms";
    assert_eq!(stage.ask("server create rooms\n"), "");
    let namespaces = (0..NAMESPACES).map(|number| {
        let room = format!("{:x<64}", format!("room_{number}_"));
        format!("namespace create {room} --server={server}\nnamespace set {room} --server={server} --active-thread-percentage=50\n")
    });
    let limits = (0..90)
        .map(|number| format!("set_default_device_pinned_mem_limit GPU-{number:08}-0000-0000-0000-000000000000 3G\n"));
    assert_eq!(stage.ask(&namespaces.chain(limits).collect::<String>()), "");
}

/// A client of a server of its own.
fn labelled(stage: &Stage, number: usize) -> Program {
    let mut command = stage.command_as(ROOT, CLIENT, &[]);
    command.env("MPS_DOMAIN", format!("{:x<128}", format!("label-{number}-")));
    let program = Program::started_as(command);
    program.expect("attached");
    program
}

fn servers(stage: &Stage) -> Vec<Pid> {
    let mut servers = stage.servers();
    servers.sort();
    servers
}

/// Waits until the daemon has said something.
fn said(stage: &Stage, text: &str) {
    stage.wait_for(text, || stage.daemon().output().contains(text));
}

/// Everything is as it was: all servers, the last ones too, and their clients.
fn everybody_goes_on(stage: &Stage, clients: &mut [Program], before: &[Pid], named: usize) {
    clients.iter_mut().for_each(Program::ping);
    let now = servers(stage);
    assert!(before.iter().all(|server| now.contains(server)), "{before:?} {now:?}");
    for number in [0, named - 1] {
        let name = name(number);
        assert_eq!(stage.ask(&format!("namespace get default {name} active-thread-percentage\n")), "50.00\n");
        assert!(stage.pipe_dir().join(&name).join("control").exists());
    }
    let last = format!("{:x<64}", format!("room_{}_", NAMESPACES - 1));
    assert!(stage.pipe_dir().join("rooms").join(last).join("control").exists());
    let listed = stage.ask("server list --format=csv,noheader\n");
    assert_eq!(listed.lines().filter(|line| line.starts_with("server_")).count(), named, "{listed}");
    let log = stage.daemon().output();
    assert!(!log.contains("state can be left") && !log.contains("is gone on with"), "{log}");
}

#[test]
fn a_large_state_goes_on_whole_after_sudden_death_at_any_step_and_a_hand_over() {
    Stage::run(|stage| {
        stage.config("[domains]\nby = \"label\"\n");
        stage.start(&[]);
        make(stage, 0..NAMED);
        furnish(stage);
        let mut clients: Vec<Program> = (0..LABELLED).map(|number| labelled(stage, number)).collect();
        let before = servers(stage);
        stage.kill_daemon();
        stage.start(&[]);
        everybody_goes_on(stage, &mut clients, &before, NAMED);

        stage.daemon().signal(Signal::SIGUSR1);
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        stage.start(&[]);
        everybody_goes_on(stage, &mut clients, &before, NAMED);

        // In the middle of what it tells the holder of one server more: that is there, or not, and all others are.
        let mut named = NAMED;
        for step in 1..=4 {
            stage.kill_daemon();
            let point = format!("state-half-held:{step}");
            stage.launch(&[], &[("MPS_TEST_KILL_AT", &point)]);
            // It comes by there when it starts, too.
            stage.wait_for("the daemon's start, or its end", || {
                let daemon = stage.daemon();
                daemon.ended_within(Duration::ZERO) || stage.lab().daemon() == Some(daemon.pid())
            });
            let command = Process::start(&mut stage.lab().command(&["server", "create", &name(named)]));
            died(stage, &point);
            stage.start(&[]);
            let _ = command.finish(LIMIT).expect("it ends");
            if stage.ask("server list --format=csv,noheader\n").contains(&name(named)) {
                let name = name(named);
                assert_eq!(stage.ask(&format!("server set {name} --active-thread-percentage=50\n")), "");
                named += 1;
            }
            everybody_goes_on(stage, &mut clients, &before, named);
        }
        // That it was large is seen by a daemon that keeps no more than a message has room for.
        stage.kill_daemon();
        let most = ONE_MESSAGE.to_string();
        stage.launch(&[], &[("MPS_TEST_MOST_STATE", &most)]);
        stage.wait_up();
        said(stage, "Not all of the state can be left to a successor");
        clients.iter_mut().for_each(Program::ping);
        clients.into_iter().for_each(Program::leave);
    });
}

#[test]
fn a_state_that_is_too_large_is_told_and_refuses_the_hand_over_until_it_fits() {
    Stage::run(|stage| {
        stage.launch(&[], &[("MPS_TEST_MOST_STATE", "4000")]);
        stage.wait_up();
        let mut client = Program::attached(stage, ROOT);
        let server = stage.servers();
        make(stage, 0..60);
        said(stage, "Not all of the state can be left to a successor (it has ");
        let status = stage.ask("status -o wide\n");
        assert!(status.contains("holder: not all of the state can be left to a successor: it has "), "{status}");
        stage.daemon().signal(Signal::SIGUSR1);
        said(stage, "A signal to hand over is refused, since servers would be lost: it has ");
        client.ping();
        assert_eq!(stage.ask(&format!("namespace get default {} active-thread-percentage\n", name(59))), "50.00\n");

        let lines = (20..60).map(|number| format!("server delete {}\n", name(number)));
        assert_eq!(stage.ask(&lines.collect::<String>()), "");
        said(stage, "All of the state can be left to a successor again");
        assert!(!stage.ask("status -o wide\n").contains("left to a successor"));
        stage.daemon().signal(Signal::SIGUSR1);
        let finished = stage.take_daemon().finish(LIMIT).expect("it ends");
        assert_eq!(finished.code, Some(0));
        stage.start(&[]);
        client.ping();
        assert!(stage.servers().contains(&server[0]));
        assert_eq!(stage.ask(&format!("namespace get default {} active-thread-percentage\n", name(19))), "50.00\n");
        client.leave();
    });
}
