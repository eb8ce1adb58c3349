//! Named servers on disk: they outlive `quit`, sudden death at every step leaves what was before or what was asked for,
//! and what can't be read or written is told and left alone.

mod deaths;

use integration::lab::process::Process;
use integration::lab::{LIMIT, watch::wait_for};
use integration::sim::Sim;
use integration::under_test::{Skipped, Subject, for_each, only_ours};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use std::fs;
use std::path::{Path, PathBuf};

/// A bench whose daemon keeps its servers in a folder of its own.
pub(super) struct House {
    pub(super) sim: Sim,
    pub(super) folder: PathBuf,
}

impl House {
    pub(super) fn new(subject: &Subject) -> Self {
        let sim = Sim::new(subject, &[]);
        let folder = sim.lab.dir().join("state");
        sim.config(&format!("state_directory = \"{}\"\n", folder.display()));
        Self { sim, folder }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("servers.toml")
    }

    pub(super) fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap_or_default()
    }

    pub(super) fn start(&self) {
        self.sim.lab.start(&[]);
    }

    pub(super) fn quit(&self) {
        let daemon = self.sim.lab.running_daemon();
        assert_eq!(self.sim.lab.ask("quit\n"), "");
        self.sim.lab.wait_gone(daemon);
    }

    pub(super) fn does(&self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let done = self.sim.lab.run(&words, b"");
        assert_eq!((done.code, done.stderr_text()), (Some(0), String::new()), "{line}");
    }

    fn fails(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let failed = self.sim.lab.run(&words, b"");
        assert_eq!((failed.code, failed.stdout_text()), (Some(1), String::new()), "{line}");
        failed.stderr_text()
    }

    /// A command of either interface that succeeds, or what comes before that.
    fn says(&self, line: &str) -> Option<i32> {
        let words: Vec<&str> = line.split(' ').filter(|_| !line.starts_with("set_default")).collect();
        let lines = if words.is_empty() { format!("{line}\n") } else { String::new() };
        self.sim.lab.run(&words, lines.as_bytes()).code
    }

    /// What there is, with what servers to come start with, and the file.
    fn everything(&self) -> (Vec<String>, String, String) {
        (self.spaces(), self.sim.lab.ask("get_default_active_thread_percentage\n"), self.text())
    }

    /// What there is: each namespace with its server and limits, but not what its process does.
    fn spaces(&self) -> Vec<String> {
        let listed = self.sim.lab.ask("namespace list --format=csv,noheader\n");
        let row = |line: &str| {
            let columns: Vec<&str> = line.split(',').collect();
            [columns[0], columns[1], columns[3], columns[4], columns[5]].join(",")
        };
        listed.lines().map(row).collect()
    }

    /// Kills everything at once, as the end of the machine does.
    pub(super) fn pull_the_plug(&self) {
        let dir = self.sim.lab.dir();
        // A daemon that finds its holder dead may have started another one before its own turn comes.
        wait_for(dir, dir, LIMIT, "the end of all", || {
            let living = self.sim.lab.processes();
            for process in &living {
                // One may have ended meanwhile.
                let _ = kill(*process, Signal::SIGKILL);
            }
            living.is_empty()
        });
    }
}

