//! Named servers and namespaces of the third interface, with clients that come by their sockets.

use integration::lab::process::Process;
use integration::sim::{Sim, error_of, library, wait};
use integration::under_test::{Subject, for_each, only_ours};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

/// A command that says nothing and succeeds.
fn does(sim: &Sim, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let done = sim.lab.run(&words, b"");
    assert_eq!((done.code, done.stdout_text(), done.stderr_text()), (Some(0), String::new(), String::new()), "{line}");
}

/// A command that fails, and why.
fn fails(sim: &Sim, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let failed = sim.lab.run(&words, b"");
    assert_eq!((failed.code, failed.stdout_text()), (Some(1), String::new()), "{line}");
    failed.stderr_text()
}

/// A program that finds the daemon as a container does that mounts a namespace's directory.
fn starts_in(sim: &Sim, directory: &str, program: &str, event: &str) -> Process {
    let (program, arguments) = program.split_once(' ').unwrap_or((program, ""));
    let arguments: Vec<&str> = arguments.split(' ').filter(|word| !word.is_empty()).collect();
    let mut command = sim.command(program, &arguments);
    command.env("CUDA_MPS_PIPE_DIRECTORY", sim.lab.pipe_dir().join(directory));
    let process = Process::start(&mut command);
    sim.wait_event(&process, event);
    process
}

fn get(sim: &Sim, line: &str) -> String {
    sim.lab.ask(&format!("{line}\n")).trim().to_owned()
}

fn server_of(sim: &Sim, client: &Process) -> String {
    get(sim, &format!("client get {} server", client.pid()))
}

/// A server `training` with the namespace `jobs`, and a bystander in each and one that came by the daemon's own socket.
fn house(subject: &Subject) -> (Sim, [Process; 3]) {
    house_with(Sim::started(subject, &[]))
}

fn house_with(sim: Sim) -> (Sim, [Process; 3]) {
    does(&sim, "server create training");
    does(&sim, "namespace create jobs --server=training");
    let clients = ["training", "training/jobs", "."].map(|place| starts_in(&sim, place, "mps-bystander", "ready"));
    (sim, clients)
}

#[test]
fn each_namespace_has_a_socket_a_server_and_a_fate_of_its_own() {
    for_each(only_ours(), |subject| {
        let (sim, [training, jobs, other]) = house(subject);
        let (uid, root) = (geteuid(), sim.lab.pipe_dir());
        let names: Vec<String> = [&training, &jobs, &other].map(|client| server_of(&sim, client)).into();
        assert_eq!(names, ["training", "training", &format!("uid_{uid}")], "{subject}");
        assert_eq!(get(&sim, &format!("client get {} maws-ns", jobs.pid())), "jobs", "{subject}");
        assert_eq!(get(&sim, &format!("client get {} maws-ns", other.pid())), "default", "{subject}");
        let namespace = fs::metadata(format!("/proc/{}/ns/pid", jobs.pid())).expect("it runs").ino();
        assert_eq!(get(&sim, &format!("client get {} linux-ns", jobs.pid())), namespace.to_string(), "{subject}");
        // The second interface sees the three processes beside each other.
        wait(&sim, "three servers", || sim.servers().len() == 3);
        let row = get(&sim, "server list training --format=csv,noheader");
        let pid = get(&sim, "server get training pid");
        assert_eq!(row, format!("training,-,{pid},Ready,{}/training,-,-", root.display()), "{subject}");
        let spaces = get(&sim, "namespace list --server=training --format=csv,noheader");
        let expected: Vec<String> = [("default", "training"), ("jobs", "training/jobs")]
            .map(|(name, place)| format!("{name},training,Ready,-,100.00,0,{}/{place}", root.display()))
            .into();
        assert_eq!(spaces.lines().collect::<Vec<_>>(), expected, "{subject}");
        assert!(sim.lab.ask("status -o wide\n").contains("server training, namespace jobs"), "{subject}");
        for (place, mode) in [("training", 0o40_755), ("training/jobs", 0o40_755), ("training/jobs/control", 0o140_666)]
        {
            let found = fs::metadata(root.join(place)).expect("it was made");
            assert_eq!(found.permissions().mode(), mode, "{subject}: {place}");
        }
        // A fault there is none here.
        let culprit = starts_in(&sim, "training/jobs", "mps-aggressor misaligned", "launched");
        let _ = sim.finish(culprit);
        assert!(error_of(&sim.finish(jobs)).is_some(), "{subject}: it shared a server with the culprit");
        for client in [&training, &other] {
            assert!(client.ended_within(std::time::Duration::ZERO).eq(&false), "{subject}: it goes on");
        }
        assert_eq!(server_of(&sim, &training), "training", "{subject}");
        assert!(fails(&sim, "server delete training").starts_with("Server training has clients: "), "{subject}");
        assert!(fails(&sim, "server create control").contains("the name of a file of the daemon's"), "{subject}");
        does(&sim, "namespace delete jobs --server=training");
        assert!(!root.join("training/jobs").exists(), "{subject}");
        does(&sim, "server delete training --force");
        assert!(!root.join("training").exists(), "{subject}");
        assert!(error_of(&sim.finish(training)).is_some(), "{subject}: its server was ended");
        assert_eq!(server_of(&sim, &other), format!("uid_{uid}"), "{subject}");
    });
}

