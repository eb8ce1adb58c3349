use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const MODE: Mode = Mode::from_bits_truncate(0o666);

fn listen(folder: &Folder, name: &str) -> io::Result<OwnedFd> {
    folder.listen(name, SockType::SeqPacket, MODE, Backlog::new(1)?)
}

#[test]
fn what_is_made_stays_in_the_directory_wherever_its_path_leads() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("a"), root.path().join("b"));
    fs::create_dir(&path).unwrap();
    let folder = Folder::open(&path).unwrap();
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    let _listener = listen(&folder, "socket").unwrap();
    folder.fifo("pipe", MODE).unwrap();
    folder.write("file", MODE, b"text").unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    for name in ["socket", "pipe", "file"] {
        assert_eq!(fs::symlink_metadata(moved.join(name)).unwrap().permissions().mode() & 0o7777, 0o666, "{name}");
    }
    assert!(folder.has("socket", Kind::Socket) && !folder.has("pipe", Kind::Socket) && !folder.has("none", Kind::File));
}

#[test]
fn names_that_somebody_has_taken_are_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::open(root.path()).unwrap();
    let taken = format!(".new-{}-0", std::process::id());
    fs::create_dir(root.path().join(&taken)).unwrap();
    let _listener = listen(&folder, "socket").unwrap();
    folder.fifo("pipe", MODE).unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 3);
}

#[test]
fn only_the_same_file_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::open(root.path()).unwrap();
    folder.write("file", MODE, b"").unwrap();
    let ours = folder.identity("file").unwrap();
    // Made beside it, as a freed inode number may be used again.
    folder.write("file", MODE, b"another's").unwrap();
    folder.remove_same("file", ours);
    assert!(folder.has("file", Kind::File));
    folder.remove_same("file", folder.identity("file").unwrap());
    assert!(!folder.has("file", Kind::File));
}

#[test]
fn a_long_path_has_short_addresses() {
    let root = tempfile::tempdir().unwrap();
    let deep = root.path().join("d".repeat(200));
    fs::create_dir(&deep).unwrap();
    let folder = Folder::open(&deep).unwrap();
    let listener = listen(&folder, "socket").unwrap();
    let client = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::empty(), None).unwrap();
    nix::sys::socket::connect(client.as_raw_fd(), &folder.address("socket").unwrap()).unwrap();
    drop(listener);
}
