//! Identities of real processes, also of ones that do not want to be read.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::text::MAX_COMMAND;
use super::*;
use crate::io::process;
use proptest::prelude::*;
use remps_proto::who::MAX_LABEL;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(120);
/// A deadline that a test can wait out.
const SHORT: Duration = Duration::from_millis(50);

/// Those that wait for a read for as long as a test does: how long it takes on a busy machine is not the matter.
fn patient() -> Identities {
    Identities::with_deadline(PATIENCE)
}

/// The same with the places and the stuck readers of others.
fn patient_like(identities: &Identities) -> Identities {
    Identities { deadline: PATIENCE, ..identities.clone() }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() })
}

/// A child that waits for its standard input to close, and is reaped when the test ends.
struct Waiting(Child);

impl Waiting {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // It answers once it runs its own program.
        child.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(line, "x\n");
        Self(child)
    }

    fn pid(&self) -> Pid {
        self.0.id()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_known_by_start_time_cgroup_command_and_label() {
    let child =
        Waiting::start(Command::new("cat").arg("-").env("MPS_DOMAIN", "batch").env("PADDING", "x".repeat(100_000)));
    let found = run(patient().of(child.pid(), 0, None));
    let kernel_pid = nix::unistd::Pid::from_raw(child.pid().cast_signed());
    assert_eq!(Some(found.identity.start_time), process::start_time(kernel_pid));
    assert_eq!(found.identity.command, "cat -");
    assert_eq!(found.identity.program, "cat");
    assert_eq!(found.identity.label.as_deref(), Some("batch"));
    assert!(found.identity.cgroup.starts_with('/'), "{found:?}");
    assert_eq!(found.missing, None);
}

#[test]
fn a_long_command_line_is_cut_and_cannot_break_a_line() {
    let child = Waiting::start(Command::new("sh").arg("-c").arg("exec cat").arg("a\nb\u{1b}[2J").arg("ä".repeat(400)));
    // The shell has become `cat`: its own line has no arguments.
    let found = run(patient().of(child.pid(), 0, None));
    assert_eq!(found.identity.command, "cat");
    let child = Waiting::start(Command::new("sh").args([
        "-c",
        "while read x; do echo $x; done",
        "a\nb\u{1b}[2J",
        &"ä".repeat(400),
    ]));
    let command = run(patient().of(child.pid(), 0, None)).identity.command;
    assert!(
        command.len() <= MAX_COMMAND && command.starts_with("sh -c while read x; do echo $x; done a b [2J ää"),
        "{command}"
    );
}

#[test]
fn a_zombie_has_its_name_in_brackets() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let flags = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
    nix::sys::wait::waitid(nix::sys::wait::Id::Pid(pid), flags).unwrap();
    let found = run(patient().of(child.id(), 0, None));
    assert_eq!(found.identity.command, "[true]");
    child.wait().unwrap();
}

#[test]
fn what_is_gone_unseen_or_another_has_its_reason() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let identities = patient();
    assert_eq!(run(identities.of(child.id(), 0, None)).missing, Some(Missing::Ended));
    assert_eq!(run(identities.of(0, 0, None)).missing, Some(Missing::NotVisible));
    let found = run(identities.of(std::process::id(), 0, Some(1)));
    assert_eq!((found.missing, found.identity), (Some(Missing::Another), Identity::default()));
}

#[test]
fn a_directory_of_an_ended_process_says_nothing_of_its_successor() {
    let child = Waiting::start(&mut Command::new("cat"));
    let dir = ProcDir::open(child.pid()).unwrap();
    assert!(dir.start_time().is_some());
    drop(child);
    assert_eq!(dir.start_time(), None);
    assert!(dir.file("cmdline").is_err());
}

