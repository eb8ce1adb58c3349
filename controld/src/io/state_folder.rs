//! The folder in which one file outlives the daemon: what it has to say is there whole, or as it was before.
//!
//! A new text is written beside the old one, synced, renamed over it, and then the folder is synced. The folder is
//! locked (`flock`) for as long as the daemon lives, so that no second one takes its servers for its own. A file that
//! this daemon has not read or written itself is never written over: it is somebody's who wants it to be read.

use super::folder::way::{OTHERS_WRITE, is_trusted};
use super::folder::{Folder, Identity};
use crate::failpoint::reached;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::fsync;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// The file.
pub(crate) const NAME: &str = "servers.toml";
/// What is to become it.
const NEW_NAME: &str = "servers.toml.new";
/// A folder that is made here.
const FOLDER_MODE: Mode = Mode::S_IRWXU;
/// The file: what the daemon has is no secret, and only it writes there.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o644);
/// In bytes; a larger file is none that a daemon wrote.
const LARGEST: u64 = 1 << 20;

/// Why something can't be kept or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// The kernel says so.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Somebody else may change it.
    #[error("{} is not this user's or root's alone (owner {owner}, mode {mode:o})", path.display())]
    NotOurs { path: PathBuf, owner: u32, mode: u32 },
    /// It is a link, a pipe or something else.
    #[error("{} is no plain file", path.display())]
    NoFile { path: PathBuf },
    /// No daemon writes that much.
    #[error("{} has {size} bytes, more than {LARGEST}", path.display())]
    TooLarge { path: PathBuf, size: u64 },
    /// It is not text.
    #[error("{} is not text", path.display())]
    NoText { path: PathBuf },
    /// Another daemon has the folder.
    #[error("{}: another daemon keeps its servers there", path.display())]
    InUse { path: PathBuf },
    /// Not what was read here, or written.
    #[error("{} is not as this daemon has read or written it; move it away, or start the daemon anew", path.display())]
    Changed { path: PathBuf },
}

/// Which file it is, and in which state.
type Mark = (u64, u64, i64, i64, i64);

fn mark(file: &FileStat) -> Mark {
    (file.st_dev, file.st_ino, file.st_size, file.st_mtime, file.st_mtime_nsec)
}

/// The folder of one daemon.
#[derive(Debug)]
pub(crate) struct StateFolder {
    folder: Folder,
    /// The folder once more, locked.
    lock: Flock<File>,
    /// The file as it was read or written last.
    known: Option<Mark>,
}

impl StateFolder {
    /// Opens the folder, which is made if only it is missing, and has it for this daemon alone. Where it is the pipe
    /// directory it is that already, by a lock that daemon and holder share.
    ///
    /// # Errors
    /// [`StateError`]; nothing is kept there.
    pub(crate) fn open(path: &Path, pipe_directory: Option<Identity>) -> Result<Self, StateError> {
        let failed = |source: Errno| StateError::Io { path: path.to_owned(), source: source.into() };
        match mkdirat(AT_FDCWD, path, FOLDER_MODE) {
            // Where it can't be made it may be there all the same.
            Ok(()) | Err(Errno::EEXIST | Errno::EACCES | Errno::EROFS) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(AT_FDCWD, path, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&opened).map_err(failed)?;
        only_ours(&found, path)?;
        let is_shared = pipe_directory.is_some_and(|directory| directory == found.into());
        let wanted = if is_shared { FlockArg::LockSharedNonblock } else { FlockArg::LockExclusiveNonblock };
        let again = opened.try_clone().map_err(|source| StateError::Io { path: path.to_owned(), source })?;
        let folder = Folder::from_fd(again, path);
        let folder = folder.map_err(|source| StateError::Io { path: path.to_owned(), source })?;
        match Flock::lock(File::from(opened), wanted) {
            Ok(lock) => Ok(Self { folder, lock, known: None }),
            Err((_, Errno::EWOULDBLOCK)) => Err(StateError::InUse { path: path.to_owned() }),
            Err((_, error)) => Err(failed(error)),
        }
    }

    fn failed(&self, name: &str) -> impl Fn(io::Error) -> StateError + use<> {
        let path = self.folder.file(name);
        move |source| StateError::Io { path: path.clone(), source }
    }

    /// The file's path.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.file(NAME)
    }

    /// What is kept in a folder, for somebody who only looks: the folder is neither made nor locked.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) fn look_into(path: &Path) -> Result<Option<String>, StateError> {
        let failed = |source: Errno| StateError::Io { path: path.to_owned(), source: source.into() };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let opened = openat(AT_FDCWD, path, flags, Mode::empty()).map_err(failed)?;
        only_ours(&fstat(&opened).map_err(failed)?, path)?;
        let folder = Folder::from_fd(opened, path);
        let folder = folder.map_err(|source| StateError::Io { path: path.to_owned(), source })?;
        Ok(read(&folder)?.map(|(text, _)| text))
    }

    /// What is kept there; `None` is nothing yet. Only what [`is_believed`](Self::is_believed) may be written over.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) fn read(&self) -> Result<Option<(String, Believed)>, StateError> {
        read(&self.folder)
    }

    /// The file was read, and made sense.
    pub(crate) fn is_believed(&mut self, Believed(mark): Believed) {
        self.known = Some(mark);
    }

    /// Writes it anew. What was there before is there still when this fails; after its name has changed only the
    /// last sync of the folder can.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) fn write(&mut self, text: &str) -> Result<(), StateError> {
        reached("state-asked");
        match self.folder.look(NAME) {
            Ok(there) if self.known == Some(mark(&there)) => {}
            Err(Errno::ENOENT) => {}
            Ok(_) => return Err(StateError::Changed { path: self.file() }),
            Err(error) => return Err(self.failed(NAME)(error.into())),
        }
        // Of a daemon that was killed just here; the folder is locked, so nobody else's.
        let _ = self.folder.remove(NEW_NAME);
        let written = self.new_file(text).map_err(self.failed(NEW_NAME));
        let new = written.inspect_err(|_| {
            let _ = self.folder.remove(NEW_NAME);
        })?;
        reached("state-written");
        let (from, to) = (self.folder.as_fd(), self.folder.as_fd());
        nix::fcntl::renameat(from, NEW_NAME, to, NAME).map_err(|error| {
            let _ = self.folder.remove(NEW_NAME);
            self.failed(NAME)(error.into())
        })?;
        self.known = Some(new);
        reached("state-renamed");
        fsync(self.lock.as_fd()).map_err(|error| self.failed(NAME)(error.into()))?;
        reached("state-kept");
        Ok(())
    }

    fn new_file(&self, text: &str) -> io::Result<Mark> {
        let mut file = self.folder.create(NEW_NAME, FILE_MODE)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(mark(&fstat(&file)?))
    }
}

