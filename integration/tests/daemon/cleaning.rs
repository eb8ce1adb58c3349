//! What systemd-tmpfiles does with the daemon's directories below `/tmp`: it leaves those alone that somebody has locked.

use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use std::fs::File;
use std::path::Path;

const ROOT: u32 = 0;

/// Whether it would clean this directory, which it locks first, for itself alone.
fn is_cleaned(directory: &Path) -> bool {
    let opened = File::open(directory).expect("the directory is there");
    Flock::lock(opened, FlockArg::LockExclusiveNonblock).is_ok()
}

#[test]
fn nobody_cleans_the_directories_of_a_daemon_or_the_pipe_directory_of_its_holder() {
    Stage::run(|stage| {
        stage.start(&[]);
        let client = Program::attached(stage, ROOT);
        assert!(!is_cleaned(stage.pipe_dir()) && !is_cleaned(stage.lab().log_dir()));
        stage.kill_daemon();
        assert!(!is_cleaned(stage.pipe_dir()), "the next daemon and newcomers find each other there");
        stage.start(&[]);
        client.leave();
        let holder = stage.only(Part::Holder);
        stage.daemon().signal(Signal::SIGSTOP);
        kill(holder, Signal::SIGKILL).expect("it is ours");
        stage.lab().wait_gone(holder);
        assert!(!is_cleaned(stage.pipe_dir()) && !is_cleaned(stage.lab().log_dir()), "the daemon has its own");
        stage.kill_daemon();
        assert!(is_cleaned(stage.pipe_dir()) && is_cleaned(stage.lab().log_dir()), "nobody is left who needs them");
    });
}
