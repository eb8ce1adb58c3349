//! Whether a user may be the one whose daemon has the pipe directory: what he has put there is believed.
//!
//! As the daemon's own command line has it: root or this user, the user whose directory it is, or in a directory where
//! nobody replaces another's names the user whose lock file is there. In a container the host's root has another
//! number, and the directory has the same one.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use nix::unistd::geteuid;

/// The daemon's lock file.
const LOCK: &str = "control_lock";
/// Write permission of the group and of everybody.
pub(super) const OTHERS_WRITE: u32 = 0o022;
/// Names are replaced by their owners only.
const STICKY: u32 = 0o1000;

/// Whether what this user has at a path in the directory may be the daemon's.
pub(crate) fn may_be_the_daemons(uid: u32, path: &Path) -> bool {
    uid == 0 || uid == geteuid().as_raw() || path.parent().is_some_and(|folder| has_the_directory(uid, folder))
}

fn has_the_directory(uid: u32, folder: &Path) -> bool {
    // A name without a folder is in the working directory.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(directory) = fs::metadata(folder) else { return false };
    let is_kept = directory.mode() & OTHERS_WRITE == 0 || directory.mode() & STICKY != 0;
    let has_lock = || owner_of(&folder.join(LOCK)).is_ok_and(|owner| owner == uid);
    directory.uid() == uid || is_kept && has_lock()
}

/// Whose a file is, or a link. By a descriptor: asking for a link by its path needs a newer C library than programs have.
fn owner_of(path: &Path) -> io::Result<u32> {
    let file = File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    Ok(file.metadata()?.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn only_who_has_the_directory_or_its_lock_is_given_memory() {
        if !geteuid().is_root() {
            return eprintln!("Skipped(only root can give files away)");
        }
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        fs::write(dir.join(LOCK), "").unwrap();
        chown(dir.join(LOCK), Some(1000), None).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(has_the_directory(0, dir) && has_the_directory(1000, dir) && !has_the_directory(1001, dir));
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(has_the_directory(0, dir) && !has_the_directory(1000, dir), "anybody could have put a lock there");
    }
}
