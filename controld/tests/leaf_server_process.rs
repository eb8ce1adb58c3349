//! Servers as real processes: shell scripts that stand for `nvidia-cuda-mps-server` and say what they were given.
#![expect(clippy::unwrap_used, reason = "a panic in a test is its report")]

use std::ffi::OsStr;
use std::fs;
use std::future::Future;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, geteuid, getpgid, getpgrp, getsid};
use remps_controld::parts::io::process::{self, ExitCause};
use remps_controld::parts::io::server_process::{
    FindServerError, Identity, SERVER_NAME, ServerProcess, ServerSpec, SpawnError, find_server, look_up_identity,
};

const DEADLINE: Duration = Duration::from_secs(120);
/// Signals 32 and 33, which the C library keeps to itself and does not let be set.
const C_LIBRARY_SIGNALS: u64 = 0b11 << 31;

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it did not happen in time")
}

/// A folder that every user can enter.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn program(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join(SERVER_NAME);
    let temporary = folder.join("new");
    fs::write(&temporary, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(temporary, &path).unwrap();
    path
}

fn own_identity() -> Identity {
    Identity { uid: geteuid().as_raw(), gid: 0, groups: Vec::new() }
}

/// Starts a program; a program just written may be held open for writing by a child that another test is forking.
async fn spawned(spec: &ServerSpec) -> Result<ServerProcess, SpawnError> {
    soon(async {
        loop {
            match spec.spawn() {
                Err(SpawnError::Io { source, .. }) if source.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    tokio::task::yield_now().await;
                }
                other => return other,
            }
        }
    })
    .await
}

async fn spawn(spec: &ServerSpec) -> ServerProcess {
    spawned(spec).await.unwrap()
}

async fn run(script: &str, identity: Identity, multi_user: bool) -> (Vec<String>, ExitCause) {
    let folder = folder();
    let program = program(folder.path(), script);
    let mut server = spawn(&ServerSpec { program, multi_user, gpu: None, identity }).await;
    let lines = stderr(&mut server).await;
    (lines, soon(server.wait()).await)
}

async fn stderr(server: &mut ServerProcess) -> Vec<String> {
    let mut stderr = server.take_stderr().unwrap();
    let mut lines = Vec::new();
    soon(async {
        while let Some(more) = stderr.read().await {
            assert_eq!(more.dropped, 0);
            lines.extend(more.lines.into_iter().map(|line| String::from_utf8(line).unwrap()));
        }
    })
    .await;
    lines
}

#[tokio::test]
async fn the_arguments_are_the_vendors() {
    let show = "tr '\\0' '|' < /proc/$$/cmdline >&2; echo >&2; exit 8";
    let (lines, cause) = run(show, own_identity(), false).await;
    // A script's own name replaces the first argument; the second one is the empty one.
    assert!(lines[0].ends_with("nvidia-cuda-mps-server||"), "{lines:?}");
    assert_eq!(cause, ExitCause::Exited(8));
    let (lines, _) = run(show, own_identity(), true).await;
    assert!(lines[0].ends_with("nvidia-cuda-mps-server|-multiuser-server|"), "{lines:?}");
}

