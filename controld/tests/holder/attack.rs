//! Attacks by another user on everything that a daemon makes or finds by name, each tried again and again: 0 are won.
//!
//! The directories are open to everybody before each round, as the vendor's daemon leaves them.

pub(crate) mod starts;

use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use remps_controld::parts::holder::{HolderLink, Kind, SOCKET_NAME};
use remps_controld::parts::io::folder::Folder;
use remps_controld::parts::io::log_fifo;
use remps_controld::parts::io::runtime_dir::{CONTROL, LOG, RuntimeDir};
use remps_controld::parts::observe::http::Endpoint;
use remps_controld::parts::observe::journal::Journal;
use remps_controld::parts::observe::log::{CONTROL_LOG, Format, Limits, LogSink};

use crate::lab::{DEADLINE, Lab, trials};
use crate::racer::Racer;

trials![
    nobody_else_becomes_the_holder_of_a_daemon_that_starts_one,
    nobody_else_becomes_the_holder_of_a_successor,
    root_of_a_container_does_not_become_the_holder,
    no_mode_is_changed_through_a_link_when_sockets_are_made,
    no_mode_is_changed_through_a_link_where_the_directory_stays_open,
    no_directory_is_taken_through_a_link_in_its_place,
    no_pipe_of_another_user_becomes_the_log,
    no_log_is_written_through_a_link,
];

/// Starts of a holder, each a process.
const STARTS: usize = 100;
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
