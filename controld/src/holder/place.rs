//! Where the attach socket lies, and whether a path still names the file it named before.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::UnixAddr;
use remps_proto::holder::SOCKET_NAME;

/// The attach socket of one pipe directory.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
}

/// An address, and the folder that it goes through when the path is too long for a socket address.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) address: UnixAddr,
    _folder: Option<OwnedFd>,
}

impl Place {
    /// The attach socket of a pipe directory; a relative directory is taken from the working directory of now.
    pub(super) fn new(pipe_dir: &Path) -> io::Result<Self> {
        Ok(Self { path: std::path::absolute(pipe_dir)?.join(SOCKET_NAME) })
    }

    /// The pipe directory, absolute.
    pub(super) fn pipe_dir(&self) -> &Path {
        self.path.parent().expect("the path is a folder and a name")
    }

    /// The socket's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket's address. One that does not fit into 107 bytes goes through an open descriptor of its folder.
    pub(super) fn address(&self) -> io::Result<Address> {
        match UnixAddr::new(&self.path) {
            Ok(address) => Ok(Address { address, _folder: None }),
            Err(Errno::ENAMETOOLONG) => {
                let flags = libc::O_PATH | libc::O_DIRECTORY;
                let folder: OwnedFd = File::options().read(true).custom_flags(flags).open(self.pipe_dir())?.into();
                let short = format!("/proc/self/fd/{}/{SOCKET_NAME}", folder.as_raw_fd());
                Ok(Address { address: UnixAddr::new(short.as_str())?, _folder: Some(folder) })
            }
            Err(error) => Err(error.into()),
        }
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

    #[test]
    fn a_long_path_goes_through_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(100));
        std::fs::create_dir(&deep).unwrap();
        let place = Place::new(&deep).unwrap();
        assert!(place.path().as_os_str().len() > 107);
        let address = place.address().unwrap();
        assert!(address.address.path().unwrap().starts_with("/proc/self/fd"));
        let short = Place::new(folder.path()).unwrap();
        assert_eq!(short.address().unwrap().address.path(), Some(short.path()));
    }
}
