//! What `set_default_…` says of servers to come, where a directory for it is configured: it outlives the daemon as named
//! servers do, and what can't be kept is refused.

use super::kept::{House, SmallDisk};
use integration::sim::Sim;
use integration::under_test::{Skipped, for_each, only_ours};
use nix::sys::signal::{Signal, kill};
use nix::unistd::geteuid;
use std::fs;
use std::os::unix::fs::chown;

const SET: &str = "set_default_active_thread_percentage 30\nset_default_device_pinned_mem_limit 0 2G\n\
                   set_default_client_priority 1\n";
const GET: &str = "get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0\n\
                   get_default_client_priority\n";
/// What the vendor's daemon answers at its start; no limit is no line.
const BARE: &str = "100.0\n0\n";
const LIMITED: &str = "30.0\n2G\n1\n";

fn get(house: &House) -> String {
    house.sim.lab.ask(GET)
}

/// Lines that are refused, and why.
fn refused(house: &House, lines: &str) -> String {
    let failed = house.sim.lab.run(&[], lines.as_bytes());
    assert_eq!((failed.code, failed.stdout_text()), (Some(1), String::new()), "{lines}");
    failed.stderr_text()
}

/// Whether a server that starts now has the limits.
fn reach_a_server(house: &House) {
    let client = house.sim.start_with_input("mps-bystander", &["--until-stdin-closes"], "ready");
    let server = house.sim.server();
    let asked = format!("get_active_thread_percentage {server}\nget_device_pinned_mem_limit {server} 0\n");
    assert_eq!(house.sim.lab.ask(&asked), "30.0\n2G\n");
    drop(client);
}

#[test]
fn default_limits_are_there_again_after_quit_sudden_death_an_upgrade_and_the_machines_end() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        assert_eq!(get(&house), BARE, "{subject}");
        house.does("server create training");
        let _ = house.sim.lab.ask(SET);
        assert_eq!(get(&house), LIMITED, "{subject}");
        let kept = house.text();
        assert!(kept.contains("\n# defaults threads=30 priority=1 memory=0:2147483648\n"), "{subject}: {kept}");
        house.quit();
        house.start();
        assert_eq!((get(&house), house.text()), (LIMITED.to_owned(), kept.clone()), "{subject}: quit");
        reach_a_server(&house);
        for (signal, what) in [(Signal::SIGKILL, "killed"), (Signal::SIGUSR1, "replaced")] {
            let daemon = house.sim.lab.running_daemon();
            kill(daemon, signal).expect("it runs");
            house.sim.lab.wait_gone(daemon);
            house.start();
            assert_eq!((get(&house), house.text()), (LIMITED.to_owned(), kept.clone()), "{subject}: {what}");
        }
        house.pull_the_plug();
        house.start();
        assert_eq!((get(&house), house.text()), (LIMITED.to_owned(), kept), "{subject}: the machine's end");
        // What is taken away stays away, and what makes no sense is kept nowhere.
        let _ =
            house.sim.lab.ask("set_default_device_pinned_mem_limit 0 0\nset_default_active_thread_percentage 500\n");
        let text = house.text();
        assert!(text.contains("\n# defaults threads=30 priority=1 memory=none\n"), "{subject}: {text}");
        house.quit();
        house.start();
        assert_eq!((get(&house), house.text()), ("30.0\n1\n".to_owned(), text), "{subject}");
    });
}

#[test]
fn without_a_directory_default_limits_end_with_quit_as_the_vendors_do() {
    for_each(only_ours(), |subject| {
        let sim = Sim::started(subject, &[]);
        let _ = sim.lab.ask(SET);
        assert_eq!(sim.lab.ask(GET), LIMITED, "{subject}");
        let daemon = sim.lab.running_daemon();
        let _ = sim.lab.ask("quit\n");
        sim.lab.wait_gone(daemon);
        sim.lab.start(&[]);
        assert_eq!(sim.lab.ask(GET), BARE, "{subject}");
    });
}

