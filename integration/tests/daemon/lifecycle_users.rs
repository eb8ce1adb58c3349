//! Servers of several users, and what each rule of sharing does.

use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, CONTROL, Part, Stage};
use integration::under_test::Skipped;
use nix::unistd::Pid;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

const ROOT: u32 = 0;
const USERS: [u32; 3] = [0, 1000, 1001];

/// A line of `/proc/PID/status`.
fn status(pid: Pid, field: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel has it");
    line.trim_start_matches(':').split_whitespace().map(str::to_owned).collect()
}

#[test]
fn servers_of_several_users_run_side_by_side_each_as_its_user() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut clients: Vec<Program> = USERS.iter().map(|user| Program::attached(stage, *user)).collect();
        assert_eq!(stage.servers().len(), USERS.len());
        for (server, user) in stage.servers().into_iter().zip(USERS) {
            let own = user.to_string();
            assert!(status(server, "Uid").iter().all(|uid| *uid == own), "{:?}", status(server, "Uid"));
            assert!(status(server, "Gid").iter().all(|gid| *gid == own), "{:?}", status(server, "Gid"));
            let groups = status(server, "Groups");
            assert!(user == ROOT || groups.is_empty() || groups == [own.clone()], "groups of {user}: {groups:?}");
        }
        clients.iter_mut().for_each(Program::ping);
        // Nobody's server is touched by another's end.
        clients.remove(1).leave();
        let server = stage.servers()[1];
        assert_eq!(stage.ask_as(1000, &format!("shutdown_server {server}\n")), "");
        stage.lab().wait_gone(server);
        clients.iter_mut().for_each(Program::ping);
        stage.wait_for("the others' servers alone", || stage.servers().len() == 2);
    });
}

#[test]
fn ct_27_with_the_vendors_rule_the_second_user_waits_and_ps_shows_it() {
    Stage::run(|stage| {
        stage.config("sharing = \"single\"\n");
        stage.start(&[]);
        let mut first = Program::attached(stage, 1000);
        let server = stage.only(Part::Server);
        let second = Program::start(stage, 1001);
        let waits = format!("{}", second.pid());
        stage.wait_for("who waits in ps", || {
            let table = stage.ask("ps\n");
            table.lines().any(|line| line.contains(&waits) && line.contains("(waiting)"))
        });
        assert_eq!(second.line_within(Duration::ZERO), None, "it is served beside the first");
        first.ping();
        assert_eq!(stage.pids(Part::Server), [server]);
        first.leave();
        second.expect("attached");
        stage.lab().wait_gone(server);
        assert_eq!(status(stage.only(Part::Server), "Uid")[0], "1001");
    });
}

#[test]
fn ct_26_one_server_serves_all_users_in_multi_user_mode() {
    Stage::run(|stage| {
        stage.start(&["-M"]);
        let mut clients: Vec<Program> = USERS.iter().map(|user| Program::attached(stage, *user)).collect();
        let server = stage.only(Part::Server);
        assert_eq!(status(server, "Uid")[0], "0");
        clients.iter_mut().for_each(Program::ping);
        assert_eq!(stage.ask(&format!("get_server_status {server}\n")), "ACTIVE\n");
        assert_eq!(stage.ask(&format!("get_client_list {server}\n")).lines().count(), USERS.len());
    });
}

#[test]
fn only_the_owner_root_and_its_own_user_may_change_a_server() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut client = Program::attached(stage, 1000);
        let server = stage.only(Part::Server);
        let changes = [
            format!("set_active_thread_percentage {server} 50"),
            format!("set_device_pinned_mem_limit {server} 0 1G"),
            format!("terminate_client {server} {}", client.pid()),
            format!("shutdown_server {server}"),
            format!("shutdown_server {server} -f"),
            "set_default_active_thread_percentage 50".to_owned(),
            "set_default_device_pinned_mem_limit 0 1G".to_owned(),
            "set_default_client_priority 1".to_owned(),
            "start_server -uid 1000".to_owned(),
            "quit".to_owned(),
        ];
        for change in changes {
            let answer = stage.ask_as(1001, &format!("{change}\n"));
            assert!(answer.to_lowercase().contains("privilege"), "{change}: {answer:?}");
        }
        assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "100.0\n");
        assert_eq!(stage.ask(&format!("get_active_thread_percentage {server}\n")), "100.0\n");
        client.ping();
        assert_eq!(stage.servers(), [server]);
        // Its own user may.
        assert_eq!(stage.ask_as(1000, &format!("set_active_thread_percentage {server} 50\n")), "50.0\n");
        client.leave();
        assert_eq!(stage.ask_as(1000, &format!("shutdown_server {server}\n")), "");
        stage.lab().wait_gone(server);
    });
}

#[test]
fn a_client_needs_no_more_than_a_read_only_mount_of_the_directory() {
    const READ_ONLY: &str = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 99
        touch \"$1/file\" 2>/dev/null && exit 98
        exec \"$2\"";
    Stage::run(|stage| {
        stage.start(&[]);
        let mut command = stage.command_as(ROOT, CLIENT, &[]);
        let client = command.get_program().to_owned();
        let mut apart = std::process::Command::new("unshare");
        apart.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command = apart;
        command.args(["-m", "sh", "-c", READ_ONLY, "sh"]).arg(stage.pipe_dir()).arg(client);
        let finished = stage.lab().finish(&mut command, b"ping\n");
        if finished.code == Some(99) || finished.stderr_text().contains("unshare") {
            return println!("Skipped(no mount can be made here: {})", finished.stderr_text());
        }
        assert_eq!((finished.code, finished.stdout_text().as_str()), (Some(0), "attached\npong\n"), "{finished:?}");
    });
}

#[test]
fn a_volume_that_everybody_may_write_to_has_room_for_a_directory_of_the_daemons_own() {
    Stage::run(|stage| {
        if !nix::unistd::geteuid().is_root() {
            return Skipped("only root can make a volume of root's and use it as somebody else".to_owned()).report();
        }
        let volume = stage.lab().dir().join("volume");
        std::fs::create_dir(&volume).expect("the bench's folder is ours");
        // As the kubelet makes an emptyDir.
        std::fs::set_permissions(&volume, Permissions::from_mode(0o777)).expect("it is ours");
        let run = |directory: &Path, arguments: &[&str], input: &[u8]| {
            let mut command = stage.command_as(1000, CONTROL, arguments);
            command.env("CUDA_MPS_PIPE_DIRECTORY", directory).env("CUDA_MPS_LOG_DIRECTORY", volume.join("log"));
            stage.lab().finish(&mut command, input)
        };
        let refused = run(&volume, &["-d"], b"");
        let within = volume.join("mps");
        let remedy = format!("CUDA_MPS_PIPE_DIRECTORY={}\n", within.display());
        assert_eq!((refused.code, refused.stdout_text().as_str()), (Some(1), ""));
        assert!(refused.stderr_text().ends_with(&remedy), "{}", refused.stderr_text());
        let started = run(&within, &["-d"], b"");
        assert_eq!((started.code, started.stderr_text().as_str()), (Some(0), ""));
        let made = std::fs::metadata(&within).expect("the daemon has made it");
        assert_eq!((made.mode() & 0o7777, made.uid()), (0o755, 1000));
        assert_eq!(run(&within, &["get_default_client_priority"], b"").stdout_text(), "0\n");
        assert_eq!(run(&within, &["quit"], b"").code, Some(0));
    });
}
