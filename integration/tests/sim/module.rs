//! The questions of the third interface beside the vendor's commands of now, on one daemon with a server that works.

use integration::sim::Sim;
use integration::under_test::{for_each, only_ours};
use nix::unistd::geteuid;
use std::fs;

#[test]
fn both_interfaces_name_the_same_servers_and_clients() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        assert_eq!(sim.lab.ask("server list --format=csv,noheader\n"), "", "{subject}: nobody has come yet");
        let clients = [sim.start("mps-bystander", &[], "ready"), sim.start("mps-bystander", &[], "ready")];
        let (uid, server) = (geteuid(), sim.server());
        let directory = sim.lab.pipe_dir();
        let row = format!("uid_{uid},{uid},{server},Ready,{},", directory.display());
        // One session takes both, in order.
        let answer = sim.lab.ask("get_server_list\nserver list --format=csv,noheader\nget_server_list\n");
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(
            (lines.len(), lines[0], lines[2]),
            (3, server.to_string().as_str(), lines[0]),
            "{subject}: {answer}"
        );
        assert!(lines[1].starts_with(&row) && lines[1].ends_with(",-"), "{subject}: {answer}");
        let listed = sim.lab.ask(&format!("client list --server=uid_{uid} --format=csv,noheader\n"));
        let mut expected: Vec<String> = clients
            .iter()
            .map(|client| {
                let command = fs::read(format!("/proc/{}/cmdline", client.pid())).expect("it runs");
                let words: Vec<String> = command
                    .split(|byte| *byte == 0)
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .filter(|word| !word.is_empty())
                    .collect();
                format!("{},uid_{uid},default,{}", client.pid(), words.join(" "))
            })
            .collect();
        // Which GPU a client is on is known only where a witness tells of it.
        let without_gpu = |line: &str| {
            let columns: Vec<&str> = line.splitn(5, ',').collect();
            [columns[0], columns[1], columns[3], columns[4]].join(",")
        };
        let mut shown: Vec<String> = listed.lines().map(without_gpu).collect();
        expected.sort();
        shown.sort();
        assert_eq!(shown, expected, "{subject}: {listed}");
    });
}

#[test]
fn a_question_about_what_is_not_there_fails_and_says_so_on_standard_error() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        for (arguments, reason) in [
            (["server", "list", "training"].as_slice(), "Server training not found\n"),
            (&["client", "get", "1", "cmd"], "Client 1 not found\n"),
            (&["client", "list", "--server=training"], "Server training not found\n"),
        ] {
            let failed = sim.lab.run(arguments, b"");
            assert_eq!((failed.code, failed.stdout_text().as_str()), (Some(1), ""), "{subject}: {arguments:?}");
            assert_eq!(failed.stderr_text(), reason, "{subject}: {arguments:?}");
        }
        let failed = sim.lab.run(&["server", "start", "training"], b"");
        assert_eq!((failed.code, failed.stdout_text().as_str()), (Some(1), ""), "{subject}");
        assert!(failed.stderr_text().starts_with("server: start is not understood\nUsage: server create"), "{subject}");
        let known = sim.lab.run(&["server", "list", "--format=csv"], b"");
        let header = "name,uid,pid,status,pipe-directory,allowed-devices,context-ids\n";
        assert_eq!((known.code, known.stdout_text().as_str()), (Some(0), header), "{subject}");
    });
}

#[test]
fn a_client_is_ended_by_its_pid_with_the_answer_of_terminate_client() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        let (ended, other) = (sim.start("mps-bystander", &[], "ready"), sim.start("mps-bystander", &[], "ready"));
        assert_eq!(sim.lab.ask(&format!("client terminate {}\n", ended.pid())), "0\n", "{subject}");
        let requested = format!("MPS server requesting client {{PID: {}, Context ID: 1}} to exit", ended.pid());
        sim.lab.wait_log("server.log", &requested);
        sim.lab.wait_log("server.log", "Client termination succeeded.");
        assert!(sim.lab.ask("client list --format=csv,noheader\n").contains(&format!("{},", other.pid())), "{subject}");
        let failed = sim.lab.run(&["client", "terminate", "1"], b"");
        assert_eq!((failed.code, failed.stdout_text().as_str()), (Some(1), ""), "{subject}");
        assert_eq!(failed.stderr_text(), "Client 1 not found\n", "{subject}");
    });
}

/// The line is the manual's (docs.nvidia.com, MPS 615, mpsv3-interface).
#[test]
fn a_start_with_the_third_protocol_says_where_to_connect_and_both_interfaces_answer() {
    for_each(only_ours(), |subject| {
        let sim = Sim::new(subject, &[]);
        let says = format!(
            "To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY={}\n",
            sim.lab.pipe_dir().display()
        );
        let refused = sim.lab.finish(sim.lab.command(&["-d", "-p", "3"]).env("CUDA_MPS_PROTOCOL_VERSION", "4"), b"");
        let reason = "CUDA_MPS_PROTOCOL_VERSION: \"4\" is no protocol, those are 2 and 3\n";
        assert_eq!((refused.code, refused.stderr_text().as_str()), (Some(1), reason), "{subject}");
        assert_eq!(sim.lab.daemon(), None, "{subject}");
        let second = sim.lab.finish(sim.lab.command(&["-d", "-p", "3"]).env("CUDA_MPS_PROTOCOL_VERSION", "2"), b"");
        assert_eq!((second.code, second.stdout_text().as_str()), (Some(0), ""), "{subject}: the variable goes first");
        assert_eq!(sim.lab.run(&["--quit"], b"").code, Some(0), "{subject}");
        let third = sim.lab.finish(sim.lab.command(&["-d"]).env("CUDA_MPS_PROTOCOL_VERSION", "3"), b"");
        assert_eq!((third.code, third.stdout_text()), (Some(0), says), "{subject}");
        // A command line with another protocol follows the daemon.
        let header = "name,uid,pid,status,pipe-directory,allowed-devices,context-ids\n";
        assert_eq!(sim.lab.run(&["-p", "2", "server", "list", "--format=csv"], b"").stdout_text(), header, "{subject}");
        assert_eq!(sim.lab.ask("get_server_list\nserver list --format=csv,noheader\n"), "", "{subject}");
    });
}
