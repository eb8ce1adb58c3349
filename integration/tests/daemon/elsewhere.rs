//! Who has the owner's number and is not where the daemon is, as root of a container: a user as any other.

use integration::lab::LIMIT;
use integration::lab::place::{PIDS, where_possible, within};
use integration::lab::process::Process;
use integration::lab::program::Program;
use std::process::Command;

const ROOT: u32 = 0;

/// Opens 600 connections, more than one user may have without a role, and says nothing on any of them.
const CROWD: &str = r#"
import socket, sys
opened = []
for _ in range(600):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.connect(sys.argv[1])
    opened.append(one)
while opened[-1].recv(64):
    pass
print("refused", flush=True)
sys.stdin.read()
"#;

#[test]
fn root_of_another_place_has_no_more_connections_than_others_and_the_owner_gets_in_meanwhile() {
    where_possible(&[PIDS], |stage| {
        stage.start(&[]);
        let path = stage.pipe_dir().join("control");
        let path = path.to_str().expect("a plain path");
        let mut crowd = Command::new("python3");
        crowd.args(["-c", CROWD, path]).env("PATH", "/usr/bin:/bin");
        let crowd = Process::start_with_input(&mut within(PIDS, &crowd));
        stage.wait_for("the last one refused", || crowd.output().contains("refused"));
        assert!(stage.daemon().output().contains("User 0 has too many connections without a role"));
        assert_eq!(stage.ask("get_default_client_priority\n"), "0\n");
        Program::attached(stage, ROOT).ping();
        crowd.finish(LIMIT).expect("it ends with its input");
    });
}
