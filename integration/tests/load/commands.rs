//! Thousands of commands, and what an idle daemon does: nothing. What they cost is for the benchmark to say
//! (`integration::bench`).

use integration::lab::commands::{ask, session};
use integration::lab::pace::Pace;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage, long_or};
use nix::unistd::Pid;
use std::io::Write;
use std::time::Duration;

const ROOT: u32 = 0;
/// Resident memory of an idle release build. A debug build's code is larger, and the kernel maps as much of it ahead as it has
/// at hand: 23.8 to 25 MiB of the same program, by how its file was written.
const RELEASE_MEMORY_KIB: u64 = 8 * 1024;
const DEBUG_MEMORY_KIB: u64 = 32 * 1024;
/// What either build has for itself.
const OWN_MEMORY_KIB: u64 = 4 * 1024;
/// Spells in which they may have something to do yet, or somebody else makes them do something.
const SPELLS: usize = 20;

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A number that the kernel tells of a process or a thread; `None` when that is gone.
fn status(pid: Pid, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel has it");
    line.trim_start_matches(':').split_whitespace().next().and_then(|word| word.parse().ok())
}

#[test]
fn thousands_of_commands_are_answered_in_one_session_and_in_one_each() {
    Stage::run(|stage| {
        stage.start(&[]);
        let _client = Program::attached(stage, ROOT);
        let server = stage.only(Part::Server);
        let many = session(stage.pipe_dir()).expect("greeted");
        let percentage = "get_default_active_thread_percentage";
        for _ in 0..long_or(20_000, 2_000) {
            assert!(ask(&many, percentage).expect("answered").ends_with(b"100.0"));
            assert!(ask(&many, &format!("get_server_status {server}")).expect("answered").ends_with(b"ACTIVE"));
            let own = session(stage.pipe_dir()).expect("greeted");
            assert!(ask(&own, percentage).expect("answered").ends_with(b"100.0"));
        }
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
                    // A thread that has just ended has changed the sum, too.
                    .filter_map(|task| status(Pid::from_raw(task), "voluntary_ctxt_switches"))
                    .sum::<u64>()
            })
        };
        // What was under way has to be done first, and a busy machine makes a process give its core away at times. One
        // that wakes up by itself does so in every spell.
        let mut second = Pace::every(Duration::from_secs(1));
        let seconds = long_or(60, 3);
        let rests = (0..SPELLS).any(|_| {
            let before = wake_ups();
            (0..seconds).for_each(|_| second.wait());
            wake_ups() == before
        });
        assert!(rests, "they never rest for {seconds} s: {:?}", wake_ups());
        let most = if cfg!(debug_assertions) { DEBUG_MEMORY_KIB } else { RELEASE_MEMORY_KIB };
        for (pid, who) in parts.into_iter().zip(["daemon", "holder"]) {
            let [resident, own] = ["VmRSS", "RssAnon"].map(|field| status(pid, field).expect("it runs"));
            say(&format!("idle {who}: {resident} KiB resident, {own} KiB of it its own"));
            assert!(resident <= most && own <= OWN_MEMORY_KIB, "{who}: {resident} KiB, {own} KiB of it its own");
        }
    });
}
