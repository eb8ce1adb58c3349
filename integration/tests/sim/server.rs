//! The simulated server as a peer: what the daemon is told about it, and the misbehaviour that tests script.

use integration::sim::{Sim, error_of};
use integration::under_test::{for_each, subjects};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use remps_proto::admin::CommandName;
use std::fs;

#[test]
fn clients_and_devices_are_listed_as_a_real_server_lists_them() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[("MPS_SIM_DEVICES", "2")]);
        let first = sim.start("mps-bystander", &[], "ready");
        let second = sim.start("mps-bystander", &[], "ready");
        let (server, pids) = (sim.server(), [first.pid(), second.pid()]);
        let list = format!("{}\n{}\n", pids[0], pids[1]);
        assert_eq!(sim.lab.ask(&format!("get_client_list {server}\n")), list, "{subject}");
        let devices = sim.lab.ask("get_device_client_list\n");
        // The last device comes first.
        let expected = format!("[1] 00:01.0, NVIDIA H200\n[0] 00:00.0, NVIDIA H200\n{}.1\n{}.1\n", pids[0], pids[1]);
        assert_eq!(devices, expected, "{subject}");
        let table = sim.lab.ask("ps\n");
        let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        for (row, (pid, id)) in rows.iter().zip([(pids[0], "1"), (pids[1], "2")]) {
            let known = [pid.to_string(), id.to_owned(), server.to_string(), "GPU-5e900000-6d70-732d".to_owned()];
            assert_eq!(row[..4], known, "{subject}: {table}");
            let program = fs::read(format!("/proc/{pid}/cmdline")).expect("it runs");
            let program = program.split(|byte| *byte == 0).next().unwrap_or_default();
            assert_eq!(row[5].as_bytes(), program, "{subject}: {table}");
        }
        assert_eq!(rows.len(), 2, "{subject}: {table}");
        if subject.personality.knows(CommandName::DeviceQuery) {
            let queried = sim.lab.ask(&format!("device_query {server} --csv\n"));
            for (ordinal, pci) in [(0, "00.06"), (1, "00.07")] {
                let row =
                    format!("{ordinal},0000:{pci}.00,GPU-5e900000-6d70-732d-7369-6d000000000{ordinal},NVIDIA H200,N/A");
                assert!(queried.contains(&row), "{subject}: {queried}");
            }
        }
    });
}

#[test]
fn percentage_and_memory_limit_reach_the_server_and_bind_its_clients() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        let set = "set_default_device_pinned_mem_limit 0 1G\nset_default_active_thread_percentage 40\n";
        assert_eq!(sim.lab.ask(set), "40.0\n", "{subject}");
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
        let server = sim.server();
        sim.lab.wait_log("server.log", "Active Threads Percentage set to 40.0");
        assert_eq!(sim.lab.ask(&format!("get_device_pinned_mem_limit {server} 0\n")), "1G\n", "{subject}");
        assert_eq!(sim.lab.ask(&format!("get_active_thread_percentage {server}\n")), "40.0\n", "{subject}");
        assert_eq!(sim.lab.ask(&format!("set_active_thread_percentage {server} 30\n")), "30.0\n", "{subject}");
        // Less than the one mebibyte that the program asks for.
        assert_eq!(sim.lab.ask(&format!("set_device_pinned_mem_limit {server} 0 1M\n")), "", "{subject}");
        sim.lab.wait_log("server.log", "Device pinned memory limit for device 0 set to 0x100000 bytes");
        assert_eq!(error_of(&sim.run("mps-bystander", &["--steps", "2"])), None, "{subject}: 4 KiB fit");
        assert_eq!(error_of(&sim.run("mps-first-alloc", &["--mib", "2"])), Some(2), "{subject}: 2 MiB do not");
    });
}

#[test]
fn an_idle_server_ends_when_asked_to_and_any_server_by_sigint_at_once() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[]);
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
        let idle = sim.server();
        assert_eq!(sim.lab.ask(&format!("shutdown_server {idle}\n")), "", "{subject}");
        sim.lab.wait_log("server.log", "Exiting");
        sim.lab.wait_gone(Pid::from_raw(idle));
        let client = sim.start("mps-bystander", &[], "ready");
        let busy = Pid::from_raw(sim.server());
        kill(busy, Signal::SIGINT).expect("it runs");
        sim.lab.wait_gone(busy);
        assert_eq!(error_of(&sim.finish(client)), Some(806), "{subject}");
    });
}

#[test]
fn a_server_ends_when_its_control_socket_closes() {
    for_each(subjects(), |subject| {
        if subject.ours {
            // A second holder keeps the socket of ours open: that has tests of its own.
            return;
        }
        let sim = Sim::started(subject, &[]);
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
        let (server, daemon) = (Pid::from_raw(sim.server()), sim.lab.running_daemon());
        kill(daemon, Signal::SIGKILL).expect("it runs");
        sim.lab.wait_gone(server);
    });
}

#[test]
fn a_script_makes_the_next_start_fail_and_the_one_after_succeed() {
    for_each(subjects(), |subject| {
        let folder = tempfile::tempdir().expect("a folder");
        let (script, starts) = (folder.path().join("script"), folder.path().join("starts"));
        let text = format!("MPS_SIM_STARTS={}\nMPS_SIM_EXIT_STATUS=3\nMPS_SIM_EXIT_FIRST=1\n", starts.display());
        fs::write(&script, text).expect("the folder is ours");
        let sim = Sim::started(subject, &[("MPS_SIM_SCRIPT", script.to_str().expect("a plain path"))]);
        // The client waits while the daemon starts one server after the other.
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}");
        let pids: Vec<i32> = fs::read_to_string(&starts)
            .expect("servers started")
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        assert_eq!(pids.len(), 2, "{subject}: {pids:?}");
        assert_eq!(sim.servers(), [pids[1]], "{subject}");
    });
}

#[test]
fn a_script_makes_the_server_crash_with_its_second_client() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[("MPS_SIM_CRASH_AT_CLIENTS", "2")]);
        let first = sim.start("mps-bystander", &[], "ready");
        let crashed = Pid::from_raw(sim.server());
        let second = sim.run("mps-first-alloc", &[]);
        sim.lab.wait_gone(crashed);
        assert_eq!(error_of(&sim.finish(first)), Some(806), "{subject}");
        assert_eq!(error_of(&second), Some(805), "{subject}: its handshake was cut off");
    });
}

#[test]
fn a_server_that_is_full_says_808() {
    for_each(subjects(), |subject| {
        let sim = Sim::started(subject, &[("MPS_SIM_MAX_CLIENTS", "1")]);
        let _first = sim.start("mps-bystander", &[], "ready");
        assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), Some(808), "{subject}");
    });
}
