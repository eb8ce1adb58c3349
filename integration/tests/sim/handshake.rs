//! Who connects to whom, in which order: the simulated library and server, and NVIDIA's library, through the daemon
//! under test.

use integration::lab::process::{Process, run};
use integration::lab::{LIMIT, watch};
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::{Skipped, for_each, subjects};
use integration::vendor::{Release, fetched};
use nix::sys::signal::Signal;
use remps_proto::mps::handshake::{CREDENTIALS, GREETING, Role};
use sim_wire::seqpacket::Seqpacket;
use std::fs;

#[test]
fn a_program_connects_once_for_itself_and_once_for_its_context() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let finished = sim.run("mps-first-alloc", &[]);
        assert_eq!((finished.code, error_of(&finished)), (Some(0), None), "{subject}: {}", finished.stdout_text());
        let end = find_event(&finished.stdout_text(), "end").expect("it ended well");
        let pid = end["pid"].as_u64().expect("a pid");
        sim.lab.wait_log("server.log", &format!("Client process {pid} disconnected"));
        let log = sim.server_log();
        let start = log.iter().position(|text| text == "Startup").expect("the server says so");
        let server = sim.server();
        let uuid = "GPU-5e900000-6d70-732d-7369-6d0000000000";
        let expected = [
            "Startup".to_owned(),
            format!("Connecting to control daemon on socket: {}", sim.lab.pipe_dir().join("control").display()),
            "Initializing server process".to_owned(),
            "Creating server context on device 0 (NVIDIA H200)".to_owned(),
            format!("Created anonymous shared memory region mps.shm.{}.{server}", nix::unistd::getuid()),
            "CUDA MPS Server for Linux/Unix. Binary version: 13000".to_owned(),
            "Display Driver version: 580".to_owned(),
            "Active Threads Percentage set to 100.0".to_owned(),
            "Server Priority set to 0".to_owned(),
            "Server has started".to_owned(),
            "Received new client request for {PID: -1333654781, Context ID: 0}".to_owned(),
            format!("Client {{PID: {pid}, Context ID: 0}} connected"),
            format!("Creating worker thread for client {{PID: {pid}, Context ID: 0}}"),
            format!("Received new client request for {{PID: {pid}, Context ID: 0}}"),
            format!("Client {{PID: {pid}, Context ID: 1}} connected"),
            format!("Creating worker thread for client {{PID: {pid}, Context ID: 1}}"),
            format!("Device NVIDIA H200 (uuid {uuid}) is associated"),
            format!("Status of client {{PID: {pid}, Context ID: 1}} is ACTIVE"),
            format!(
                "Server failed to recevie command with status 806, assuming client {{PID: {pid}, Context ID: 1}} exit"
            ),
            format!("Client {{PID: {pid}, Context ID: 1}} exiting. Number of active client contexts is 0."),
            format!(
                "Server failed to recevie command with status 806, assuming client {{PID: {pid}, Context ID: 0}} exit"
            ),
            format!("Client process {pid} disconnected"),
        ];
        assert_eq!(log[start..], expected, "{subject}: as a server of driver 580 writes it");
        // One for the process, one for the context; the probe came and went before them.
        let control = sim.lab.log("control.log");
        assert_eq!(control.matches(&format!("NEW CLIENT {pid} from user")).count(), 2, "{subject}: {control}");
    });
}

/// Whether a process's main thread waits in `read` on a pipe.
fn reads_pipe(pid: i32) -> bool {
    // Number and arguments of the system call it is in, in hexadecimal but for the number.
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).expect("a process of ours can be looked at");
    let mut words = call.split_whitespace();
    let is_read = words.next().and_then(|word| word.parse::<i64>().ok()) == Some(libc::SYS_read);
    let descriptor = words.next().and_then(|word| i32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    is_read
        && descriptor
            .and_then(|number| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok())
            .is_some_and(|link| link.to_string_lossy().starts_with("pipe:"))
}

