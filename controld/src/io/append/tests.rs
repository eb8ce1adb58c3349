use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

use nix::unistd::geteuid;

use super::*;

const MODE: Mode = Mode::from_bits_truncate(0o640);

fn open_to_everybody(folder: &Path, mode: u32) {
    fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_is_made_with_its_mode_and_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for word in ["one", "two"] {
        open(&path, MODE).unwrap().write_all(word.as_bytes()).unwrap();
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    let file = open(&path, MODE).unwrap();
    let mut all = String::new();
    // Whatever has its name by then.
    fs::rename(&path, folder.path().join("moved")).unwrap();
    read_again(&file).unwrap().read_to_string(&mut all).unwrap();
    assert_eq!(all, "onetwo");
}

#[test]
fn links_and_devices_of_the_operator_are_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    symlink("elsewhere", &path).unwrap();
    open(&path, MODE).unwrap().write_all(b"x").unwrap();
    assert_eq!(fs::read(folder.path().join("elsewhere")).unwrap(), b"x");
    // His own link is his own wherever it lies.
    open_to_everybody(folder.path(), 0o1777);
    open(&path, MODE).unwrap().write_all(b"y").unwrap();
    for device in ["/dev/null", "/dev/stdout", "/dev/stderr", "/proc/self/fd/1"] {
        let link = folder.path().join("device");
        symlink(device, &link).unwrap();
        for path in [link.as_path(), Path::new(device)] {
            // Where standard output is a file of somebody's, or a socket, the kernel has the last word.
            if let Err(error) = open(path, MODE) {
                assert!(error.raw_os_error().is_some(), "{device}: {error}");
            }
        }
        fs::remove_file(&link).unwrap();
    }
    open(Path::new("/dev/null"), MODE).unwrap();
}

#[test]
fn in_a_directory_of_everybody_a_file_with_two_names_or_another_owner_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("log"), folder.path().join("other"));
    fs::write(&other, "untouched").unwrap();
    fs::hard_link(&other, &path).unwrap();
    open(&path, MODE).unwrap();
    for mode in [0o777, 0o1777] {
        open_to_everybody(folder.path(), mode);
        let refused = open(&path, MODE).unwrap_err();
        assert!(refused.to_string().starts_with(path.to_str().unwrap()), "{refused}");
        assert!(read(&path).is_err());
    }
    fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, MODE).unwrap();
    let _reader = File::options().read(true).write(true).open(&path).unwrap();
    assert_eq!(open(&path, MODE).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    fs::remove_file(&path).unwrap();
    if geteuid().is_root() {
        symlink(&other, &path).unwrap();
        lchown(&path, Some(65_534), None).unwrap();
        assert_eq!(open(&path, MODE).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "his").unwrap();
        chown(&path, Some(65_534), None).unwrap();
        assert_eq!(open(&path, MODE).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
    assert_eq!(fs::read(&other).unwrap(), b"untouched");
}

#[test]
fn what_is_replaced_is_not_written_into() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("log.1"), folder.path().join("other"));
    fs::write(&other, "untouched").unwrap();
    fs::hard_link(&other, &path).unwrap();
    replace(&path, MODE, |to| to.write_all(b"new")).unwrap();
    assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"new".to_vec(), b"untouched".to_vec()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