#[tokio::test]
async fn a_server_inherits_the_environment_and_nothing_else() {
    // A descriptor without close-on-exec, as a careless parent leaves them.
    let leak = fs::File::open("/dev/zero").unwrap();
    nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let folder = folder();
    let program = program(folder.path(), "echo here >&2; kill -STOP $$");
    let mut server = spawn(&ServerSpec { program, multi_user: false, gpu: None, identity: own_identity() }).await;
    let mut stderr = server.take_stderr().unwrap();
    soon(stderr.read()).await.unwrap();
    let proc = PathBuf::from(format!("/proc/{}", server.pid()));
    // Until it has stopped itself, the shell still has descriptors for its redirection.
    soon(async {
        while !fs::read_to_string(proc.join("stat")).unwrap().contains(") T ") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(fs::read(proc.join("environ")).unwrap(), fs::read("/proc/self/environ").unwrap());
    let mut fds: Vec<(String, String)> = fs::read_dir(proc.join("fd"))
        .unwrap()
        .map(|fd| fd.unwrap().path())
        .map(|fd| (fd.file_name().unwrap().display().to_string(), fs::read_link(fd).unwrap().display().to_string()))
        .collect();
    // The shell has its script open under a number of its own.
    fds.retain(|(_, target)| !target.ends_with(SERVER_NAME));
    fds.sort();
    let [(_, input), (_, output), (_, error)] = fds.as_slice() else { panic!("{fds:?}") };
    assert_eq!((input.as_str(), output.as_str()), ("/dev/null", "/dev/null"));
    assert!(error.starts_with("pipe:"), "{fds:?}");
    let status = fs::read_to_string(proc.join("status")).unwrap();
    // A client that has ended must not end it.
    let broken_pipe = 1 << (Signal::SIGPIPE as u64 - 1);
    for (field, expected) in [("SigBlk:", 0), ("SigIgn:", broken_pipe)] {
        let mask = status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim();
        assert_eq!(u64::from_str_radix(mask, 16).unwrap() & !C_LIBRARY_SIGNALS, expected, "{field} {mask}");
    }
    let limits = fs::read_to_string(proc.join("limits")).unwrap();
    let open_files: Vec<&str> =
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert!(open_files[3] == open_files[4] || open_files[3] == "1048576", "{open_files:?}");
    server.handle().signal(Signal::SIGKILL).unwrap();
    soon(server.wait()).await;
}

#[tokio::test]
async fn a_server_leads_its_own_process_group_in_the_daemons_session() {
    let folder = folder();
    let program = program(folder.path(), "exec sleep infinity");
    let mut server = spawn(&ServerSpec { program, multi_user: false, gpu: None, identity: own_identity() }).await;
    let pid = server.pid();
    assert_eq!(getpgid(Some(pid)).unwrap(), pid);
    assert_ne!(getpgid(Some(pid)).unwrap(), getpgrp());
    assert_eq!(getsid(Some(pid)).unwrap(), getsid(None).unwrap());
    server.handle().signal(Signal::SIGKILL).unwrap();
    assert_eq!(soon(server.wait()).await, ExitCause::Signaled(9));
    assert_eq!(soon(server.wait()).await, ExitCause::Signaled(9), "asked a second time");
    assert_eq!(server.handle().signal(Signal::SIGKILL).unwrap_err().raw_os_error(), Some(libc::ESRCH));
}

#[tokio::test]
async fn another_users_server_has_that_users_groups_and_not_roots() {
    if !geteuid().is_root() {
        println!("Skipped(only root can start a server for another user)");
        return;
    }
    // Debian's and everybody's `nobody`; a uid that no database knows; and root itself.
    let nobody = look_up_identity(65534, 12345).await;
    let user = nix::unistd::User::from_uid(65534.into()).unwrap().expect("every system has nobody");
    assert_eq!(nobody.gid, user.gid.as_raw());
    let unknown = look_up_identity(3_999_999, 12345).await;
    assert_eq!(unknown, Identity { uid: 3_999_999, gid: 12345, groups: Vec::new() });
    for identity in [nobody, unknown] {
        let (lines, cause) = run("grep -E '^(Uid|Gid|Groups):' /proc/$$/status >&2", identity.clone(), false).await;
        assert_eq!(cause, ExitCause::Exited(0));
        let numbers = |line: &str| -> Vec<u32> {
            line.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect()
        };
        assert_eq!(numbers(&lines[0]), [identity.uid; 4]);
        assert_eq!(numbers(&lines[1]), [identity.gid; 4]);
        assert_eq!(numbers(&lines[2]), identity.groups);
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_is_an_error_at_once() {
    let folder = folder();
    let path = folder.path().join(SERVER_NAME);
    fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let spec = ServerSpec { program: path, multi_user: false, gpu: None, identity: own_identity() };
    let error = spawned(&spec).await.unwrap_err();
    assert!(
        matches!(&error, SpawnError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
}

#[test]
fn the_server_is_found_where_the_environment_says() {
    let (first, second) = (folder(), folder());
    let found = program(second.path(), "exit 0");
    // Neither a folder nor a file that cannot be executed is a program.
    fs::create_dir(first.path().join(SERVER_NAME)).unwrap();
    let path = std::env::join_paths([first.path(), second.path()]).unwrap();
    assert_eq!(find_server(None, Some(&path)), Ok(found.clone()));
    assert_eq!(find_server(Some(OsStr::new("")), Some(&path)), Ok(found.clone()));
    assert_eq!(find_server(Some(found.as_os_str()), None), Ok(found.clone()));
    fs::set_permissions(&found, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(find_server(None, Some(&path)), Err(FindServerError::NotFound(path.clone())));
    assert_eq!(find_server(Some(found.as_os_str()), Some(&path)), Err(FindServerError::Override(found)));
    if let Err(FindServerError::NotFound(folders)) = find_server(None, None) {
        assert_eq!(folders, "/usr/local/nvidia/bin:/usr/bin:/bin");
    }
}

#[tokio::test]
async fn the_end_of_a_process_that_is_no_child_is_seen() {
    // The shell starts a grandchild, tells its pid, and ends only after it.
    let folder = folder();
    let script = "sleep infinity & echo $! >&2; wait $!; exec sleep infinity";
    let program = program(folder.path(), script);
    let mut server = spawn(&ServerSpec { program, multi_user: false, gpu: None, identity: own_identity() }).await;
    let mut stderr = server.take_stderr().unwrap();
    let line = soon(stderr.read()).await.unwrap().lines.remove(0);
    let pid = Pid::from_raw(String::from_utf8(line).unwrap().parse().unwrap());
    let watched = process::open_process(pid).unwrap();
    watched.signal(None).unwrap();
    assert!(process::start_time(pid) >= process::start_time(server.pid()));
    assert_eq!(process::uid_of(pid), Some(geteuid().as_raw()));
    watched.signal(Some(Signal::SIGKILL)).unwrap();
    soon(watched.ended()).await.unwrap();
    soon(watched.ended()).await.unwrap();
    server.handle().signal(Signal::SIGKILL).unwrap();
    soon(server.wait()).await;
}

#[test]
fn facts_about_a_process_are_those_of_proc_and_none_when_it_is_gone() {
    let own = Pid::this();
    assert_eq!(process::pid_namespace_inode(own), Some(fs::metadata("/proc/self/ns/pid").unwrap().ino()));
    let nobody = Pid::from_raw(i32::MAX);
    assert_eq!(process::start_time(nobody), None);
    assert_eq!(process::uid_of(nobody), None);
    assert_eq!(process::pid_namespace_inode(nobody), None);
    assert_eq!(process::open_process(nobody).unwrap_err().raw_os_error(), Some(libc::ESRCH));
}
