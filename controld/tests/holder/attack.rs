//! Attacks by another user on everything that a daemon makes or finds by name, each tried again and again: 0 are won.
//!
//! The directories are open to everybody before each round, as the vendor's daemon leaves them.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use remps_controld::parts::holder::{HolderLink, Kind, SOCKET_NAME};
use remps_controld::parts::io::folder::Folder;
use remps_controld::parts::io::log_fifo;
use remps_controld::parts::io::runtime_dir::{CONTROL, LOG, RuntimeDir};
use remps_controld::parts::observe::http::Endpoint;
use remps_controld::parts::observe::journal::Journal;
use remps_controld::parts::observe::log::{CONTROL_LOG, Format, Limits, LogSink};

use crate::lab::{DEADLINE, Lab, trials};
use crate::racer::{Racer, STRANGER};

trials![
    nobody_else_becomes_the_holder_of_a_daemon_that_starts_one,
    nobody_else_becomes_the_holder_of_a_successor,
    root_of_a_container_does_not_become_the_holder,
    no_mode_is_changed_through_a_link_when_sockets_are_made,
    no_mode_is_changed_through_a_link_where_the_directory_stays_open,
    no_directory_is_taken_through_a_link_in_its_place,
    no_pipe_of_another_user_becomes_the_log,
    no_log_is_written_through_a_link,
    no_start_of_the_daemon_is_won_whatever_was_put_into_its_directory,
    another_users_socket_is_not_talked_to,
];

/// Starts of a holder, each a process.
const STARTS: usize = 100;
/// Starts of the whole daemon.
const DAEMONS: usize = 12;
/// Rounds of what takes a few system calls.
const ROUNDS: usize = 2000;
/// Rounds of what takes more, each of which attackers hold up.
const FEWER_ROUNDS: usize = 500;

fn skipped_without_root() -> bool {
    let skipped = !nix::unistd::geteuid().is_root();
    if skipped {
        eprintln!("Skipped(only root can become another user)");
    }
    skipped
}

fn open_to_everybody(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
}

/// A file of root that nobody may touch, beside the lab's directory.
struct Victim {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Victim {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("victim");
        fs::write(&path, "").unwrap();
        let victim = Self { _folder: folder, path };
        victim.restore();
        victim
    }

    fn restore(&self) {
        fs::write(&self.path, "").unwrap();
        fs::set_permissions(&self.path, Permissions::from_mode(0o600)).unwrap();
    }

    /// Whether its mode or content is another than it was; then it is restored.
    fn was_hit(&self) -> bool {
        let found = fs::metadata(&self.path).unwrap();
        let hit = found.mode() & 0o7777 != 0o600 || found.len() != 0;
        self.restore();
        hit
    }
}

/// Attaches, gives the holder something and ends the holder that was started.
async fn attach_once(lab: &Lab) {
    let (mut link, _) = HolderLink::attach(lab.dir()).await.unwrap();
    let (secret, _other) = crate::lab::pair();
    let _ = link.hold(1, Kind::STATE, b"secret", &[secret.as_fd()]);
    if link.is_child() {
        let _ = kill(link.pid(), Signal::SIGKILL);
        link.reap();
    }
}

/// Rounds of something that is attacked.
struct Rounds {
    least: usize,
    done: usize,
    begun: Instant,
}

impl Rounds {
    /// So many at least.
    fn of(least: usize) -> Self {
        Self { least, done: 0, begun: Instant::now() }
    }

    /// Whether there is another one: as many as there are to be, and more until the attacker has had his chance, for which
    /// a busy machine may leave him no time.
    fn goes_on(&mut self, is_tried: impl FnOnce() -> bool) -> bool {
        let goes_on = self.done < self.least || (self.begun.elapsed() < DEADLINE && !is_tried());
        self.done += usize::from(goes_on);
        goes_on
    }
}

async fn nobody_else_becomes_the_holder_of_a_daemon_that_starts_one(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    open_to_everybody(lab.dir());
    let racer = Racer::holder(&lab.path(SOCKET_NAME));
    let mut rounds = Rounds::of(STARTS);
    while rounds.goes_on(|| racer.placed() > 0) {
        attach_once(lab).await;
    }
    assert_ne!(racer.placed(), 0, "he was never there");
    assert_eq!(racer.won(), 0, "of {} starts", rounds.done);
}