/// A program that takes the page with its arguments away and answers no page fault there. It needs [`VARIABLES`].
const UNREADABLE: &str = r#"
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
stat = open("/proc/self/stat").read().rsplit(")", 1)[1].split()
start = int(stat[45]) & ~4095
length = (int(stat[46]) + 4095 & ~4095) - start
fd = libc.syscall(323, os.O_CLOEXEC)
U64x3, U64x4 = ctypes.c_uint64 * 3, ctypes.c_uint64 * 4
api, area = U64x3(0xaa, 0, 0), U64x4(start, length, 1, 0)
done = fd >= 0 and libc.ioctl(fd, ctypes.c_ulong(0xc018aa3f), api) == 0
done = done and libc.ioctl(fd, ctypes.c_ulong(0xc020aa00), area) == 0
done = done and libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), 4) == 0
sys.stdin.readline()
os.write(1, b"x\n" if done else b"no\n")
sys.stdin.readline()
"#;
/// The page in which the arguments begin holds what lies below them as well: how the stack happens to lie, that is what
/// functions still use, and the program would wait for itself. Pointers to so many variables fill a page and more.
const VARIABLES: usize = 1024;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_process_that_answers_no_page_fault_is_not_waited_for() {
    let mut command = Command::new("python3");
    command.args(["-c", UNREADABLE]).envs((0..VARIABLES).map(|number| (format!("VARIABLE_{number}"), "")));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => Waiting(child),
        Err(error) => {
            println!("Skipped(python3: {error})");
            return;
        }
    };
    child.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.0.stdout.take().unwrap()), &mut line).unwrap();
    if line != "x\n" {
        println!("Skipped(no userfaultfd)");
        return;
    }
    // The kernel gives up such a page, and does not wait for whoever should bring it.
    let found = run(patient().of(child.pid(), 7, None));
    assert_eq!((found.identity.command.as_str(), found.missing), ("[python3]", None));
}

#[test]
fn readers_that_do_not_come_back_cost_their_user_two_threads_and_nobody_else_anything() {
    run(async {
        let identities = Identities::with_deadline(SHORT);
        let own = std::process::id();
        let (ends_tx, ends_rx) = std::sync::mpsc::channel::<()>();
        let ends_rx = Arc::new(Mutex::new(ends_rx));
        for _ in 0..MAX_STUCK_OF_USER {
            // As a process does whose memory lock a driver holds.
            let held = ends_rx.clone();
            let read = move || {
                let _ = held.lock().recv();
                Memory::default()
            };
            assert_eq!(identities.memory(7, read).await.missing, Some(Missing::Stuck));
        }
        assert_eq!(identities.busy(), MAX_STUCK_OF_USER);
        let found = identities.of(own, 7, None).await;
        assert_eq!(found.missing, Some(Missing::UserIsStuck));
        assert!(found.identity.start_time > 0 && found.identity.command.starts_with('['), "the rest is known");
        assert_eq!(patient_like(&identities).of(own, 8, None).await.missing, None);

        // They come back.
        drop(ends_tx);
        let all = u32::try_from(MAX_READERS).unwrap();
        drop(identities.places.acquire_many(all).await.unwrap());
        assert!(identities.stuck.lock().is_empty());
        assert_eq!(patient_like(&identities).of(own, 7, None).await.missing, None);
    });
}

#[test]
fn with_every_thread_busy_the_next_one_waits_and_then_gives_up() {
    run(async {
        let identities = Identities::with_deadline(SHORT);
        let mut places = Vec::new();
        for uid in (100..).take(MAX_READERS) {
            places.push(identities.place(uid).await.unwrap());
        }
        assert_eq!(identities.of(std::process::id(), 0, None).await.missing, Some(Missing::Busy));
        // One place becomes free while somebody waits.
        let waiter = patient_like(&identities);
        let waiting = tokio::spawn(async move { waiter.of(std::process::id(), 0, None).await });
        tokio::task::yield_now().await;
        places.pop();
        assert_eq!(waiting.await.unwrap().missing, None);
    });
}

#[test]
fn a_label_is_found_wherever_it_stands_and_only_as_a_whole_name() {
    let search = |environment: &[u8]| text::search(environment).map(|found| found.label);
    assert_eq!(search(b"A=1\0MPS_DOMAIN=x\0B=2\0").unwrap().as_deref(), Some("x"));
    assert_eq!(search(b"MPS_DOMAIN=x").unwrap().as_deref(), Some("x"));
    assert_eq!(search(b"XMPS_DOMAIN=x\0MPS_DOMAINS=y\0A=MPS_DOMAIN=z\0MPS_DOMAIN=\0").unwrap(), None);
    let long = [b"MPS_DOMAIN=".to_vec(), vec![b'x'; MAX_LABEL + 1]].concat();
    assert_eq!(search(&long).unwrap_err(), Missing::BadLabel);
    assert_eq!(search(&long[..long.len() - 1]).unwrap().unwrap().len(), MAX_LABEL);
    assert_eq!(search(b"MPS_DOMAIN=a\nb\0").unwrap_err(), Missing::BadLabel);
    let both = text::search(&b"CUDA_VISIBLE_DEVICES=GPU-1,2\0MPS_DOMAIN=x\0CUDA_VISIBLE_DEVICES=3"[..]).unwrap();
    assert_eq!((both.label.as_deref(), both.visible.as_deref()), (Some("x"), Some("GPU-1,2")));
    assert_eq!(text::search(&b"CUDA_VISIBLE_DEVICES="[..]).unwrap().visible.as_deref(), Some(""));
}

