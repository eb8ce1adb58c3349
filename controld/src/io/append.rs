//! Opens a file to append to, as logs and the journal are: wherever the operator leads it, and nowhere that another
//! user does.
//!
//! The file may be a link, a device, a pipe or `/dev/stdout`, as containers have it. In a directory into which somebody
//! else may put names it is this daemon's own regular file with no other name, or it is not used: else whoever puts a
//! link or a file there could have a root daemon write into any file, or read what it writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat};

use super::folder::Folder;
use super::folder::way::{self, Way};
use crate::sys::proc::path_of;

/// How often a name may be made or removed by somebody else while it is opened.
const TURNS: u32 = 10;

/// Why a file is not written to.
#[derive(Debug, thiserror::Error)]
#[error("{} is in a directory that other users can change, and is no file of this daemon's alone", .0.display())]
struct NotOurs(PathBuf);

/// Opens the file for appending, and makes it with this mode whatever the mask if it is not there.
///
/// # Errors
/// What the kernel says; a file that is not used as `PermissionDenied`, with its name.
pub(crate) fn open(path: &Path, mode: Mode) -> io::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND;
    for _ in 0..TURNS {
        let Way { folder, name, is_shared, is_proc, .. } = way::find(path)?;
        // Non-blocking matters for a pipe alone, whose reader may be missing or stuck.
        let others = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        if is_proc {
            return Ok(openat(&folder, name.as_os_str(), flags | others, Mode::empty())?.into());
        }
        let folder = Folder::from_fd(folder, path.parent().unwrap_or(path))?;
        match folder.open_file(&name, flags | OFlag::O_CREAT | OFlag::O_EXCL, mode) {
            Ok(file) => {
                // The mask may have taken bits away, or a default ACL added some.
                fchmod(&file, mode)?;
                return Ok(file);
            }
            Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        match folder.open_file(&name, flags, Mode::empty()) {
            Ok(file) if !is_shared || is_ours_alone(&file)? => return Ok(file),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, NotOurs(path.to_owned()))),
            // Removed, or made a link, since it was found.
            Err(Errno::ENOENT | Errno::ELOOP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, NotOurs(path.to_owned())))
}

fn is_ours_alone(file: &File) -> io::Result<bool> {
    let found = fstat(file)?;
    let is_file = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    Ok(is_file && found.st_nlink <= 1 && way::is_trusted(found.st_uid))
}

/// Whether a regular file has no name any more, so that what is written there is lost.
pub(crate) fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.nlink() == 0)
}

/// The same file opened for reading from its start, whatever has its name by now.
pub(crate) fn read_again(file: &File) -> io::Result<File> {
    File::open(path_of(file))
}

/// Opens a file for reading that [`open`] would append to. Nothing is made.
///
/// # Errors
/// What the kernel says, and what is no regular file, or none that [`open`] would take.
pub(crate) fn read(path: &Path) -> io::Result<File> {
    let Way { folder, name, is_shared, is_proc, .. } = way::find(path)?;
    let folder = Folder::from_fd(folder, path.parent().unwrap_or(path))?;
    let file = folder.open_file(&name, OFlag::O_RDONLY, Mode::empty())?;
    let is_used = !is_proc && file.metadata()?.is_file() && (!is_shared || is_ours_alone(&file)?);
    if is_used { Ok(file) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, NotOurs(path.to_owned()))) }
}

/// Puts a new file with what `write` writes in the place of whatever has the name, which is not written into.
///
/// # Errors
/// What the kernel says, and what `write` does.
pub(crate) fn replace(path: &Path, mode: Mode, write: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().ok_or(Errno::EISDIR)?;
    let folder = Folder::open(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    folder.under_temporary_name(name, |temporary| write(&mut folder.create(temporary, mode)?))
}

#[cfg(test)]
mod tests;
