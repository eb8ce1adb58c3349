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

use remps_proto::shim::{DEFAULTS_NAME, Found, Keep, MAX_DEFAULTS_BYTES, ProgramDefaults, Recover};

use crate::process::{
    directory::{self, OTHERS_WRITE},
    log, settings,
    who::This,
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
    let found = read(Path::new(&path)).unwrap_or_default();
    let read = found.defaults;
    if found.is_unsure && settings::lines_wanted() {
        log::complain(format_args!(
            "which [[domain]] of the daemon's this program is in can't be known here: it has what all have"
        ));
    }
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

fn read(path: &Path) -> Option<Found> {
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
    ProgramDefaults::read(&bytes, &This)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt, chown, symlink},
    };

    use nix::unistd::{geteuid, getuid, mkfifo};
    use remps_proto::{shim::DefaultsFile, who::Match};

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
        assert_eq!(read(&path).map(|it| it.defaults), Some(SPARE));
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
            assert_eq!(
                read(&path).map(|it| it.defaults),
                Some(SPARE),
                "the whole directory is his, and so is the door"
            );
        }
    }

    #[test]
    fn a_program_gets_what_the_first_table_has_that_it_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DEFAULTS_NAME);
        let of = |uid| Match { uid: Some(uid), ..Match::default() };
        let (own, other) = (of(getuid().as_raw()), of(getuid().as_raw() + 1));
        let everywhere = Match { cgroup: Some("/".to_owned()), ..Match::default() };
        let cgroups = fs::metadata("/proc/self/ns/cgroup").ok().map(|found| found.ino());
        let nothing = Some(ProgramDefaults::default());
        let unsure = Found { is_unsure: true, ..Found::default() };
        let has = |defaults| Found { defaults, is_unsure: false };
        for (tables, cgroups, wanted) in [
            ([(own.clone(), Some(SPARE)), (other.clone(), nothing)], cgroups, has(SPARE)),
            ([(other, Some(SPARE)), (own.clone(), None)], cgroups, Found::default()),
            ([(everywhere.clone(), Some(SPARE)), (own.clone(), nothing)], cgroups, has(SPARE)),
            // Where it can't see its cgroup as the daemon does.
            ([(everywhere, Some(SPARE)), (own, nothing)], cgroups.map(|it| it + 1), unsure),
        ] {
            let file = DefaultsFile { domains: tables.into(), cgroups, ..DefaultsFile::default() };
            fs::write(&path, file.to_string()).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            assert_eq!(read(&path), Some(wanted), "{file}");
        }
    }
}
