//! Pids of two namespaces, in made-up trees of `/proc`.

use super::clients::{Client, Clients, parse_table};
use super::targets::{self, Target, TargetError};
use super::view::{View, as_seen, handles_sigterm, namespace, view};
use crate::cli::Whom;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

const HOST: u64 = 4_026_531_836;
const CONTAINER: u64 = 4_026_532_001;

fn process(proc: &Path, name: &str, pids: &str, inode: Option<u64>) {
    let folder = proc.join(name);
    fs::create_dir_all(folder.join("ns")).unwrap();
    fs::write(folder.join("status"), format!("Name:\tx\nNSpid:\t{pids}\nSigCgt:\t0000000000004000\n")).unwrap();
    if let Some(inode) = inode {
        symlink(format!("pid:[{inode}]"), folder.join("ns/pid")).unwrap();
    }
}

fn host() -> TempDir {
    let proc = tempfile::tempdir().unwrap();
    process(proc.path(), "self", "100", Some(HOST));
    process(proc.path(), "200", "200", Some(HOST));
    process(proc.path(), "300", "300\t7", Some(CONTAINER));
    process(proc.path(), "301", "301\t8", Some(CONTAINER));
    process(proc.path(), "400", "400\t3", None);
    proc
}

#[test]
fn a_daemon_of_this_namespace_has_these_pids() {
    let proc = host();
    let seen = view(proc.path(), 200);
    assert_eq!(seen, View::Same);
    assert_eq!(as_seen(proc.path(), seen, 300), Some(300));
}

#[test]
fn a_daemon_in_a_container_has_the_innermost_pids_of_that_container() {
    let proc = host();
    let seen = view(proc.path(), 300);
    assert_eq!(seen, View::Within(CONTAINER));
    assert_eq!(as_seen(proc.path(), seen, 301), Some(8));
    assert_eq!(as_seen(proc.path(), seen, 200), None, "a process of the host has no pid there");
}

#[test]
fn a_daemon_that_cannot_be_seen_has_unknown_pids() {
    let proc = host();
    for speaker in [0, 999] {
        assert_eq!(view(proc.path(), speaker), View::Unknown, "{speaker}");
    }
    assert_eq!(view(proc.path(), 400), View::Unknown, "its namespace can't be read");
    assert_eq!(as_seen(proc.path(), View::Unknown, 200), None);
}

#[test]
fn a_namespace_is_known_by_its_inode() {
    let proc = host();
    assert_eq!(namespace(proc.path(), "self"), Some(HOST));
    assert_eq!(namespace(proc.path(), "400"), None);
}

#[test]
fn a_handler_for_sigterm_is_seen() {
    let proc = host();
    assert!(handles_sigterm(proc.path(), 200));
    fs::write(proc.path().join("200/status"), "SigCgt:\t0000000000000002\n").unwrap();
    assert!(!handles_sigterm(proc.path(), 200));
    assert!(!handles_sigterm(proc.path(), 999));
}

#[test]
fn the_table_of_ps_gives_each_process_once() {
    let table = "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n\
                 549       1         519            GPU-3d6da830-3ec1-ba21    4026531836     /tmp/t         \n\
                 549       2         519            GPU-3d6da830-3ec1-ba21    4026531836     /tmp/t         \n\
                 550       1         519            GPU-3d6da830-3ec1-ba21    -              a b c          \n\
                 Server not found\n";
    let want =
        [Client { pid: 549, server: 519, namespace: Some(HOST) }, Client { pid: 550, server: 519, namespace: None }];
    assert_eq!(parse_table(table), want);
}

fn find(proc: &TempDir, whom: &Whom, clients: &Clients) -> Result<Vec<Target>, TargetError> {
    targets::find(proc.path(), targets::name(proc.path(), whom)?, clients)
}

fn clients(speaker: u32) -> Clients {
    let client = |pid, namespace| Client { pid, server: 9, namespace: Some(namespace) };
    Clients { all: vec![client(300, CONTAINER), client(301, CONTAINER), client(200, HOST)], speaker }
}

#[test]
fn all_of_a_namespace_are_its_clients_and_nobody_else() {
    let proc = host();
    // The daemon is not seen, as from a container: its pids are not ours, so nobody can be signalled by them.
    let found = find(&proc, &Whom::NamespaceOf(Some(300)), &clients(0)).unwrap();
    let pids: Vec<_> = found.iter().map(|target| target.client.as_ref().map(|client| client.pid)).collect();
    assert_eq!(pids, [Some(300), Some(301)]);
    assert!(found.iter().all(|target| target.process.is_none() && target.pid.is_none()));
    let error = find(&proc, &Whom::NamespaceOf(Some(400)), &clients(0)).unwrap_err();
    assert!(matches!(error, TargetError::Namespace(_)), "{error}");
}

#[test]
fn a_pid_that_may_be_anybodys_is_refused() {
    let proc = host();
    let own = std::process::id();
    let error = find(&proc, &Whom::Pids(vec![own]), &clients(0)).unwrap_err();
    assert!(matches!(error, TargetError::OtherPids(_)), "{error}");
    // Without a daemon there is nobody to take it for.
    let found = find(&proc, &Whom::Pids(vec![own]), &Clients::default()).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].client.is_none() && found[0].process.is_some());
}

#[test]
fn a_process_that_has_ended_is_told_and_is_nobody_to_stop() {
    let proc = host();
    let nobody = u32::try_from(i32::MAX).unwrap();
    let found = find(&proc, &Whom::Pids(vec![nobody]), &clients(200)).unwrap();
    assert!(matches!(found.as_slice(), [Target { pid: Some(pid), process: None, client: None }] if *pid == nobody));
}

#[test]
fn a_cgroup_that_is_not_there_is_an_error() {
    let proc = host();
    let error = find(&proc, &Whom::Cgroup("/no/such/group".into()), &clients(200)).unwrap_err();
    assert!(error.to_string().starts_with("/sys/fs/cgroup/no/such/group: "), "{error}");
}
