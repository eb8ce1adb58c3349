use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use nix::sys::stat::Mode;
use nix::unistd::geteuid;
use tempfile::TempDir;

use super::record::boot;
use super::*;

const GPU: &str = "GPU-0-1";

/// A machine with its folder, and pipe directories.
struct Made {
    root: TempDir,
}

impl Made {
    fn new() -> Self {
        let made = Self { root: tempfile::tempdir().unwrap() };
        for name in ["a", "b"] {
            fs::create_dir(made.root.path().join(name)).unwrap();
        }
        made
    }

    fn pipe(&self, name: &str) -> Arc<Folder> {
        Arc::new(Folder::open(&self.root.path().join(name)).unwrap())
    }

    fn daemon(&self, name: &str) -> ModeRecords {
        ModeRecords::new(self.pipe(name), Some(self.root.path().join("machine")))
    }

    fn path(&self, folder: &str) -> PathBuf {
        self.root.path().join(folder).join(format!("{PREFIX}{GPU}"))
    }

    /// What a daemon that starts there finds, and says.
    fn left(&self, name: &str) -> (Vec<u32>, Vec<String>) {
        let (found, remarks) = self.daemon(name).left_behind(&BTreeSet::new());
        (found.iter().map(|left| left.record.mode).collect(), remarks)
    }

    /// A record such as a daemon writes, as text.
    fn record(&self) -> String {
        self.daemon("a").note(GPU, 3);
        let text = fs::read_to_string(self.path("a")).unwrap();
        fs::remove_file(self.path("machine")).unwrap();
        text
    }
}

#[test]
fn what_a_killed_daemon_has_recorded_the_next_one_finds() {
    let made = Made::new();
    let mut daemon = made.daemon("a");
    assert_eq!(daemon.note(GPU, 3).1, Vec::<String>::new());
    let mode = |folder: &str| fs::metadata(made.path(folder)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("a"), mode("machine")), (0o600, 0o600));
    // With its descriptors everything but the files is gone.
    drop(daemon);
    assert_eq!(made.left("a"), (vec![3], Vec::new()));
    assert_eq!(made.left("b"), (vec![3], Vec::new()), "of the machine");
    fs::remove_file(made.path("machine")).unwrap();
    assert_eq!(made.left("a"), (vec![3], Vec::new()), "in a container of its own");
    let mut next = made.daemon("a");
    assert_eq!(next.left_behind(&BTreeSet::new()).0[0].path, made.path("a"));
    next.forget(GPU);
    assert_eq!((made.path("a").exists(), made.left("a")), (false, (Vec::new(), Vec::new())));
}

#[test]
fn the_last_of_several_daemons_is_known_and_a_duplicate_of_the_descriptor_counts() {
    let made = Made::new();
    let (mut first, mut second) = (made.daemon("a"), made.daemon("b"));
    assert_eq!(second.join(GPU), Joined::Alone);
    first.note(GPU, 3);
    assert_eq!(second.join(GPU), Joined::Before(3));
    assert_eq!(made.left("b"), (Vec::new(), Vec::new()), "it is looked after");
    // The first daemon is killed, and its holder lives.
    let held: Vec<OwnedFd> = first.parts().map(|(_, _, part)| part.try_clone_to_owned().unwrap()).collect();
    drop(first);
    assert!(!second.is_last(GPU));
    second.drop_part(GPU);
    let mut successor = made.daemon("a");
    held.into_iter().for_each(|part| successor.adopt(7, GPU.to_owned(), part));
    assert_eq!(successor.parts().map(|(number, uuid, _)| (number, uuid)).collect::<Vec<_>>(), [(7, GPU)]);
    assert!(successor.is_last(GPU));
    assert_eq!(second.join(GPU), Joined::Leaving);
    successor.forget(GPU);
    assert_eq!(second.join(GPU), Joined::Alone);
    assert!(!made.path("machine").exists());
}