async fn nobody_else_becomes_the_holder_of_a_successor(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    open_to_everybody(lab.dir());
    let racer = Racer::holder(&lab.path(SOCKET_NAME));
    let mut rounds = Rounds::of(STARTS);
    while rounds.goes_on(|| racer.placed() > 0) {
        let (mut first, _) = HolderLink::attach(lab.dir()).await.unwrap();
        first.hold(1, Kind::STATE, b"secret", &[]).unwrap();
        crate::lab::settle(&mut first).await;
        let holder = first.pid();
        drop(first);
        // Either the holder is found or another is started; nobody else is told anything.
        attach_once(lab).await;
        let _ = kill(holder, Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(holder, None);
    }
    assert_ne!(racer.placed(), 0, "he was never there");
    assert_eq!(racer.won(), 0, "of {} successions", rounds.done);
}

async fn root_of_a_container_does_not_become_the_holder(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let Some(racer) = Racer::container(&lab.path(SOCKET_NAME)) else { return };
    attach_once(lab).await;
    drop(lab.raw_attach());
    assert_eq!(racer.won(), 0);
}

async fn no_mode_is_changed_through_a_link_when_sockets_are_made(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let victim = Victim::new();
    let target = lab.path(&format!(".new-{}-0", std::process::id()));
    // One is there before the directory is closed, the other waits for the name.
    let racers = [Racer::link_first(&target, &victim.path), Racer::link(&target, &victim.path)];
    let (mut won, mut made) = (0, 0);
    let mut rounds = Rounds::of(ROUNDS);
    while rounds.goes_on(|| racers[0].placed() > 0 && made > 0) {
        let _ = fs::remove_file(&target);
        open_to_everybody(lab.dir());
        let mut directory = RuntimeDir::open(lab.dir()).unwrap();
        made += usize::from(directory.bind_listener(CONTROL, 0o666).is_ok());
        won += usize::from(victim.was_hit());
    }
    assert_eq!(won, 0, "of {}", rounds.done);
    assert!(racers[0].placed() > 0 && made > 0, "nothing was tried");
}

async fn no_mode_is_changed_through_a_link_where_the_directory_stays_open(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let victim = Victim::new();
    open_to_everybody(lab.dir());
    let name = lab.path("metrics.sock");
    let temporary = lab.path(&format!(".new-{}-0", std::process::id()));
    let racers = [&name, &name, &temporary].map(|at| Racer::link(at, &victim.path));
    let mut won = 0;
    let mut rounds = Rounds::of(ROUNDS);
    while rounds.goes_on(|| racers.iter().any(|racer| racer.placed() > 0)) {
        let _ = fs::remove_file(&name);
        drop(Endpoint::bind(&format!("unix:{}", name.display())).await);
        won += usize::from(victim.was_hit());
    }
    assert_eq!(won, 0, "of {}", rounds.done);
    assert_ne!(racers.iter().map(Racer::placed).sum::<usize>(), 0, "nothing was tried");
}

async fn no_directory_is_taken_through_a_link_in_its_place(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let victim = Victim::new();
    let prey = victim.path.with_file_name("prey");
    fs::create_dir(&prey).unwrap();
    fs::set_permissions(&prey, Permissions::from_mode(0o700)).unwrap();
    open_to_everybody(lab.dir());
    let path = lab.path("mps");
    let racers = [Racer::link(&path, &prey), Racer::link_first(&path, &prey)];
    let (mut won, mut used) = (0, 0);
    let mut rounds = Rounds::of(FEWER_ROUNDS);
    while rounds.goes_on(|| racers[1].placed() > 0 && used > 0) {
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        let opened = RuntimeDir::open(&path);
        let is_hit = fs::metadata(&prey).unwrap().mode() & 0o7777 != 0o700 || fs::read_dir(&prey).unwrap().count() > 0;
        won += usize::from(is_hit);
        used += usize::from(opened.is_ok());
        drop(opened);
        fs::set_permissions(&prey, Permissions::from_mode(0o700)).unwrap();
    }
    assert_eq!(won, 0, "of {}", rounds.done);
    assert!(racers[1].placed() > 0 && used > 0, "nothing was tried");
}

async fn no_pipe_of_another_user_becomes_the_log(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    open_to_everybody(lab.dir());
    let temporary = lab.path(&format!(".new-{}-0", std::process::id()));
    let racers = [Racer::pipe(&temporary), Racer::pipe(&lab.path(LOG))];
    let (mut won, mut made) = (0, 0);
    let mut rounds = Rounds::of(ROUNDS);
    while rounds.goes_on(|| made > 0 && racers.iter().any(|racer| racer.placed() > 0)) {
        let Ok(fifo) = log_fifo::create(&Folder::open(lab.dir()).unwrap(), LOG, log_fifo::MODE) else { continue };
        made += 1;
        won += usize::from(nix::sys::stat::fstat(&fifo).unwrap().st_uid != 0);
    }
    assert_eq!(won, 0, "of {}", rounds.done);
    let placed: usize = racers.iter().map(Racer::placed).sum();
    assert!(placed > 0 && made > 0, "nothing was tried: {placed} placed, {made} made");
}

async fn no_log_is_written_through_a_link(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let victim = Victim::new();
    open_to_everybody(lab.dir());
    let names = [CONTROL_LOG, "control.log.1", "events.jsonl"].map(|name| lab.path(name));
    let racers = names.each_ref().map(|name| Racer::link_first(name, &victim.path));
    let (mut won, mut written) = (0, 0);
    let mut rounds = Rounds::of(FEWER_ROUNDS);
    while rounds.goes_on(|| written > 0 && racers.iter().all(|racer| racer.placed() > 0)) {
        let limits = Limits { file_bytes: 200, ..Limits::default() };
        let (log, _) = LogSink::files(lab.dir(), limits, Format::Vendor);
        log.control(1, "a line of the daemon");
        log.control(1, &"a line that turns the file over".repeat(5));
        let (mut journal, _) = Journal::open(lab.dir(), 1000);
        let event = serde_json::json!({ "event": "daemon-ended", "status": 0 });
        let (_, _, remark) = journal.append(&event, SystemTime::now());
        written += usize::from(remark.is_none());
        won += usize::from(victim.was_hit());
        names.iter().for_each(|name| drop(fs::remove_file(name)));
    }
    assert_eq!(won, 0, "of {}", rounds.done);
    assert!(written > 0, "the journal was never written");
    assert!(racers.iter().all(|racer| racer.placed() > 0), "nothing was tried");
}

async fn another_users_socket_is_not_talked_to(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let folder = lab.path("mps");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(lab.dir(), Permissions::from_mode(0o755)).unwrap();
    open_to_everybody(&folder);
    for name in ["control_privileged", CONTROL] {
        let racer = Racer::daemon(&folder.join(name));
        assert!(!RealDaemon::answers(lab.dir(), "terminate_client 1 2\n"));
        assert_eq!(racer.won(), 0, "{name}");
        drop(racer);
        fs::remove_file(folder.join(name)).unwrap();
    }
}

/// The daemon itself.
struct RealDaemon {
    child: Child,
    lab: PathBuf,
}

impl RealDaemon {
    fn command(lab: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvidia-cuda-mps-control"));
        command
            .env_clear()
            .env("CUDA_MPS_PIPE_DIRECTORY", lab.join("mps"))
            .env("CUDA_MPS_LOG_DIRECTORY", lab.join("logs"));
        command.env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command
    }

    fn start(lab: &Path) -> Self {
        let said = fs::File::create(lab.join("said")).unwrap();
        let child = Self::command(lab).arg("-f").stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap();
        Self { child, lab: lab.to_owned() }
    }

    fn child_lives(&self) -> bool {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        // Not reaped, which the value does at its end.
        let ended = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT);
        ended == Ok(WaitStatus::StillAlive)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.lab.join("said")).unwrap()
    }

    fn answers(lab: &Path, command: &str) -> bool {
        let mut ui =
            Self::command(lab).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // One that finds no daemon ends before it has read.
        let _ = ui.stdin.take().unwrap().write_all(command.as_bytes());
        ui.wait().unwrap().success()
    }
}

