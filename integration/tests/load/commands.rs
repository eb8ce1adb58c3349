//! What commands cost, and what an idle daemon costs: nothing.

use integration::lab::client::Connection;
use integration::lab::pace::Pace;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage, long_or};
use nix::unistd::Pid;
use remps_proto::mps::handshake::Role;
use std::io::Write;
use std::time::{Duration, Instant};

const ROOT: u32 = 0;
/// What a debug build must do on a machine that does other things too; a release build does 2,000.
const DEBUG_COMMANDS_A_SECOND: f64 = 300.0;
const RELEASE_COMMANDS_A_SECOND: f64 = 2000.0;
/// Resident memory of an idle release build; a debug build's code is larger.
const RELEASE_MEMORY_KIB: u64 = 8 * 1024;
const DEBUG_MEMORY_KIB: u64 = 24 * 1024;

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn least_rate() -> f64 {
    if cfg!(debug_assertions) { DEBUG_COMMANDS_A_SECOND } else { RELEASE_COMMANDS_A_SECOND }
}

fn session(stage: &Stage) -> Connection {
    Connection::greeted(&stage.pipe_dir().join("control"), Role::UI).expect("greeted")
}

fn command(session: &Connection, line: &[u8]) -> Vec<u8> {
    session.send(&(line.len() as u64).to_le_bytes()).and_then(|()| session.send(line)).expect("sent");
    session.receive().expect("answered").bytes
}

fn status(pid: Pid, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel has it");
    line.trim_start_matches(':').split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
}

/// Processor time in clock ticks.
fn ticks(pid: Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let after = stat.rsplit_once(')').expect("a name").1;
    after.split_whitespace().skip(11).take(2).map(|word| word.parse::<u64>().expect("a number")).sum()
}

/// The best of ten parts counts: what else the machine does makes some of them slower, and a slow daemon all.
fn rate(stage: &Stage, what: &str, count: u32, mut one: impl FnMut()) {
    const PARTS: u32 = 10;
    let used = ticks(stage.daemon().pid());
    let rates = (0..PARTS).map(|_| {
        let began = Instant::now();
        (0..count / PARTS).for_each(|_| one());
        f64::from(count / PARTS) / began.elapsed().as_secs_f64()
    });
    let best = rates.fold(0.0, f64::max);
    let daemon = ticks(stage.daemon().pid()) - used;
    say(&format!("{what}: {best:.0} commands a second, {daemon} ticks of 10 ms in the daemon for {count}"));
    assert!(best >= least_rate(), "{what}: {best:.0} a second");
}

#[test]
fn commands_are_answered_fast_in_one_session_and_in_one_each() {
    Stage::run(|stage| {
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        let count = long_or(20_000, 2_000);
        let many = session(stage);
        let ask = format!("get_server_status {server}\n\0");
        rate(stage, "one session, answered by the daemon", count, || {
            assert!(command(&many, b"get_default_active_thread_percentage\n\0").ends_with(b"100.0"));
        });
        rate(stage, "one session, answered by the server", count, || {
            assert!(command(&many, ask.as_bytes()).ends_with(b"ACTIVE"));
        });
        rate(stage, "a session for each command", count, || {
            assert!(command(&session(stage), b"get_default_active_thread_percentage\n\0").ends_with(b"100.0"));
        });
    });
}

#[test]
fn an_idle_daemon_and_its_holder_wake_up_for_nothing_and_are_small() {
    Stage::run(|stage| {
        stage.start(&[]);
        Program::attached(stage, ROOT).leave();
        let _client = Program::attached(stage, ROOT);
        let parts = [stage.daemon().pid(), stage.only(Part::Holder)];
        let wake_ups = || {
            parts.map(|pid| {
                let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
                tasks
                    .map(|task| task.file_name().to_string_lossy().parse().expect("a number"))
                    .map(|task| status(Pid::from_raw(task), "voluntary_ctxt_switches"))
                    .sum::<u64>()
            })
        };
        // What was under way is done when a second has passed without a wake-up.
        let mut second = Pace::every(Duration::from_secs(1));
        let settled = (0..15).any(|_| {
            let before = wake_ups();
            second.wait();
            second.wait();
            wake_ups() == before
        });
        assert!(settled, "they never rest: {:?}", wake_ups());
        let before = wake_ups();
        for _ in 0..long_or(60, 5) {
            second.wait();
        }
        assert_eq!(wake_ups(), before, "wake-ups of daemon and holder while idle");
        let most = if cfg!(debug_assertions) { DEBUG_MEMORY_KIB } else { RELEASE_MEMORY_KIB };
        for (pid, who) in parts.into_iter().zip(["daemon", "holder"]) {
            let (resident, own) = (status(pid, "VmRSS"), status(pid, "RssAnon"));
            say(&format!("idle {who}: {resident} KiB resident, {own} KiB of it its own"));
            assert!(resident <= most, "{who}: {resident} KiB");
        }
    });
}