#[test]
fn nvidias_library_completes_its_handshake_and_then_waits_for_an_answer_that_only_nvidia_knows() {
    let vendor = match fetched() {
        Ok(vendor) => vendor,
        Err(skipped) => return skipped.report(),
    };
    let directory = vendor.libcuda_dir(Release::R535);
    if !directory.join("libcuda.so.1").exists() {
        return Skipped(format!("no libcuda.so.1 in {}", directory.display())).report();
    }
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let client = Process::start(&mut sim.command_on(&directory, "mps-first-alloc", &[]));
        let pid = client.pid();
        sim.lab.wait_log("server.log", &format!("Creating worker thread for client {{PID: {pid}, Context ID: 0}}"));
        // It has told the daemon that it was accepted and closed that connection, and reads the reply pipe: it has
        // printed nothing, and neither context nor error of it is known anywhere.
        watch::wait_for(sim.lab.dir(), sim.lab.dir(), LIMIT, "the client reads a pipe", || reads_pipe(pid.as_raw()));
        assert_eq!(client.output(), "", "{subject}");
        let server = sim.server();
        assert_eq!(sim.lab.ask(&format!("get_client_list {server}\n")), "", "{subject}");
        let log = sim.server_log().join("\n");
        assert!(!log.contains(&format!("{{PID: {pid}, Context ID: 1}}")), "{subject}: {log}");
        client.signal(Signal::SIGKILL);
        sim.lab.wait_log("server.log", &format!("Client process {pid} disconnected"));
    });
}

#[test]
fn without_a_daemon_a_program_runs_without_mps() {
    for_each(subjects(), |subject| {
        let sim = Sim::new(subject, &[]);
        let absent = sim.run("mps-bystander", &["--steps", "3"]);
        assert_eq!((absent.code, error_of(&absent)), (Some(0), None), "{subject}: no socket");
        fs::create_dir_all(sim.lab.pipe_dir()).expect("the bench's folder is ours");
        drop(Seqpacket::listen(&sim.lab.pipe_dir().join("control")).expect("the path is free"));
        let refused = sim.run("mps-bystander", &["--steps", "3"]);
        assert_eq!((refused.code, error_of(&refused)), (Some(0), None), "{subject}: a socket that nobody listens on");
        let end = find_event(&refused.stdout_text(), "end").expect("it ended well");
        assert_eq!((end["steps"].as_u64(), end["is_intact"].as_bool()), (Some(3), Some(true)));
    });
}

#[test]
fn a_daemon_that_closes_on_a_client_gives_it_805() {
    for_each(subjects(), |subject| {
        for answers in 0..=1 {
            let sim = Sim::new(subject, &[]);
            fs::create_dir_all(sim.lab.pipe_dir()).expect("the bench's folder is ours");
            let listener = Seqpacket::listen(&sim.lab.pipe_dir().join("control")).expect("the path is free");
            let daemon = std::thread::spawn(move || {
                // The probe reads the greeting and closes without a word.
                let probe = listener.accept().expect("the probe");
                if answers == 0 {
                    return Vec::new();
                }
                probe.send(GREETING).expect("the probe is there");
                assert!(probe.receive().expect("it closes").bytes.is_empty());
                let client = listener.accept().expect("the connection");
                client.send(GREETING).expect("the client is there");
                let credentials = client.receive().expect("credentials");
                assert_eq!(credentials.bytes, CREDENTIALS);
                let sender = credentials.sender.expect("they are passed");
                assert_eq!(client.receive().expect("the role").bytes, Role::CLIENT.encode());
                vec![sender.pid()]
            });
            let mut command = sim.command("mps-first-alloc", &[]);
            let finished = run(&mut command, b"", LIMIT).expect("it ends");
            assert_eq!((finished.code, error_of(&finished)), (Some(37), Some(805)), "{subject}");
            assert_eq!(daemon.join().expect("the daemon saw what it should").len(), answers);
        }
    });
}