impl Drop for RealDaemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn no_start_of_the_daemon_is_won_whatever_was_put_into_its_directory(lab: &Lab) {
    if skipped_without_root() {
        return;
    }
    let victim = Victim::new();
    let folder = lab.path("mps");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(lab.dir(), Permissions::from_mode(0o755)).unwrap();
    open_to_everybody(&folder);
    let holder = Racer::holder(&folder.join(SOCKET_NAME));
    let links = [CONTROL, "control_privileged", LOG].map(|name| Racer::link_first(&folder.join(name), &victim.path));
    for round in 0..DAEMONS {
        open_to_everybody(&folder);
        // Of another user, and of a kind that can't simply be replaced.
        for (name, is_lock) in [("shim", false), ("nvidia-cuda-mps-control.pid", false), ("control_lock", true)] {
            let path = folder.join(name);
            let made = if is_lock { fs::write(&path, "") } else { fs::create_dir(&path) };
            made.unwrap();
            std::os::unix::fs::lchown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
        }
        let daemon = RealDaemon::start(lab.dir());
        crate::lab::eventually("the daemon answers", || {
            assert!(daemon.child_lives(), "round {round}: {}", daemon.said());
            daemon.said().contains("Starting control daemon") && RealDaemon::answers(lab.dir(), "get_server_list\n")
        });
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o755);
        let foreign = |name: &&str| fs::symlink_metadata(folder.join(name)).unwrap().uid() != 0;
        let names = [CONTROL, "control_privileged", LOG, SOCKET_NAME, "shim", "nvidia-cuda-mps-control.pid"];
        assert_eq!(names.iter().find(|name| foreign(name)), None, "{}", daemon.said());
        assert!(daemon.said().contains("had mode 0777"), "{}", daemon.said());
        assert!(RealDaemon::answers(lab.dir(), "quit\n"));
        crate::lab::eventually("the daemon ends", || !daemon.child_lives());
        assert!(!victim.was_hit());
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
    assert_eq!(holder.won(), 0, "of {DAEMONS}");
    assert!(links.iter().all(|link| link.placed() > 0), "nothing was tried");
}