#[test]
fn a_share_of_threads_is_one_or_nothing() {
    let threads = |value: &str| {
        let environment = format!("A=1\0CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={value}\0B=2\0");
        text::search(environment.as_bytes()).unwrap().threads.map(Threads::percent)
    };
    assert_eq!((threads("25"), threads("12.5"), threads("100")), (Some(25.0), Some(12.5), Some(100.0)));
    for value in ["", "0", "-3", "101", "NaN", "inf", "x", "\u{1b}[2J", &"1".repeat(40)] {
        assert_eq!(threads(value), None, "{value:?}");
    }
}

#[test]
fn an_environment_without_end_is_given_up() {
    assert_eq!(text::search(std::io::repeat(b'x')).unwrap_err(), Missing::Large);
    assert_eq!(text::search(std::io::repeat(0)).unwrap_err(), Missing::Large);
}

proptest! {
    #[test]
    fn the_pieces_that_an_environment_comes_in_make_no_difference(
        before in prop::collection::vec("[A-Z_=]{0,20}", 0..5),
        after in prop::collection::vec("[A-Z_=]{0,20}", 0..5),
        size in 1..40_usize,
    ) {
        struct Pieces<'a>(&'a [u8], usize);
        impl std::io::Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let count = self.1.min(self.0.len()).min(buffer.len());
                buffer[..count].copy_from_slice(&self.0[..count]);
                self.0 = &self.0[count..];
                Ok(count)
            }
        }
        prop_assume!(!before.iter().any(|variable| variable.starts_with("MPS_DOMAIN=")));
        let all: Vec<String> = before.into_iter().chain(["MPS_DOMAIN=here".to_owned()]).chain(after).collect();
        let environment = all.join("\0").into_bytes();
        let found = text::search(Pieces(&environment, size)).unwrap().label;
        prop_assert_eq!(found.as_deref(), Some("here"));
    }
}

#[test]
fn of_a_process_that_has_ended_its_pod_and_the_names_of_that_are_found_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train-0_research_main-4f5a.log"), "").unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let started = at_once(child.id()).start_time;
    child.wait().unwrap();
    let known = Identity {
        start_time: started,
        cgroup: "/kubepods/pod1/4f5a".to_owned(),
        container: Some("4f5a".to_owned()),
        pod: Some("1".to_owned()),
        awaits_more: true,
        ..Identity::default()
    };
    let identities = Identities { deadline: PATIENCE, ..Identities::naming(&folder.path().display().to_string()) };
    let found = run(identities.more_of(child.id(), 0, &known));
    assert_eq!(found.missing, Some(Missing::Ended));
    let Identity { cgroup, container, pod, names, awaits_more, .. } = found.identity;
    assert_eq!((cgroup, container, pod), (known.cgroup, known.container, known.pod));
    assert_eq!(names.map(|names| names.pod_name).as_deref(), Some("train-0"));
    assert!(!awaits_more, "nothing more will be known");
}

#[test]
fn what_the_kernel_tells_at_once_is_what_is_read_later_and_awaits_that() {
    let known = at_once(std::process::id());
    let read = run(patient().more_of(std::process::id(), 0, &known));
    assert_eq!((read.missing, read.identity.awaits_more, known.awaits_more), (None, false, true));
    assert_eq!((known.start_time, known.cgroup), (read.identity.start_time, read.identity.cgroup));
    assert!(known.command.is_empty() && !read.identity.command.is_empty());
    let nobody = at_once(0);
    assert_eq!(nobody, Identity::default());
}

#[test]
fn a_user_whose_processes_cannot_be_read_has_pods_that_have_names() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train-0_research_main-4f5a.log"), "").unwrap();
    run(async {
        let identities = Identities { deadline: SHORT, ..Identities::naming(&folder.path().display().to_string()) };
        identities.stuck.lock().insert(7, MAX_STUCK_OF_USER);
        assert_eq!(identities.of(std::process::id(), 7, None).await.missing, Some(Missing::UserIsStuck));
        let names = identities.names(Some("4f5a".to_owned())).await.expect("a folder is no process's memory");
        assert_eq!((names.pod_name.as_str(), names.namespace.as_str()), ("train-0", "research"));
    });
}