#[test]
fn what_the_environment_says_goes_before_default_limits_that_were_kept() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        let _ = house.sim.lab.ask(SET);
        house.quit();
        let mut command = house.sim.lab.command(&["-d"]);
        command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "70");
        assert_eq!(house.sim.lab.finish(&mut command, b"").code, Some(0), "{subject}");
        assert_eq!(get(&house), "70.0\n2G\n1\n", "{subject}");
        let told = "Servers start with what CUDA_MPS_ACTIVE_THREAD_PERCENTAGE says, and not with what was kept";
        assert!(house.sim.lab.log("control.log").contains(told), "{subject}");
        // It is said by who starts the daemon, and is not kept for one that is started without.
        house.quit();
        house.start();
        assert_eq!(get(&house), "100.0\n2G\n1\n", "{subject}");
    });
}

#[test]
fn a_full_disk_refuses_a_default_limit_and_leaves_everything_as_it_was() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        let Some(_disk) = SmallDisk::of(&house) else { return };
        house.start();
        let _ = house.sim.lab.ask(SET);
        let before = house.text();
        let filler = house.folder.join("filler");
        // The kernel says when it is full.
        let _ = fs::write(&filler, vec![1; 1 << 20]);
        for line in [
            "set_default_active_thread_percentage 20\n",
            "set_default_device_pinned_mem_limit 0 1G\n",
            "set_default_device_pinned_mem_limit 0 0\n",
            "set_default_client_priority 0\n",
        ] {
            let reason = refused(&house, line);
            assert!(reason.starts_with("Default limits can't be kept: "), "{subject}: {line}: {reason}");
            assert!(reason.contains("No space left on device"), "{subject}: {line}: {reason}");
            assert_eq!((get(&house), house.text()), (LIMITED.to_owned(), before.clone()), "{subject}: {line}");
        }
        // What changes nothing needs no room.
        assert_eq!(house.sim.lab.ask("set_default_active_thread_percentage 30\n"), "30.0\n", "{subject}");
        fs::remove_file(&filler).expect("it is ours");
        assert_eq!(house.sim.lab.ask("set_default_active_thread_percentage 20\n"), "20.0\n", "{subject}");
        house.quit();
        house.start();
        assert_eq!(get(&house), "20.0\n2G\n1\n", "{subject}");
        house.quit();
    });
}

#[test]
fn default_limits_that_cannot_be_read_or_are_anothers_are_told_and_never_written_over() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        let _ = house.sim.lab.ask(SET);
        house.quit();
        let good = house.text();
        // A file of another user's is whole and says what it must not be asked.
        let stranger = geteuid().is_root().then_some(65534);
        let damaged = [
            (good.trim_end().to_owned(), None),
            (good.replace("threads=30", "threads=3x"), None),
            (good.replace("threads=30", "threads=10"), stranger),
        ];
        for (text, owner) in damaged {
            fs::write(house.file(), &text).expect("the bench's folder is ours");
            if text.contains("threads=10") && owner.is_none() {
                Skipped("only root can give files away".to_owned()).report();
                continue;
            }
            chown(house.file(), owner, None).expect("it is ours");
            house.start();
            assert_eq!(get(&house), BARE, "{subject}: {text}");
            let log = house.sim.lab.log("control.log");
            assert!(log.contains("Named servers and default limits are not read from disk, and can't be changed: "));
            let reason = refused(&house, "set_default_active_thread_percentage 20\n");
            assert!(reason.starts_with("Default limits can't be kept: "), "{subject}: {reason}");
            assert_eq!((get(&house), house.text()), (BARE.to_owned(), text.clone()), "{subject}");
            house.quit();
            assert_eq!(house.text(), text, "{subject}");
            chown(house.file(), Some(geteuid().as_raw()), None).expect("we are root, or it is ours");
        }
        fs::write(house.file(), &good).expect("the bench's folder is ours");
        house.start();
        assert_eq!(get(&house), LIMITED, "{subject}");
    });
}