#[test]
fn limits_of_a_namespace_reach_its_servers_and_never_pass_those_of_the_server() {
    for_each(only_ours(), |subject| {
        // The daemon's child that lists devices finds the driver there.
        let folder = tempfile::tempdir().expect("there is room");
        symlink(library(), folder.path().join("libcuda.so.1")).expect("the folder is new");
        let place = folder.path().to_str().expect("its name is plain");
        let (sim, [_training, jobs, _other]) = house_with(Sim::started(subject, &[("LD_LIBRARY_PATH", place)]));
        let devices = get(&sim, "device list --server=training --format=csv,noheader");
        assert!(devices.starts_with("0,training,"), "{subject}: {devices}");
        does(&sim, "server set training --active-thread-percentage=50 --pinned-memory-limit=2G");
        does(&sim, "namespace set jobs --server=training --active-thread-percentage=80");
        assert_eq!(get(&sim, "namespace get jobs training active-thread-percentage"), "50.00", "{subject}");
        assert_eq!(get(&sim, "namespace get jobs training pinned-memory-limit"), "2G", "{subject}");
        let listed = sim.lab.ask("status --json\n");
        let status: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
        let clients = status["clients"].as_array().expect("a list");
        let own = clients.iter().find(|client| client["process"]["pid"] == jobs.pid().as_raw());
        let server = own.expect("it is a client")["server"].as_i64().expect("it has a server");
        let told = format!("get_active_thread_percentage {server}\nget_device_pinned_mem_limit {server} 0\n");
        assert_eq!(sim.lab.ask(&told), "50.0\n2G\n", "{subject}");
        let unknown = fails(&sim, "server create other --allowed-devices=7");
        assert!(unknown.starts_with("There is no device 7; there are 0 ("), "{subject}: {unknown}");
        let need = fails(&sim, "feature enable memacct");
        assert!(need.starts_with("feature memacct needs driver >= 615"), "{subject}: {need}");
    });
}

/// Which processes have lines in a log file.
fn writers(log: &str) -> BTreeSet<String> {
    let writer = |line: &str| Some(line.split_once("] ")?.0.split_whitespace().last()?.to_owned());
    log.lines().filter_map(writer).collect()
}

#[test]
fn a_named_server_has_a_log_of_its_own_over_the_daemons_death() {
    for_each(only_ours(), |subject| {
        let (sim, clients) = house(subject);
        let process = |client: &Process| {
            let listed = sim.lab.ask("get_server_list\n");
            let of = |server: &&str| {
                let clients = sim.lab.ask(&format!("get_client_list {server}\n"));
                clients.split_whitespace().any(|pid| pid == client.pid().to_string())
            };
            listed.split_whitespace().find(of).expect("it has a server").to_owned()
        };
        let [first, own, others] = clients.each_ref().map(process);
        let (of_server, of_all) = ("training/server.log", "server.log");
        // Those of its namespaces write there, too, and nobody else's.
        wait(&sim, "all have their lines", || {
            let (own_log, all_log) = (writers(&sim.lab.log(of_server)), writers(&sim.lab.log(of_all)));
            own_log.contains(&first) && own_log.contains(&own) && all_log.contains(&others)
        });
        assert_eq!(writers(&sim.lab.log(of_all)), BTreeSet::from([others]), "{subject}");
        let daemon = sim.lab.running_daemon();
        kill(daemon, Signal::SIGKILL).expect("it runs");
        sim.lab.wait_gone(daemon);
        sim.lab.start(&[]);
        let lines = || sim.lab.log(of_server).lines().filter(|line| line.contains(&own)).count();
        let before = lines();
        let newcomer = starts_in(&sim, "training/jobs", "mps-bystander", "ready");
        wait(&sim, "it writes there", || lines() > before);
        does(&sim, "server delete training --force");
        let _ = sim.finish(newcomer);
        assert!(!sim.lab.log(of_server).is_empty(), "{subject}: what a deleted server has said is kept");
    });
}

