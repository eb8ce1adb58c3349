//! `kill -9` of the daemon at every point of the life of a server and a client: nobody else notices.
//!
//! The daemon kills itself at a named point (`controld/src/failpoint.rs`); another one is started in the same folder.
//! Every program that was being served or waited must be served without an error, by one server for each user, and
//! nothing may be left over when all have gone.

use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::lab::sudden_death::{died, launch_armed, never_killed, nothing_leaks, settled, succeed_armed};

const ROOT: u32 = 0;
const USER: u32 = 1000;

/// The points that a daemon comes by when its first client arrives.
const FIRST_CLIENT: &[&str] = &[
    "accepted",
    "credentials-taken",
    "role-seen",
    "role-noted",
    "role-taken",
    "client-waits",
    "before-spawn",
    "spawned",
    "stderr-held",
    "saved",
    "spawn-saved",
    // The server's own connection.
    "accepted:2",
    "credentials-taken:2",
    "role-seen:2",
    "server-role-noted",
    "server-role-taken",
    "hello-seen",
    "hello-noted",
    "hello-taken",
    "configuration-sent",
    "link-held",
    "saved:2",
    "dispatching-noted",
    "client-end-held",
    "server-told",
    "hand-over-noted",
    "client-told",
    "status-read",
    "client-released",
    // The second context of the same process.
    "role-noted:2",
    "dispatching-noted:2",
    "server-told:2",
    "client-told:2",
    "status-read:2",
];

#[test]
fn a_first_client_is_served_wherever_the_daemon_dies() {
    let baseline = never_killed(&[ROOT]);
    for point in FIRST_CLIENT {
        Stage::run(|stage| {
            launch_armed(stage, point);
            let mut client = Program::start(stage, ROOT);
            died(stage, point);
            stage.start(&[]);
            client.expect("attached");
            client.ping();
            client.does("context", "context");
            client.ping();
            settled(stage, 1);
            client.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}

/// The points that a successor comes by when another client of the same user arrives.
const SECOND_CLIENT: &[&str] = &[
    "accepted",
    "role-noted",
    "role-taken",
    "client-waits",
    "dispatching-noted",
    "client-end-held",
    "server-told",
    "hand-over-noted",
    "client-told",
    "status-read",
    "client-released",
    "server-told:2",
    "client-told:2",
];

#[test]
fn running_clients_keep_their_server_when_the_daemon_dies_twice() {
    let baseline = never_killed(&[ROOT]);
    for point in SECOND_CLIENT {
        Stage::run(|stage| {
            stage.start(&[]);
            let mut first = Program::attached(stage, ROOT);
            let server = stage.only(Part::Server);
            succeed_armed(stage, point);
            let mut second = Program::start(stage, ROOT);
            died(stage, point);
            stage.start(&[]);
            second.expect("attached");
            second.ping();
            first.ping();
            first.does("context", "context");
            settled(stage, 1);
            assert_eq!(stage.servers(), [server], "{point}");
            let listed = stage.ask(&format!("get_client_list {server}\n"));
            assert_eq!(listed.lines().count(), 2, "{point}: {listed}");
            first.leave();
            second.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}

#[test]
fn another_users_server_is_started_wherever_the_daemon_dies() {
    let baseline = never_killed(&[ROOT, USER]);
    for point in
        ["before-spawn", "spawned", "stderr-held", "spawn-saved", "hello-noted", "configuration-sent", "link-held"]
    {
        Stage::run(|stage| {
            stage.start(&[]);
            let mut first = Program::attached(stage, ROOT);
            let server = stage.only(Part::Server);
            succeed_armed(stage, point);
            let mut second = Program::start(stage, USER);
            died(stage, point);
            stage.start(&[]);
            second.expect("attached");
            first.ping();
            second.ping();
            settled(stage, 2);
            assert_eq!(stage.servers()[0], server, "{point}");
            first.leave();
            second.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}

#[test]
fn a_successor_that_dies_while_it_takes_over_harms_nobody() {
    let baseline = never_killed(&[ROOT]);
    let points =
        ["attached", "state-restored", "start-saved", "connections-restored", "listening", "pid-file-written", "asked"];
    for point in points {
        Stage::run(|stage| {
            stage.start(&[]);
            assert_eq!(stage.ask("set_default_active_thread_percentage 42\n"), "42.0\n");
            let mut first = Program::attached(stage, ROOT);
            let server = stage.only(Part::Server);
            stage.kill_daemon();
            // It arrives while there is no daemon at all.
            let mut second = Program::start(stage, ROOT);
            stage.launch(&[], &[("MPS_TEST_KILL_AT", point)]);
            died(stage, point);
            first.ping();
            stage.start(&[]);
            second.expect("attached");
            first.ping();
            second.ping();
            settled(stage, 1);
            assert_eq!(stage.servers(), [server], "{point}");
            assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "42.0\n", "{point}");
            first.leave();
            second.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}
