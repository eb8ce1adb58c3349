use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use nix::sys::socket::{AddressFamily, SockFlag, UnixAddr, accept, connect, socket};
use nix::unistd::geteuid;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn open(path: &Path) -> RuntimeDir {
    RuntimeDir::open(path).unwrap()
}

#[test]
fn one_level_is_made_to_be_entered_by_everybody_and_changed_by_its_owner_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mps");
    let before = nix::sys::stat::umask(Mode::from_bits_truncate(0o077));
    let mut directory = open(&path);
    let _listener = directory.bind_listener(CONTROL, 0o666).unwrap();
    nix::sys::stat::umask(before);
    assert_eq!(mode(&path), 0o755);
    assert_eq!(mode(&path.join(CONTROL)), 0o666);
    assert_eq!(directory.take_remarks(), [""; 0]);
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
fn what_is_in_the_way_goes_aside_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(CONTROL_LOCK).join("inner")).unwrap();
    fs::create_dir(folder.path().join(PID_FILE)).unwrap();
    let mut directory = open(folder.path());
    fs::write(directory.file(CONTROL), "somebody's").unwrap();
    let _listener = directory.bind_listener(CONTROL, 0o666).unwrap();
    directory.write_pid_file().unwrap();
    let remarks = directory.take_remarks();
    assert_eq!(remarks.len(), 3, "{remarks:?}");
    let aside = |name: &str| {
        let moved = remarks.iter().find(|remark| remark.contains(&format!("/{name} was in the way, it is"))).unwrap();
        PathBuf::from(moved.rsplit_once(" it is ").unwrap().1.trim_end_matches(" now"))
    };
    assert_eq!(fs::read_to_string(aside(CONTROL)).unwrap(), "somebody's");
    assert!(aside(CONTROL_LOCK).join("inner").is_dir() && aside(PID_FILE).is_dir());
    assert_eq!(mode(aside(CONTROL).parent().unwrap()), 0o700);
}

#[test]
fn a_directory_of_our_own_that_others_write_to_is_closed_to_them_and_it_is_said() {
    let folder = tempfile::tempdir().unwrap();
    for (left, closed) in [(0o777, 0o755), (0o2775, 0o2755), (0o770, 0o750)] {
        fs::set_permissions(folder.path(), Permissions::from_mode(left)).unwrap();
        let remarks = open(folder.path()).take_remarks();
        assert_eq!(mode(folder.path()), closed);
        assert!(remarks[0].contains(&format!("had mode {left:04o}")), "{remarks:?}");
    }
}

#[test]
fn a_sticky_directory_and_one_that_is_closed_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    // The last are those that the plugin and the driver of Kubernetes make.
    for kept in [0o1777, 0o700, 0o755] {
        fs::set_permissions(folder.path(), Permissions::from_mode(kept)).unwrap();
        assert_eq!(open(folder.path()).take_remarks(), [""; 0]);
        assert_eq!(mode(folder.path()), kept);
    }
}

#[test]
fn a_directory_of_another_user_is_refused_by_name_and_left_alone() {
    if !geteuid().is_root() {
        return eprintln!("Skipped(only root can give a directory away)");
    }
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(65_534), None).unwrap();
    let error = RuntimeDir::open(folder.path()).unwrap_err();
    assert!(matches!(error, RuntimeDirError::Foreign { owner: 65_534, .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(folder.path().to_str().unwrap()) && text.contains("belongs to user 65534"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_made_is_told_of_with_what_to_do() {
    let told = |errno: Errno| {
        let path = Path::new("/run/mps").join(CONTROL_LOCK);
        RuntimeDirError::File { action: "open", path, source: errno.into() }.to_string()
    };
    for (errno, advice) in [
        (Errno::EACCES, "Start the daemon as root or as the owner of the directory, or choose another"),
        (Errno::ENOSPC, "Make room on its file system, or choose another"),
        (Errno::EROFS, "Choose another CUDA_MPS_PIPE_DIRECTORY, on a file system that can be written to"),
    ] {
        let text = told(errno);
        assert!(text.starts_with("cannot open /run/mps/control_lock: ") && text.contains(advice), "{text}");
    }
}

#[test]
fn a_lock_file_of_another_user_keeps_nobody_from_starting() {
    if !geteuid().is_root() {
        return eprintln!("Skipped(only root can give a file away)");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(CONTROL_LOCK);
    fs::write(&path, "").unwrap();
    chown(&path, Some(65_534), None).unwrap();
    let remarks = open(folder.path()).take_remarks();
    assert!(remarks[0].contains("control_lock was in the way"), "{remarks:?}");
}

#[test]
fn a_parent_that_others_write_to_is_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let remarks = open(&folder.path().join("mps")).take_remarks();
    assert!(remarks[0].starts_with("Other users can replace"), "{remarks:?}");
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
    let remarks = open(folder.path()).take_remarks();
    assert!(remarks[0].contains("control_lock was in the way"), "{remarks:?}");
    assert!(!folder.path().join("victim").exists());
}
