//! Where the attach socket lies, and whether a path still names the file it named before.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::socket::UnixAddr;
use remps_proto::holder::SOCKET_NAME;

use crate::io::folder::Folder;

/// The attach socket of one pipe directory, which is found by its descriptor: its path may be led elsewhere.
#[derive(Debug)]
pub(super) struct Place {
    folder: Folder,
}

impl Place {
    /// The attach socket of a pipe directory.
    pub(super) fn new(folder: &Folder) -> io::Result<Self> {
        Ok(Self { folder: folder.try_clone()? })
    }

    /// The pipe directory.
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The socket's address, good while this value lives.
    pub(super) fn address(&self) -> io::Result<UnixAddr> {
        Ok(self.folder.address(SOCKET_NAME)?)
    }
}

/// A path and the file that it named at one time.
#[derive(Debug)]
pub(super) struct Named {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Named {
    /// Remembers what the path names now.
    pub(super) fn now(path: &Path) -> Self {
        Self { path: path.to_owned(), file: identity(path) }
    }

    /// Unlinks the path if it still names the same file. Somebody else may have made their own there since.
    pub(super) fn unlink(&self) {
        if self.file.is_some() && self.file == identity(&self.path) {
            // Gone already, or not ours to remove: there is nobody left to tell.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_names_another_file_by_now_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        std::fs::write(&path, "ours").unwrap();
        let ours = Named::now(&path);
        // Made beside and moved over it, as a freed inode number may be used again.
        std::fs::write(folder.path().join("new"), "theirs").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        ours.unlink();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "theirs");

        Named::now(&path).unlink();
        assert!(!path.exists());
        Named::now(&path).unlink();
    }
}