#[test]
fn namespaces_survive_the_daemons_death_with_sockets_clients_and_limits() {
    for_each(only_ours(), |subject| {
        let (sim, clients) = house(subject);
        does(&sim, "namespace set jobs --server=training --active-thread-percentage=30");
        let before = (get(&sim, "server list --format=csv"), get(&sim, "namespace list --format=csv"));
        let socket = sim.lab.pipe_dir().join("training/jobs/control");
        let inode = fs::metadata(&socket).expect("it is there").ino();
        let daemon = sim.lab.running_daemon();
        kill(daemon, Signal::SIGKILL).expect("it runs");
        sim.lab.wait_gone(daemon);
        // Who comes while there is none waits at the socket, which the holder keeps.
        let mut command = sim.command("mps-bystander", &[]);
        command.env("CUDA_MPS_PIPE_DIRECTORY", sim.lab.pipe_dir().join("training/jobs"));
        let newcomer = Process::start(&mut command);
        sim.lab.start(&[]);
        sim.wait_event(&newcomer, "ready");
        assert_eq!(get(&sim, &format!("client get {} maws-ns", newcomer.pid())), "jobs", "{subject}");
        assert_eq!(fs::metadata(&socket).expect("it is there").ino(), inode, "{subject}");
        wait(&sim, "servers named their clients", || {
            (get(&sim, "server list --format=csv"), get(&sim, "namespace list --format=csv")) == before
        });
        for client in &clients {
            assert!(!client.ended_within(std::time::Duration::ZERO), "{subject}: it goes on");
        }
        wait(&sim, "the client is known", || server_of(&sim, &clients[1]) == "training");
        // One that was made by the killed daemon can be deleted by the next.
        does(&sim, "namespace delete jobs --server=training --force");
        assert!(!socket.exists(), "{subject}");
    });
}

#[test]
fn the_end_of_the_daemon_removes_sockets_and_leaves_the_directories_that_containers_have() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        does(&sim, "server create training");
        let directory = sim.lab.pipe_dir().join("training");
        let inode = fs::metadata(&directory).expect("it was made").ino();
        assert!(fs::metadata(directory.join("control")).expect("it was made").file_type().is_socket());
        let daemon: Pid = sim.lab.running_daemon();
        assert_eq!(sim.lab.ask("quit\n"), "", "{subject}");
        sim.lab.wait_gone(daemon);
        assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 0, "{subject}");
        sim.lab.start(&[]);
        assert_eq!(get(&sim, "namespace list --format=csv,noheader"), "", "{subject}: nobody has said it again");
        does(&sim, "server create training");
        assert_eq!(fs::metadata(&directory).expect("it is there").ino(), inode, "{subject}: a mount of it goes on");
    });
}

#[test]
fn a_file_of_servers_is_applied_whole_or_not_at_all_and_once() {
    for_each(only_ours(), |subject| {
        let sim = Sim::new(subject, &[]);
        let file = sim.lab.dir().join("servers.toml");
        let path = file.to_str().expect("the bench's name is plain");
        let write = |text: &str| fs::write(&file, text).expect("the bench's folder is ours");
        let good = "schema_version = \"1.0\"\n[servers.training.namespaces.jobs]\nactive_thread_percentage = 30\n";
        write(&format!("{good}[servers.other]\nactive_thread_percent = 50\n"));
        let refused = sim.lab.run(&["-d", "-a", path], b"");
        let said = format!(
            "{path}: line 5: servers.other.active_thread_percent: no such key; did you mean active_thread_percentage?\n"
        );
        assert_eq!((refused.code, refused.stderr_text()), (Some(1), said), "{subject}");
        assert_eq!(sim.lab.daemon(), None, "{subject}");
        // This one is found out when the daemon is up already.
        write(&format!("{good}[servers.other]\nallowed_devices = \"31\"\n"));
        let refused = sim.lab.run(&["-d", "-a", path], b"");
        assert_eq!(refused.code, Some(1), "{subject}");
        assert!(refused.stderr_text().contains("the servers of the file can't be made: other: "), "{subject}");
        assert_eq!(sim.lab.daemon(), None, "{subject}");
        write(good);
        sim.lab.start(&["-a", path]);
        assert_eq!(get(&sim, "namespace get jobs training active-thread-percentage"), "30.00", "{subject}");
        let client = starts_in(&sim, "training/jobs", "mps-bystander", "ready");
        assert_eq!(get(&sim, &format!("client get {} maws-ns", client.pid())), "jobs", "{subject}");
        does(&sim, "namespace set jobs --server=training --active-thread-percentage=20");
        let daemon = sim.lab.running_daemon();
        kill(daemon, Signal::SIGKILL).expect("it runs");
        sim.lab.wait_gone(daemon);
        sim.lab.start(&["-a", path]);
        assert_eq!(get(&sim, "namespace get jobs training active-thread-percentage"), "20.00", "{subject}");
        assert!(!client.ended_within(std::time::Duration::ZERO), "{subject}: it goes on");
    });
}