#[test]
fn a_killed_daemon_beside_which_another_goes_on_leaves_its_mode_to_that_one() {
    let made = Made::new();
    let (mut first, mut second) = (made.daemon("a"), made.daemon("b"));
    first.note(GPU, 3);
    assert_eq!(second.join(GPU), Joined::Before(3));
    drop(first);
    let mut next = made.daemon("a");
    assert_eq!(next.left_behind(&BTreeSet::new()).0.len(), 1, "it counts on the mode again");
    assert!(!next.is_last(GPU));
    next.forget(GPU);
    assert_eq!((made.path("a").exists(), made.path("machine").exists()), (false, true));
    assert!(second.is_last(GPU));
}

#[test]
fn what_is_no_record_is_said_once_and_harms_nothing() {
    let made = Made::new();
    let text = made.record();
    let other = text.replace(GPU, "GPU-9");
    let prohibited = text.replace("\"mode\":3", "\"mode\":2");
    let cases = [
        (text[..text.len() / 2].to_owned(), "not whole"),
        (String::new(), "not whole"),
        ("\0".repeat(10_000), "not whole"),
        (other, "no daemon writes"),
        (prohibited, "no daemon writes"),
    ];
    for (text, why) in cases {
        fs::write(made.path("a"), &text).unwrap();
        let (found, remarks) = made.left("a");
        assert_eq!(found, Vec::<u32>::new(), "{why}");
        assert!(remarks[0].contains(why) && remarks[0].contains("nvidia-smi -c"), "{remarks:?}");
        assert!(!made.path("a").exists(), "{why}");
        assert_eq!(made.left("a"), (Vec::new(), Vec::new()), "{why}");
    }
    let boot = boot().unwrap();
    for folder in ["a", "machine"] {
        let mut file = File::create(made.path(folder)).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        file.write_all(text.replace(&boot, "00000000-0000-0000-0000-000000000000").as_bytes()).unwrap();
        let (found, remarks) = made.left("a");
        assert_eq!((found.len(), remarks.len()), (0, 1), "{remarks:?}");
        assert!(remarks[0].contains("started anew"), "{remarks:?}");
        assert!(!made.path(folder).exists());
    }
}

#[test]
fn what_somebody_else_could_have_put_there_is_not_believed() {
    let made = Made::new();
    let text = made.record();
    let refused = |why: &str| {
        let (found, remarks) = made.left("a");
        assert_eq!(found, Vec::<u32>::new(), "{why}");
        assert!(remarks[0].contains(why), "{remarks:?}");
    };
    let elsewhere = made.root.path().join("elsewhere");
    fs::rename(made.path("a"), &elsewhere).unwrap();
    symlink(&elsewhere, made.path("a")).unwrap();
    refused("a link");
    // As in a sticky directory, into which others may put another name of root's file.
    fs::set_permissions(made.root.path().join("a"), Permissions::from_mode(0o1777)).unwrap();
    fs::hard_link(&elsewhere, made.path("a")).unwrap();
    refused("another name");
    fs::write(made.path("a"), &text).unwrap();
    fs::set_permissions(made.path("a"), Permissions::from_mode(0o666)).unwrap();
    refused("somebody else can write");
    fs::create_dir(made.path("a")).unwrap();
    refused("no regular file");
    nix::unistd::mkfifo(&made.path("a"), Mode::S_IRWXU).unwrap();
    refused("no regular file");
    if geteuid().is_root() {
        fs::write(made.path("a"), &text).unwrap();
        chown(made.path("a"), Some(65_534), None).unwrap();
        refused("another user's");
    }
    // The folder of the machine is used only where nobody else can write.
    fs::set_permissions(made.root.path().join("machine"), Permissions::from_mode(0o777)).unwrap();
    let (files, remarks) = made.daemon("b").note(GPU, 3);
    assert_eq!((files.len(), remarks.len()), (1, 1), "{remarks:?}");
    assert!(remarks[0].contains("others can write"), "{remarks:?}");
}

#[test]
fn a_text_that_is_no_uuid_names_no_file() {
    let made = Made::new();
    for text in ["", "../a", "GPU/1", &"x".repeat(97)] {
        assert!(name_of(text).is_none(), "{text}");
        assert_eq!(made.daemon("a").note(text, 3).0.len(), 0);
    }
    fs::write(made.root.path().join("a").join(format!("{PREFIX}\u{e4}")), "").unwrap();
    assert_eq!(names(&made.pipe("a")), Vec::<String>::new());
}
