//! What the daemon's configuration has for programs that say nothing themselves: a small file in the pipe directory, which
//! is looked at once. Nobody is waited for, and without it everything is as the environment says.
//!
//! It is believed when it is the daemon's: a plain file, no link, of a user who may be the daemon's, which nobody else may
//! write to. A forked child has what its parent has read.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicU16, Ordering},
};

use remps_proto::shim::{DEFAULTS_NAME, Keep, MAX_DEFAULTS_BYTES, ProgramDefaults, Recover};

use crate::process::{
    directory::{self, OTHERS_WRITE},
    log, settings, user,
};

/// What has been read, as a number that an atomic holds: a lock could be held by another thread when the process forks.
static READ: AtomicU16 = AtomicU16::new(UNREAD);
const UNREAD: u16 = 0;
const KEEPS: [Keep; 3] = [Keep::Nothing, Keep::Memory, Keep::State];
const RECOVERS: [Recover; 4] = [Recover::Nobody, Recover::InPlace, Recover::Bystander, Recover::Spare];

/// What a program gets that says nothing.
pub(super) fn get() -> ProgramDefaults {
    let known = READ.load(Ordering::Relaxed);
    if known != UNREAD {
        let [keep, recover] = (known - 1).to_le_bytes().map(usize::from);
        return ProgramDefaults { keep: KEEPS[keep], recover: RECOVERS[recover] };
    }
    let path = settings::socket_called(DEFAULTS_NAME);
    let read = read(Path::new(&path)).unwrap_or_default();
    if read != ProgramDefaults::default() && settings::lines_wanted() {
        let (keep, recover) = (read.keep.word(), read.recover.word());
        log::complain(format_args!("the daemon has for who says nothing: keep {keep}, recover {recover}"));
    }
    let keep = KEEPS.iter().position(|keep| *keep == read.keep);
    let recover = RECOVERS.iter().position(|recover| *recover == read.recover);
    let number = |at: Option<usize>| at.and_then(|at| u8::try_from(at).ok()).unwrap_or_default();
    READ.store(u16::from_le_bytes([number(keep), number(recover)]) + 1, Ordering::Relaxed);
    read
}

fn read(path: &Path) -> Option<ProgramDefaults> {
    // A pipe that somebody has put there is not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_the_daemons =
        found.is_file() && found.mode() & OTHERS_WRITE == 0 && directory::may_be_the_daemons(found.uid(), path);
    if !is_the_daemons {
        log::complain(format_args!("{} is not the daemon's: it says nothing", path.display()));
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_DEFAULTS_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
    ProgramDefaults::read(&bytes, user::known_in)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use nix::unistd::{geteuid, getuid, mkfifo};
    use remps_proto::shim::DefaultsFile;

    use super::*;

    const SPARE: ProgramDefaults = ProgramDefaults { keep: Keep::State, recover: Recover::Spare };

    fn written(all: ProgramDefaults) -> String {
        DefaultsFile { all, ..DefaultsFile::default() }.to_string()
    }

    #[test]
    fn a_file_is_believed_that_only_the_daemon_can_have_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DEFAULTS_NAME);
        let set_mode = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(read(&path), None);
        fs::write(&path, written(SPARE)).unwrap();
        set_mode(0o644);
        assert_eq!(read(&path), Some(SPARE));
        for mode in [0o664, 0o646] {
            set_mode(mode);
            assert_eq!(read(&path), None, "{mode:o}");
        }
        set_mode(0o644);
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(read(&link), None);
        let pipe = folder.path().join("pipe");
        mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
        assert_eq!(read(&pipe), None, "nobody writes there, and it is not waited for");
        fs::write(&path, "x".repeat(10 << 20)).unwrap();
        assert_eq!(read(&path), None);
        if geteuid().is_root() {
            fs::write(&path, written(SPARE)).unwrap();
            chown(&path, Some(1001), None).unwrap();
            assert_eq!(read(&path), None, "another user's");
            chown(folder.path(), Some(1001), None).unwrap();
            assert_eq!(read(&path), Some(SPARE), "the whole directory is his, and so is the door");
        }
    }

    #[test]
    fn a_program_gets_what_the_file_has_for_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DEFAULTS_NAME);
        let user = getuid().as_raw();
        let nothing = ProgramDefaults::default();
        for (users, wanted) in
            [([(user, SPARE), (user + 1, nothing)], SPARE), ([(user + 1, SPARE), (user + 2, SPARE)], nothing)]
        {
            let file = DefaultsFile { all: nothing, users: users.into(), namespace: None };
            fs::write(&path, file.to_string()).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            assert_eq!(read(&path), Some(wanted));
        }
    }
}