#[test]
fn named_servers_and_limits_are_there_again_after_quit_and_after_the_machines_end() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        house.does("server create training");
        house.does("namespace create jobs --server=training");
        house.does("namespace set jobs --server=training --active-thread-percentage=30 --client-priority=1");
        house.does("server create other --uid=0");
        let (before, text) = (house.spaces(), house.text());
        assert_eq!(before.len(), 3, "{subject}: {before:?}");
        house.quit();
        house.start();
        assert_eq!((house.spaces(), house.text()), (before.clone(), text.clone()), "{subject}");
        let mut command = house.sim.command("mps-bystander", &[]);
        command.env("CUDA_MPS_PIPE_DIRECTORY", house.sim.lab.pipe_dir().join("training/jobs"));
        let client = Process::start(&mut command);
        house.sim.wait_event(&client, "ready");
        house.pull_the_plug();
        house.start();
        assert_eq!((house.spaces(), house.text()), (before, text), "{subject}");
        house.does("namespace delete jobs --server=training");
        house.does("server delete other");
        assert!(house.fails("server delete other").contains("not found"), "{subject}");
        house.quit();
        house.start();
        assert_eq!(house.spaces(), ["default,training,-,100.00,0"], "{subject}");
        // A second daemon does not take the first one's servers for its own.
        let second = Sim::new(subject, &[]);
        second.config(&format!("state_directory = \"{}\"\n", house.folder.display()));
        second.lab.start(&[]);
        assert_eq!(second.lab.ask("namespace list --format=csv,noheader\n").trim(), "", "{subject}");
        let refused = second.lab.run(&["server", "create", "mine"], b"").stderr_text();
        assert!(refused.contains("another daemon keeps its servers there"), "{subject}: {refused}");
    });
}

#[test]
fn the_file_of_the_option_goes_before_what_is_kept_and_what_it_does_not_name_stays() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        for name in ["first", "second"] {
            house.does(&format!("server create {name}"));
            house.does(&format!("server set {name} --active-thread-percentage=40"));
            house.does(&format!("namespace create jobs --server={name}"));
        }
        house.quit();
        let file = house.sim.lab.dir().join("servers.toml");
        let text = "schema_version = \"1.0\"\n[servers.first]\nactive_thread_percentage = 70\n[servers.third]\n";
        fs::write(&file, text).expect("the bench's folder is ours");
        house.sim.lab.start(&["-a", file.to_str().expect("its name is plain")]);
        let expected = [
            "default,first,-,70.00,0",
            "default,second,-,40.00,0",
            "jobs,second,-,40.00,0",
            "default,third,-,100.00,0",
        ];
        assert_eq!(house.spaces(), expected, "{subject}");
        let told = "Server first is as the option -a has it, and not as it was kept";
        assert!(house.sim.lab.log("control.log").contains(told), "{subject}");
        house.quit();
        // What the option has named is kept as well.
        house.start();
        assert_eq!(house.spaces(), expected, "{subject}");
    });
}

#[test]
fn what_is_kept_and_cannot_be_read_is_told_and_never_written_over() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        house.does("server create training");
        house.quit();
        let good = house.text();
        let torn = good.trim_end().to_owned();
        let other = good.replace("version 1\n", "version 9\n");
        for text in [torn, other, good.replace("[servers.training]", "[servers.training]\nlimits = 1")] {
            fs::write(house.file(), &text).expect("the bench's folder is ours");
            house.start();
            assert_eq!(house.spaces(), Vec::<String>::new(), "{subject}");
            let status = house.sim.lab.ask("status -o wide\n");
            assert!(status.contains("named servers: not read from disk, no changes: "), "{subject}: {status}");
            let refused = house.fails("server create other");
            assert!(refused.starts_with("Named servers can't be kept: "), "{subject}: {refused}");
            assert!(!house.sim.lab.pipe_dir().join("other/control").exists(), "{subject}: nothing is half done");
            // Everything else works.
            let client = house.sim.start("mps-bystander", &[], "ready");
            drop(client);
            house.quit();
            assert_eq!(house.text(), text, "{subject}");
        }
        fs::write(house.file(), &good).expect("the bench's folder is ours");
        house.start();
        assert_eq!(house.spaces(), ["default,training,-,100.00,0"], "{subject}");
    });
}

#[test]
fn a_kept_server_whose_device_is_missing_stays_kept_until_it_is_made_anew() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        house.does("server create training");
        house.quit();
        let text = house.text().replace("[servers.training]", "[servers.training]\nallowed_devices = \"GPU-dead\"");
        fs::write(house.file(), &text).expect("the bench's folder is ours");
        house.start();
        house.sim.lab.wait_log("control.log", "The kept server training can't be made, and stays kept: ");
        house.does("server create other");
        assert!(house.text().contains("GPU-dead"), "{subject}: it is kept beside");
        house.does("server create training");
        assert!(!house.text().contains("GPU-dead"), "{subject}");
        house.quit();
        house.start();
        assert_eq!(house.spaces(), ["default,other,-,100.00,0", "default,training,-,100.00,0"], "{subject}");
    });
}

