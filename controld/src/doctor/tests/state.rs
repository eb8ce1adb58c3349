//! The directory of named servers.

use super::{DAEMON, Made};
use crate::core::KeptDefaults;
use crate::doctor::Severity::{Ok as Fine, Problem, Warning};
use crate::doctor::machine::Daemon;
use crate::settings::servers_file::{Plan, PlannedServer};
use crate::settings::state_file::written;
use remps_proto::admin::limits::DeviceKey;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

/// A machine whose daemon keeps its servers in `state`.
fn keeping() -> Made {
    let mut made = Made::sound();
    made.machine.config.as_mut().unwrap().state_directory = made.path("state").display().to_string();
    fs::create_dir(made.path("state")).unwrap();
    made.mode("state", 0o700);
    made
}

fn keeps(made: &Made, text: &str) {
    made.file("state/servers.toml", text);
    made.mode("state/servers.toml", 0o644);
}

fn plan(device: &str) -> Plan {
    let devices = vec![DeviceKey::Uuid(device.to_owned())];
    let server = PlannedServer { uid: None, devices, namespaces: BTreeMap::default() };
    Plan::from([("training".to_owned(), server)])
}

#[test]
fn it_is_where_the_configuration_or_systemd_says() {
    let mut made = Made::sound();
    made.assert("state-directory", Fine, "end with quit");
    made.file(
        &format!("proc/{DAEMON}/environ"),
        &format!("A=1\0STATE_DIRECTORY={}:/b\0", made.path("state").display()),
    );
    made.assert("state-directory", Problem, "state is missing");
    made.machine.daemon = Daemon::Absent;
    made.assert("state-directory", Fine, "made when the daemon starts");
    made.machine.config.as_mut().unwrap().state_directory = made.path("no/state").display().to_string();
    made.assert("state-directory", Problem, "no/state is missing");
    keeping().assert("state-directory", Fine, "nothing kept yet");
}

#[test]
fn what_is_kept_is_read_as_the_daemon_reads_it_and_nothing_is_locked_or_changed() {
    let made = keeping();
    let good = written(&plan("GPU-0"), &KeptDefaults::default());
    keeps(&made, &good);
    // A daemon that starts meanwhile finds the directory free.
    made.assert("state-directory", Fine, "servers.toml: 1");
    let mut folder = crate::io::state_folder::StateFolder::open(&made.path("state"), None).unwrap();
    made.assert("state-directory", Fine, "servers.toml: 1");
    let (_, believed) = folder.read().unwrap().unwrap();
    folder.is_believed(believed);
    folder.write(&written(&plan("GPU-1"), &KeptDefaults::default())).unwrap();
    made.assert("state-directory", Warning, "the server training on GPU-1, which is not there");
    for (bad, why) in [
        (good.trim_end(), "its end is missing"),
        ("", "does not begin as a file of kept servers"),
        (&good.replace("version 1\n", "version 9\n"), "another version"),
        (&good.replace("[servers.training]", "[servers.training]\nlimit = 1"), "no such key"),
    ] {
        keeps(&made, bad);
        made.assert("state-directory", Problem, why);
    }
}

#[test]
fn what_others_may_change_or_is_no_file_is_a_problem() {
    let made = keeping();
    keeps(&made, &written(&Plan::new(), &KeptDefaults::default()));
    made.mode("state/servers.toml", 0o666);
    made.assert("state-directory", Problem, "alone");
    made.remove("state/servers.toml");
    symlink("/etc/passwd", made.path("state/servers.toml")).unwrap();
    made.assert("state-directory", Problem, "no plain file");
    made.mode("state", 0o777);
    made.assert("state-directory", Problem, "state is not this user's or root's alone");
    made.remove("state");
    symlink("/tmp", made.path("state")).unwrap();
    made.assert("state-directory", Problem, "state");
}
