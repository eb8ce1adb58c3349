//! Whether who listens on a socket of a pipe directory may be its daemon.
//!
//! A command line of root, or a program that gives its memory away, must not talk to whoever has put a socket there. The
//! kernel notes who listens. That is root or this user; or the user whose directory it is, who alone decides what is in
//! it; or, in a sticky directory, the user whose lock file is there, which nobody else can replace. In a container the
//! host's root has another number, and the directory has the same one.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt};

use super::folder::way::{OTHERS_WRITE, STICKY, is_trusted};
use super::runtime_dir::CONTROL_LOCK;

/// Whether the listener that `socket` is connected to may be the daemon of a pipe directory.
pub(crate) fn may_be_the_daemon(socket: &impl AsFd, pipe_dir: &Path) -> bool {
    let Ok(listener) = getsockopt(socket, sockopt::PeerCredentials) else { return false };
    is_trusted(listener.uid()) || has_the_directory(listener.uid(), pipe_dir)
}

fn has_the_directory(uid: u32, pipe_dir: &Path) -> bool {
    let Ok(directory) = fs::metadata(pipe_dir) else { return false };
    let is_kept = directory.mode() & OTHERS_WRITE == 0 || directory.mode() & STICKY != 0;
    let has_lock = || fs::symlink_metadata(pipe_dir.join(CONTROL_LOCK)).is_ok_and(|lock| lock.uid() == uid);
    directory.uid() == uid || is_kept && has_lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn who_has_the_directory_or_its_lock_is_believed() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("Skipped(only root can give files away)");
        }
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let mode = |mode| fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
        fs::write(dir.join(CONTROL_LOCK), "").unwrap();
        chown(dir.join(CONTROL_LOCK), Some(1000), None).unwrap();
        mode(0o1777);
        assert!(has_the_directory(0, dir) && has_the_directory(1000, dir) && !has_the_directory(1001, dir));
        // Anybody could have put a lock of his own there.
        mode(0o777);
        assert!(has_the_directory(0, dir) && !has_the_directory(1000, dir));
        chown(dir, Some(1001), None).unwrap();
        assert!(has_the_directory(1001, dir) && !has_the_directory(1000, dir));
    }
}
