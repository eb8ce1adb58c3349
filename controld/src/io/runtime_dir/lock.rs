//! The lock of a pipe directory: whoever holds it is the daemon.
//!
//! Another user must not be able to hold it, or no daemon could start: neither through a file of his own nor through one
//! that he opened while the vendor's daemon let everybody do that.

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::Pid;

use super::{CONTROL_LOCK, RuntimeDirError, moved};
use crate::io::folder::{Folder, way};
use crate::io::process::uid_of;

const MODE: Mode = Mode::from_bits_truncate(0o600);
/// How often the file is opened anew because it was removed, or was not ours.
const TURNS: u32 = 100;

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).expect("a lock type is a small number"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("a seek origin is a small number"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes the lock, and says what had to be moved out of the way for that.
pub(super) fn take(folder: &Folder, remarks: &mut Vec<String>) -> Result<File, RuntimeDirError> {
    let path = folder.file(CONTROL_LOCK);
    let failed = |action| {
        let path = path.clone();
        move |source: Errno| RuntimeDirError::File { action, path, source: source.into() }
    };
    // A file that was removed by an ending daemon between our open and our lock would be locked by us alone and seen by
    // nobody; such a one is opened again. The ending daemon is gone by then, so few turns are needed.
    for _ in 0..TURNS {
        let lock = match folder.open_file(CONTROL_LOCK, OFlag::O_RDWR | OFlag::O_CREAT, MODE) {
            Ok(lock) if lock.metadata().is_ok_and(|opened| opened.is_file()) => lock,
            // A link, a directory, a pipe, or a file of somebody else: who has it could hold the lock for ever.
            Ok(_) | Err(Errno::ELOOP | Errno::EISDIR | Errno::ENXIO) => {
                remarks.push(set_lock_aside(folder)?);
                continue;
            }
            // A sticky directory may keep even root from opening another user's file in this way.
            Err(Errno::EACCES) if folder.look(CONTROL_LOCK).is_ok_and(|there| !way::is_trusted(there.st_uid)) => {
                remarks.push(set_lock_aside(folder)?);
                continue;
            }
            Err(error) => return Err(failed("open")(error)),
        };
        let opened = fstat(&lock).map_err(failed("examine"))?;
        if !way::is_trusted(opened.st_uid) {
            remarks.push(set_lock_aside(folder)?);
            continue;
        }
        match fcntl(&lock, FcntlArg::F_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) if is_held_by_a_stranger(&lock) => {
                remarks.push(set_lock_aside(folder)?);
                continue;
            }
            Err(Errno::EAGAIN | Errno::EACCES) => return Err(RuntimeDirError::AlreadyRunning),
            Err(error) => return Err(failed("lock")(error)),
        }
        if folder.identity(CONTROL_LOCK) == Some(opened.into()) {
            // Left by the vendor's daemon it is 0666. Not ours to change when it is another user's.
            let _ = fchmod(&lock, MODE);
            return Ok(lock);
        }
    }
    Err(RuntimeDirError::AlreadyRunning)
}

/// Whether a process that is neither root's nor ours has the lock: no daemon to make way for. Whoever opened the file
/// while the vendor's daemon had it 0666 can do that. A process of a PID namespace out of sight counts as a daemon.
fn is_held_by_a_stranger(lock: &File) -> bool {
    let mut held = whole_file(libc::F_WRLCK);
    let asked = fcntl(lock, FcntlArg::F_GETLK(&mut held));
    let holder = asked.ok().filter(|_| held.l_pid > 0).and_then(|_| uid_of(Pid::from_raw(held.l_pid)));
    holder.is_some_and(|uid| !way::is_trusted(uid))
}

fn set_lock_aside(folder: &Folder) -> Result<String, RuntimeDirError> {
    match folder.move_aside(CONTROL_LOCK) {
        Ok(aside) => Ok(moved(folder, CONTROL_LOCK, &aside)),
        Err(source) => Err(RuntimeDirError::InTheWay { path: folder.file(CONTROL_LOCK), source }),
    }
}
