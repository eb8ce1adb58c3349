use std::os::unix::fs::symlink;

use nix::sys::socket::{accept, connect};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn open(path: &Path) -> RuntimeDir {
    RuntimeDir::open(path).unwrap()
}

#[test]
fn one_level_is_made_open_to_everybody_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mps");
    let _directory = open(&path);
    assert_eq!(mode(&path), 0o777);
    assert_eq!(mode(&path.join(CONTROL_LOCK)), 0o600);
}

#[test]
fn two_missing_levels_are_refused_in_the_vendors_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b");
    let error = RuntimeDir::open(&path).unwrap_err();
    assert_eq!(error.to_string(), format!("Cannot access CUDA_MPS_PIPE_DIRECTORY={}", path.display()));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(RuntimeDir::open(&file), Err(RuntimeDirError::Access { .. })));
}

#[test]
fn a_path_that_no_socket_could_have_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x".repeat(MAX_SOCKET_PATH - CONTROL_PRIVILEGED.len()));
    assert!(matches!(RuntimeDir::open(&path), Err(RuntimeDirError::TooLong { .. })));
    assert!(!path.exists());
}

#[test]
fn a_listener_appears_listening_with_its_mode_in_place_of_a_stale_one() {
    let folder = tempfile::tempdir().unwrap();
    // The longest directory that is allowed, so that the temporary name is seen to fit as well.
    let room = MAX_SOCKET_PATH - CONTROL_PRIVILEGED.len() - 2 - folder.path().as_os_str().len();
    let path = folder.path().join("x".repeat(room));
    let stale = open(&path).bind_listener(CONTROL, 0o600);
    drop(stale);
    let mut directory = open(&path);
    let first = directory.bind_listener(CONTROL, 0o600).unwrap();
    let listener = directory.bind_listener(CONTROL, 0o666).unwrap();
    drop(first);
    assert_eq!(mode(&path.join(CONTROL)), 0o666);
    let client = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
    connect(client.as_raw_fd(), &UnixAddr::new(&path.join(CONTROL)).unwrap()).unwrap();
    let accepted = accept(listener.as_raw_fd()).unwrap();
    nix::unistd::close(accepted).unwrap();
    directory.bind_listener(CONTROL_PRIVILEGED, 0o755).unwrap();
    let names: std::collections::BTreeSet<_> =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), [CONTROL, CONTROL_LOCK, CONTROL_PRIVILEGED]);
}

#[test]
fn what_is_not_a_socket_is_not_replaced_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut directory = open(folder.path());
    fs::write(directory.file(CONTROL), "somebody's").unwrap();
    assert!(matches!(directory.bind_listener(CONTROL, 0o666), Err(RuntimeDirError::InTheWay { .. })));
    drop(directory);
    assert_eq!(fs::read_to_string(folder.path().join(CONTROL)).unwrap(), "somebody's");
}

#[test]
fn the_pid_file_has_the_pid_and_no_newline_and_replaces_a_stale_one() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "untouched").unwrap();
    symlink(&elsewhere, folder.path().join(PID_FILE)).unwrap();
    let mut directory = open(folder.path());
    directory.write_pid_file().unwrap();
    let path = directory.file(PID_FILE);
    assert_eq!(fs::read_to_string(&path).unwrap(), std::process::id().to_string());
    assert_eq!(mode(&path), 0o644);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "untouched");
    drop(directory);
    assert!(!path.exists());
}

#[test]
fn the_end_removes_what_was_made_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gpu_partitions.yaml"), "foreign").unwrap();
    let mut directory = open(folder.path());
    let listener = directory.bind_listener(CONTROL, 0o666).unwrap();
    directory.bind_listener(CONTROL_PRIVILEGED, 0o755).unwrap();
    directory.write_pid_file().unwrap();
    // Another daemon has replaced this one since.
    fs::rename(directory.file(CONTROL_PRIVILEGED), directory.file("moved")).unwrap();
    fs::write(directory.file(CONTROL_PRIVILEGED), "another's").unwrap();
    drop((directory, listener));
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [CONTROL_PRIVILEGED, "gpu_partitions.yaml", "moved"]);
}

#[test]
fn files_given_to_another_process_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut directory = open(folder.path());
    let _listener = directory.bind_listener(CONTROL, 0o666).unwrap();
    directory.keep_files();
    drop(directory);
    assert!(folder.path().join(CONTROL).exists());
}

#[test]
fn a_link_in_place_of_the_lock_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    symlink(folder.path().join("victim"), folder.path().join(CONTROL_LOCK)).unwrap();
    assert!(matches!(RuntimeDir::open(folder.path()), Err(RuntimeDirError::File { .. })));
    assert!(!folder.path().join("victim").exists());
}
