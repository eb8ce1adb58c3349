//! Finds what a path names, step by step, and follows no link that somebody else could have put there.
//!
//! | a link | is |
//! |---|---|
//! | of root or this user | followed |
//! | of somebody else, in a directory whose names only root and this user change | followed |
//! | of somebody else, elsewhere | refused |
//!
//! Links of `/proc` (`/dev/stdout` leads to one) are no texts, and are left to the kernel.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::geteuid;

/// As many links as the kernel follows.
const MOST_LINKS: u32 = 40;
/// Write permission of the group and of everybody.
pub(crate) const OTHERS_WRITE: u32 = 0o022;
/// Names can be removed and replaced by their owners only.
pub(crate) const STICKY: u32 = 0o1000;

/// The directory and the name that a path leads to; the name may be of nothing yet, and is of no link.
#[derive(Debug)]
pub(crate) struct Way {
    /// The directory, opened for nothing but to be gone from.
    pub(crate) folder: OwnedFd,
    /// The name in it.
    pub(crate) name: OsString,
    /// Whether somebody else may put names there, were it only new ones.
    pub(crate) is_shared: bool,
    /// Whether the name is one of `/proc`, where a link is to be followed by the kernel.
    pub(crate) is_proc: bool,
    /// The first directory on the way in which somebody else may replace the next step.
    pub(crate) exposed: Option<PathBuf>,
}

/// A link that is not followed, and why.
#[derive(Debug, thiserror::Error)]
#[error("{} is a link of user {owner}, who may not lead this daemon anywhere", path.display())]
struct ForeignLink {
    path: PathBuf,
    owner: u32,
}

/// Whether a file is root's or this user's.
pub(crate) fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

/// Whether somebody else may replace names in a directory.
pub(crate) fn is_exposed(folder: &FileStat) -> bool {
    !is_trusted(folder.st_uid) || (folder.st_mode & OTHERS_WRITE != 0 && folder.st_mode & STICKY == 0)
}

/// Whether somebody else may put new names into a directory.
pub(crate) fn is_shared(folder: &FileStat) -> bool {
    !is_trusted(folder.st_uid) || folder.st_mode & OTHERS_WRITE != 0
}

fn kind(file: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(file.st_mode) & SFlag::S_IFMT
}

/// Finds what a path names.
///
/// # Errors
/// What the kernel says of a directory on the way; a link that is not followed as `PermissionDenied` with its name.
pub(crate) fn find(path: &Path) -> io::Result<Way> {
    let mut left: VecDeque<OsString> = steps(path);
    let mut folder = start(path)?;
    let mut shown = if path.is_absolute() { PathBuf::from("/") } else { PathBuf::from(".") };
    let (mut links, mut exposed) = (0, None);
    loop {
        // A path of no steps is a directory itself.
        let name = left.pop_front().unwrap_or_else(|| OsString::from("."));
        let here = fstat(&folder)?;
        let is_proc = fstatfs(&folder)?.filesystem_type() == PROC_SUPER_MAGIC;
        let is_last = left.is_empty();
        let way = |folder, name, exposed| Way { folder, name, is_shared: is_shared(&here), is_proc, exposed };
        if is_proc && is_last {
            return Ok(way(folder, name, exposed));
        }
        let nofollow = if is_proc { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        let next = match openat(&folder, name.as_os_str(), OFlag::O_PATH | OFlag::O_CLOEXEC | nofollow, Mode::empty()) {
            Err(Errno::ENOENT) if is_last => {
                let exposed = exposed.or_else(|| is_exposed(&here).then_some(shown));
                return Ok(way(folder, name, exposed));
            }
            next => next?,
        };
        let found = fstat(&next)?;
        if exposed.is_none() && (is_exposed(&here) || is_shared(&here) && !is_trusted(found.st_uid)) {
            exposed = Some(shown.clone());
        }
        if kind(&found) == SFlag::S_IFLNK {
            if is_shared(&here) && !is_trusted(found.st_uid) {
                let link = ForeignLink { path: shown.join(&name), owner: found.st_uid };
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, link));
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::ELOOP.into());
            }
            let target = PathBuf::from(readlinkat(next.as_fd(), "")?);
            if target.is_absolute() {
                (folder, shown) = (start(&target)?, PathBuf::from("/"));
            }
            for step in steps(&target).into_iter().rev() {
                left.push_front(step);
            }
            continue;
        }
        if is_last {
            return Ok(way(folder, name, exposed));
        }
        if kind(&found) != SFlag::S_IFDIR {
            return Err(Errno::ENOTDIR.into());
        }
        shown.push(&name);
        folder = next;
    }
}

fn start(path: &Path) -> io::Result<OwnedFd> {
    let first = if path.is_absolute() { "/" } else { "." };
    Ok(openat(AT_FDCWD, first, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

fn steps(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.map(OsStr::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sys::proc::path_of;

    fn named(path: &Path) -> PathBuf {
        let way = find(path).unwrap();
        std::fs::read_link(path_of(&way.folder)).unwrap().join(way.name)
    }

    #[test]
    fn links_of_ones_own_are_followed_wherever_they_lead() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("../a", root.join("a/up")).unwrap();
        symlink(root.join("a/up/b"), root.join("far")).unwrap();
        symlink("nothing", root.join("a/b/new")).unwrap();
        assert_eq!(named(&root.join("far/./file")), root.join("a/b/file"));
        assert_eq!(named(&root.join("far/new")), root.join("a/b/nothing"));
        assert_eq!(named(&root.join("far/../b")), root.join("a/b"));
        symlink("round", root.join("round")).unwrap();
        assert_eq!(find(&root.join("round")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(find(&root.join("none/file")).is_err());
    }

    #[test]
    fn standard_output_is_found_where_the_kernel_has_it() {
        let way = find(Path::new("/dev/stdout")).unwrap();
        assert!(way.is_proc);
        assert_eq!(way.name, "1");
    }

    #[test]
    fn a_directory_that_everybody_writes_to_is_seen_on_the_way() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("open/inner")).unwrap();
        assert_eq!(find(&root.join("open/inner/file")).unwrap().exposed, None);
        std::fs::set_permissions(root.join("open"), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(find(&root.join("open/inner/file")).unwrap().exposed, Some(root.join("open")));
        std::fs::set_permissions(root.join("open"), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(find(&root.join("open/inner/file")).unwrap().exposed, None);
        if geteuid().is_root() {
            symlink("inner", root.join("open/theirs")).unwrap();
            std::os::unix::fs::lchown(root.join("open/theirs"), Some(65_534), None).unwrap();
            let refused = find(&root.join("open/theirs/file")).unwrap_err();
            assert!(refused.to_string().contains("open/theirs is a link of user 65534"), "{refused}");
        }
    }
}
