//! Ends of real processes: zombies, reaped ones, other people's children, and one that a cgroup's limit killed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid as KernelPid;

use super::*;
use crate::core::Pid;
use crate::io::process::start_time;
use crate::sys::pidfd;
use std::os::fd::AsFd;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(120);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() })
}

fn kernel_pid(pid: Pid) -> KernelPid {
    KernelPid::from_raw(pid.cast_signed())
}

fn key(pid: Pid) -> ProcessKey {
    ProcessKey { pid, start_time: start_time(kernel_pid(pid)).unwrap() }
}

fn zombie(child: &Child) {
    waitid(Id::Pid(kernel_pid(child.id())), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
}

fn sh(script: &str) -> Child {
    Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn watch(process: ProcessKey, kills: &MemoryKills) -> EndWatch {
    EndWatch::begin(process, kills, &Cgroups::default(), &Mounts::default())
}

#[test]
fn a_zombie_and_a_reaped_process_both_tell_their_status() {
    for (script, expected) in [
        ("read x; exit 7", End::Exited(7)),
        ("read x; exit 0", End::Exited(0)),
        ("read x; kill -TERM $$", End::Signaled(libc::SIGTERM)),
        ("read x; kill -KILL $$", End::Signaled(libc::SIGKILL)),
    ] {
        let mut child = sh(script);
        let process = key(child.id());
        let fd = pidfd::open(kernel_pid(child.id())).unwrap();
        assert_eq!(status::of(process, Some(&fd)), Status::NotYet);
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        zombie(&child);
        let kills = MemoryKills::default();
        assert_eq!(run(watch(process, &kills).end(Some(fd.as_fd()))), expected, "{script}, a zombie");
        assert_eq!(run(watch(process, &kills).end(None)), expected, "{script}, without a descriptor");
        child.wait().unwrap();
        let reaped = run(watch(process, &kills).end(Some(fd.as_fd())));
        if reaped == End::Unknown {
            println!("Skipped(this kernel keeps no status after the parent has asked)");
        } else {
            assert_eq!(reaped, expected, "{script}, reaped");
        }
        assert_eq!(run(watch(process, &kills).end(None)), End::Unknown);
    }
}

#[test]
fn another_process_with_the_pid_is_not_asked() {
    let mut child = sh("read x; exit 7");
    let process = ProcessKey { start_time: 1, ..key(child.id()) };
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    zombie(&child);
    assert_eq!(status::of(process, None::<BorrowedFd<'_>>), Status::Never);
    child.wait().unwrap();
}

#[test]
fn a_parent_that_takes_its_time_is_waited_for() {
    run(async {
        let mut child = sh("read x; exit 5");
        let fd = pidfd::open(kernel_pid(child.id())).unwrap();
        // A process that `/proc` does not show, so that only its descriptor can tell, and that only in the end.
        let hidden = ProcessKey { start_time: 1, ..key(child.id()) };
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        zombie(&child);
        if status::of(hidden, Some(&fd)) == Status::Never {
            println!("Skipped(this kernel keeps no status after the parent has asked)");
            child.wait().unwrap();
            return;
        }
        let kills = MemoryKills::default();
        let mut asked = std::pin::pin!(watch(hidden, &kills).end(Some(fd.as_fd())));
        let waits = std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        child.wait().unwrap();
        assert_eq!(asked.await, End::Exited(5));
    });
}

#[test]
fn a_parent_that_never_asks_is_given_up() {
    run(async {
        let mut child = sh("read x; exit 5");
        let fd = pidfd::open(kernel_pid(child.id())).unwrap();
        let hidden = ProcessKey { start_time: 1, ..key(child.id()) };
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        zombie(&child);
        assert_eq!(watch(hidden, &MemoryKills::default()).end(Some(fd.as_fd())).await, End::Unknown);
        child.wait().unwrap();
    });
}

#[test]
fn what_the_log_names_is_out_of_memory_and_its_name_is_used_once() {
    run(async {
        let kills = MemoryKills::default();
        assert!(!kills.killed(5, None).await, "nobody has read the log");
        kills.log_is_read(true);
        kills.note(5);
        assert!(kills.killed(5, None).await);
        assert!(!kills.killed(5, None).await, "a later process with that pid");
        // The log may be a little late.
        let late = kills.clone();
        let asked = tokio::spawn(async move { late.killed(6, None).await });
        tokio::task::yield_now().await;
        kills.note(7);
        kills.note(6);
        assert!(asked.await.unwrap());
    });
}

#[test]
fn a_counted_kill_explains_one_end_and_another_ones_kill_explains_none() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        std::fs::create_dir(&group).unwrap();
        let count =
            |kills: u32| std::fs::write(group.join("memory.events"), format!("oom 9\noom_kill {kills}\n")).unwrap();
        let mounts = Mounts::parse(&format!("1 2 0:3 / {} rw - cgroup2 cgroup2 rw\n", dir.path().display()));
        let cgroups = Cgroups::parse("0::/group\n");
        count(3);
        let kills = MemoryKills::default();
        let counter = kills.counter(&cgroups, &mounts).unwrap();
        assert!(!kills.killed(5, Some(&counter)).await, "the three are from before");
        count(4);
        assert!(kills.killed(5, Some(&counter)).await, "the log is not read");
        assert!(!kills.killed(6, Some(&counter)).await, "it has explained an end");
        count(5);
        kills.log_is_read(true);
        assert!(!kills.killed(7, Some(&counter)).await, "the log names nobody of ours");
        kills.note(8);
        assert!(kills.killed(8, Some(&counter)).await);
        assert!(Arc::ptr_eq(&counter, &kills.counter(&cgroups, &mounts).unwrap()), "one counter for a cgroup");
    });
}

/// A cgroup with room for 16 MiB below this process's own, removed when the test ends.
struct SmallCgroup(PathBuf);

/// The limit, far below what the test's program wants.
const LIMIT: &str = "16777216";

impl SmallCgroup {
    fn make() -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let own = Cgroups::parse(&std::fs::read_to_string("/proc/self/cgroup").unwrap());
        let counter = Mounts::read().kill_counter(&own).ok_or("no counter for this process's own cgroup")?;
        let is_legacy = counter.ends_with("memory.oom_control");
        let path = counter.parent().unwrap().join(format!("remps-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("no cgroup can be made: {error}"))?;
        let group = Self(path);
        let limit = if is_legacy { "memory.limit_in_bytes" } else { "memory.max" };
        std::fs::write(group.0.join(limit), LIMIT).map_err(|error| format!("no limit can be set: {error}"))?;
        // Without these the limit of memory alone would only push everything to swap.
        let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
        let _ = std::fs::write(group.0.join("memory.memsw.limit_in_bytes"), LIMIT);
        Ok(group)
    }
}

impl Drop for SmallCgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_that_its_cgroups_limit_killed_is_told_from_a_sigkill() {
    let group = match SmallCgroup::make() {
        Ok(group) => group,
        Err(reason) => {
            println!("Skipped({reason})");
            return;
        }
    };
    let procs = group.0.join("cgroup.procs");
    let start = |script: &str| {
        let mut child = sh(&format!("echo $$ > {} && echo in; read x; {script}", procs.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "in\n");
        child
    };
    for (script, expected) in
        [("exec tail /dev/zero", End::OutOfMemory), ("kill -KILL $$", End::Signaled(libc::SIGKILL))]
    {
        let mut child = start(script);
        let process = key(child.id());
        let fd = pidfd::open(kernel_pid(child.id())).unwrap();
        let cgroups = Cgroups::parse(&std::fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap());
        let kills = MemoryKills::default();
        let watch = EndWatch::begin(process, &kills, &cgroups, &Mounts::read());
        assert!(watch.counter.is_some());
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        zombie(&child);
        assert_eq!(run(watch.end(Some(fd.as_fd()))), expected, "{script}");
        child.wait().unwrap();
    }
}

#[test]
fn the_kernels_log_names_whom_a_limit_killed() {
    use crate::witness::kmsg::{KERNEL_LOG, KernelSign, Kmsg};
    run(async {
        let mut log = match Kmsg::open(Path::new(KERNEL_LOG)) {
            Ok(log) => log,
            Err(error) => {
                println!("Skipped({error})");
                return;
            }
        };
        let group = match SmallCgroup::make() {
            Ok(group) => group,
            Err(reason) => {
                println!("Skipped({reason})");
                return;
            }
        };
        let mut child = sh(&format!("echo $$ > {} && exec tail /dev/zero", group.0.join("cgroup.procs").display()));
        let pid = child.id();
        if !crate::sys::proc::is_in_first_pid_namespace() {
            println!("Skipped(the kernel's pids are not ours)");
        } else {
            while !log.next().await.unwrap().contains(&KernelSign::OutOfMemory(Some(pid))) {}
        }
        child.wait().unwrap();
    });
}

#[test]
fn who_has_a_thread_that_may_still_run_is_not_past_it_and_a_dying_process_tells_how_it_ends() {
    for (script, expected) in
        [("read x; exit 7", End::Exited(7)), ("read x; kill -KILL $$", End::Signaled(libc::SIGKILL))]
    {
        let mut child = sh(script);
        let process = key(child.id());
        assert_eq!(ending(process), None, "{script}, which runs");
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        zombie(&child);
        assert_eq!(ending(process), Some(expected), "{script}");
        assert_eq!(ending(ProcessKey { start_time: 1, ..process }), None, "another one of this pid");
        child.wait().unwrap();
        assert_eq!(ending(process), None, "{script}, which nobody can tell any more");
    }
    // The first thread has ended, and another one works on.
    let script = "import ctypes, os, threading\n\
        def work():\n    print('works', flush=True)\n    input()\n    os._exit(3)\n\
        threading.Thread(target=work).start()\n\
        ctypes.CDLL(None).syscall(60, 0)\n";
    let python = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = python.unwrap();
    let process = key(child.id());
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let started = std::time::Instant::now();
    let is_zombie = || ProcDir::open(process.pid).and_then(|dir| dir.stat()).is_some_and(|stat| stat.state == b'Z');
    while !is_zombie() {
        assert!(started.elapsed() < PATIENCE, "its first thread does not end");
        std::thread::yield_now();
    }
    assert_eq!(ending(process), None, "a thread of it works");
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    zombie(&child);
    assert_eq!(ending(process), Some(End::Exited(3)));
    child.wait().unwrap();
}