/// A file that was read, as it was then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Believed(Mark);

/// What is kept in an open folder.
fn read(folder: &Folder) -> Result<Option<(String, Believed)>, StateError> {
    let path = folder.file(NAME);
    let failed = |source: io::Error| StateError::Io { path: folder.file(NAME), source };
    let file = match folder.open_file(NAME, OFlag::O_RDONLY, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP | Errno::ENXIO) => return Err(StateError::NoFile { path }),
        Err(error) => return Err(failed(error.into())),
    };
    let found = fstat(&file).map_err(|error| failed(error.into()))?;
    if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(StateError::NoFile { path });
    }
    only_ours(&found, &path)?;
    let mut bytes = Vec::new();
    (&file).take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        let size = u64::try_from(found.st_size).unwrap_or_default();
        return Err(StateError::TooLarge { path, size });
    }
    let text = String::from_utf8(bytes).map_err(|_| StateError::NoText { path })?;
    Ok(Some((text, Believed(mark(&found)))))
}

fn only_ours(found: &FileStat, path: &Path) -> Result<(), StateError> {
    let (owner, mode) = (found.st_uid, found.st_mode & 0o7777);
    if is_trusted(owner) && mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    Err(StateError::NotOurs { path: path.to_owned(), owner, mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn place() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state");
        (root, path)
    }

    fn said<T>(result: Result<T, StateError>) -> String {
        result.err().expect("it is refused").to_string()
    }

    #[test]
    fn what_is_written_is_read_by_the_next_and_nothing_lies_beside_it() {
        let (_root, path) = place();
        let mut first = StateFolder::open(&path, None).unwrap();
        assert!(first.read().unwrap().is_none());
        fs::write(path.join(NEW_NAME), "of one that was killed").unwrap();
        first.write("one").unwrap();
        first.write("two").unwrap();
        assert!(said(StateFolder::open(&path, None)).ends_with("another daemon keeps its servers there"));
        drop(first);
        let mut second = StateFolder::open(&path, None).unwrap();
        let (text, believed) = second.read().unwrap().unwrap();
        assert_eq!(text, "two");
        assert!(said(second.write("three")).contains("is not as this daemon has read or written it"), "not believed");
        second.is_believed(believed);
        second.write("three").unwrap();
        let names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [NAME]);
        assert_eq!(fs::metadata(path.join(NAME)).unwrap().permissions().mode() & 0o7777, 0o644);
        // An editor's file is somebody's who wants it to be read; one that is moved away is in nobody's way.
        fs::write(path.join(NAME), "four, by hand").unwrap();
        assert!(said(second.write("five")).contains("is not as this daemon has read or written it"));
        assert_eq!(fs::read_to_string(path.join(NAME)).unwrap(), "four, by hand");
        fs::remove_file(path.join(NAME)).unwrap();
        second.write("five").unwrap();
    }

    #[test]
    fn the_pipe_directory_can_be_it_though_daemon_and_holder_keep_it_from_being_cleaned() {
        let (_root, path) = place();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let pipes = Folder::open(&path).unwrap();
        let _kept = pipes.keep_uncleaned().unwrap();
        let identity = Some(fstat(&pipes).unwrap().into());
        StateFolder::open(&path, identity).unwrap().write("one").unwrap();
        assert!(said(StateFolder::open(&path, None)).ends_with("another daemon keeps its servers there"));
    }

    #[test]
    fn links_pipes_and_what_others_may_write_are_not_read() {
        let (root, path) = place();
        let folder = StateFolder::open(&path, None).unwrap();
        let file = path.join(NAME);
        let elsewhere = root.path().join("elsewhere");
        fs::write(&elsewhere, "text").unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(said(folder.read()).ends_with("is no plain file"));
        fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
        assert!(said(folder.read()).ends_with("is no plain file"));
        fs::remove_file(&file).unwrap();
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(said(folder.read()).contains("is not this user's or root's alone"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&file, [0xff, 0xfe]).unwrap();
        assert!(said(folder.read()).ends_with("is not text"));
        fs::write(&file, "x".repeat(2 << 20)).unwrap();
        assert!(said(folder.read()).contains("has 2097152 bytes"));
        drop(folder);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(said(StateFolder::open(&path, None)).contains("is not this user's or root's alone"));
        let link = root.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(StateFolder::open(&link, None).is_err(), "a link is not followed");
    }
}
