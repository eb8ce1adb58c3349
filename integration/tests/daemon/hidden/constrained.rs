//! A daemon under OpenShift's default constraint for pods (`restricted-v2`): a user of the project's range, no capability
//! and none to come, and no namespace of the machine's.

use super::{configured, has_lost, living_in};
use integration::lab::place::{where_possible, within};
use integration::lab::pod::{POD, Pod, machines_proc};
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, Stage};
use integration::under_test::Skipped;
use std::path::Path;

/// One of such a range.
const USER: u32 = 1_000_680_000;
const SETPRIV: &str = "/usr/bin/setpriv";

fn served(stage: &Stage) -> Program {
    let program = Program::started_as(stage.command_as(USER, CLIENT, &[]));
    program.expect("attached");
    program
}

#[test]
fn a_daemon_of_any_user_without_rights_serves_that_users_clients_without_a_pid_and_says_what_is_missing() {
    where_possible(&[POD], |stage| {
        if !Path::new(SETPRIV).exists() {
            return Skipped(format!("no {SETPRIV}")).report();
        }
        for folder in [stage.lab().dir().to_owned(), stage.pipe_dir().to_owned(), stage.lab().log_dir().to_owned()] {
            let _ = std::fs::create_dir(&folder);
            std::os::unix::fs::chown(&folder, Some(USER), Some(USER)).expect("root may");
        }
        let user = USER.to_string();
        let constraint = [
            SETPRIV,
            "--reuid",
            &user,
            "--regid",
            &user,
            "--clear-groups",
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            "--no-new-privs",
        ];
        let daemon = configured(stage, "max_clients = 1", &machines_proc(stage.lab()));
        let pod = Pod::start(stage.lab(), &within(&constraint, &daemon));
        let [mut first, mut second] = [served(stage), served(stage)];
        [&mut first, &mut second].into_iter().for_each(Program::ping);
        let known = living_in(&pod.ask(stage.lab(), "status\n"));
        assert_eq!(known.len(), 2, "{}", pod.output());
        let servers = stage.ask("get_server_list\n");
        assert_eq!(servers.lines().count(), 2, "each has one: {}", pod.output());
        pod.wait_for(stage.lab(), "Degraded: clients of other PID namespaces are known by witness.proc");
        let of_first = known.iter().find(|(_, machine)| *machine == first.pid().to_string()).expect("it is known");
        let has = |server: &&str| stage.ask(&format!("get_client_list {server}\n")) == format!("{}\n", of_first.0);
        let server = servers.lines().find(has).expect("one has it");
        let answer = pod.ask(stage.lab(), &format!("terminate_client {server} {}\n", of_first.0));
        assert_eq!(answer, "0\n", "{}", pod.output());
        has_lost(first);
        second.ping();
        second.leave();
    });
}