/// A file system with room for a few small files.
pub(super) struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Where a house keeps its things; without the right to mount the test is skipped, which is said.
    pub(super) fn of(house: &'a House) -> Option<Self> {
        fs::create_dir(&house.folder).expect("the bench's folder is ours");
        let options = Some("size=64k,mode=0755");
        match mount(Some("small"), &house.folder, Some("tmpfs"), MsFlags::empty(), options) {
            Ok(()) => Some(Self(&house.folder)),
            Err(error) => {
                Skipped(format!("no file system can be mounted here: {error}")).report();
                None
            }
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_refuses_the_command_and_leaves_everything_as_it_was() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        let Some(_disk) = SmallDisk::of(&house) else { return };
        house.start();
        house.does("server create training");
        let before = (house.spaces(), house.text());
        let filler = house.folder.join("filler");
        // The kernel says when it is full.
        let _ = fs::write(&filler, vec![1; 1 << 20]);
        for line in [
            "server create other",
            "namespace create jobs --server=training",
            "server set training --active-thread-percentage=10",
            "server delete training",
        ] {
            let refused = house.fails(line);
            assert!(refused.contains("No space left on device"), "{subject}: {line}: {refused}");
            assert_eq!((house.spaces(), house.text()), before, "{subject}: {line}");
        }
        assert!(!house.sim.lab.pipe_dir().join("other/control").exists(), "{subject}");
        assert!(!house.sim.lab.pipe_dir().join("training/jobs/control").exists(), "{subject}");
        fs::remove_file(&filler).expect("it is ours");
        house.does("server set training --active-thread-percentage=10");
        house.quit();
        house.start();
        assert_eq!(house.spaces(), ["default,training,-,10.00,0"], "{subject}");
        house.quit();
    });
}

#[test]
fn what_has_joined_is_not_kept_and_joins_again_after_quit() {
    for_each(only_ours(), |subject| {
        let house = House::new(subject);
        house.start();
        let lab = &house.sim.lab;
        let claim = lab.dir().join("claim");
        fs::create_dir(&claim).expect("the bench's folder is ours");
        let there = |arguments: &[&str], stdin: &str| {
            let mut command = lab.command(arguments);
            command.env("CUDA_MPS_PIPE_DIRECTORY", &claim).env("CUDA_MPS_LOG_DIRECTORY", &claim);
            lab.finish(&mut command, stdin.as_bytes())
        };
        let node = lab.pipe_dir().to_str().expect("a path of ours").to_owned();
        let joined = there(&["--join", &node, "--join-name", "claimed", "-d"], "");
        assert_eq!((joined.code, joined.stderr_text()), (Some(0), String::new()), "{subject}");
        let joined_again = |times: usize| {
            wait_for(lab.dir(), &claim, LIMIT, "another joining", || {
                let log = fs::read_to_string(claim.join("control.log")).unwrap_or_default();
                log.matches(" again as claimed").count() == times
            });
        };
        // Neither by a change, nor by a daemon that goes on where another one was killed and finds a file that says less.
        house.does("server create training");
        let daemon = lab.running_daemon();
        kill(daemon, Signal::SIGKILL).expect("it runs");
        lab.wait_gone(daemon);
        fs::remove_file(house.file()).expect("it was kept");
        house.start();
        joined_again(1);
        let text = house.text();
        assert!(text.contains("training") && !text.contains("claimed"), "{subject}: {text}");
        house.quit();
        house.start();
        joined_again(2);
        let text = house.text();
        assert!(text.contains("training") && !text.contains("claimed"), "{subject}: {text}");
        assert_eq!(there(&[], "quit\n").code, Some(0), "{subject}");
    });
}
