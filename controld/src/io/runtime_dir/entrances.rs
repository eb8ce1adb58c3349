//! The sockets of namespaces: `SERVER/control` and `SERVER/NAMESPACE/control` in the pipe directory.
//!
//! A container mounts the folder of one of them and sees no other, so each is a folder of its own, as the pipe directory
//! is: root's or this user's, 0755, and nobody else may replace what is in it. It stays when the daemon ends, as running
//! containers hold a mount of it; deleting a namespace removes it.
//!
//! A socket is bound to a name with its number before it gets the name that clients know. The kernel keeps that as the
//! own name of every connection that is accepted there, which a peer can't change: by it, and by nothing else, the daemon
//! tells which namespace a connection came to, also one that an earlier daemon has accepted.

use super::{BACKLOG, CONTROL, DIRECTORY_MODE, MAX_SOCKET_PATH, RuntimeDir, RuntimeDirError};
use crate::io::folder::{Folder, Kind, way};
use crate::io::{program_defaults, umask};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::socket::Backlog;
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use remps_proto::shim::DEFAULTS_NAME;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Clients of every user connect there; who is let in is decided by who they are.
const ENTRANCE_MODE: Mode = Mode::from_bits_truncate(0o666);
/// What the name begins with that a socket is bound to.
const MARK: &str = ".entrance-";

/// The number of the entrance that a socket was bound for, by its own name.
pub(crate) fn number_of(name: &Path) -> Option<u64> {
    name.file_name()?.to_str()?.strip_prefix(MARK)?.parse().ok()
}

/// The name that a socket is bound to that is the entrance of this number.
pub(crate) fn bound_name(number: u64) -> String {
    format!("{MARK}{number}")
}

/// A namespace's folder below the pipe directory.
fn folders<'a>(server: &'a str, namespace: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    std::iter::once(server).chain(namespace)
}

/// A name below the pipe directory.
fn below(server: &str, namespace: Option<&str>, name: &str) -> String {
    folders(server, namespace).chain([name]).collect::<Vec<_>>().join("/")
}

impl RuntimeDir {
    /// Makes the socket of a namespace, or of a server where there is no namespace's name, and its folders.
    ///
    /// # Errors
    /// When a path is too long for a socket, a folder is not ours, or the kernel says no.
    pub(crate) fn open_entrance(
        &mut self,
        number: u64,
        server: &str,
        namespace: Option<&str>,
    ) -> Result<OwnedFd, RuntimeDirError> {
        let name = below(server, namespace, CONTROL);
        let path = self.file(&name);
        let length = path.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            return Err(RuntimeDirError::TooLong { path, length });
        }
        let folder = self.enter(server, namespace)?;
        // What else has the name is nobody's but ours, or who may write here may do worse.
        let cleared = folder.clear_way(CONTROL, Kind::Socket);
        cleared.map_err(|source| RuntimeDirError::InTheWay { path: path.clone(), source })?;
        let listener = Backlog::new(BACKLOG)
            .map_err(io::Error::from)
            .and_then(|backlog| folder.listen_as(CONTROL, &bound_name(number), ENTRANCE_MODE, backlog))
            .map_err(|source| RuntimeDirError::File { action: "listen on", path, source })?;
        self.remove_on_exit(&name)?;
        Ok(listener)
    }

    /// Goes on with a socket of a namespace that an earlier daemon has made; whether it is still there.
    pub(crate) fn resume_entrance(&mut self, server: &str, namespace: Option<&str>) -> bool {
        let is_there = self.enter(server, namespace).is_ok_and(|folder| folder.has(CONTROL, Kind::Socket));
        is_there && self.remove_on_exit(&below(server, namespace, CONTROL)).is_ok()
    }

    /// Lets the programs of a namespace find the daemon's other socket of this name in its folder, too.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn link_into(&mut self, server: &str, namespace: Option<&str>, name: &str) -> io::Result<()> {
        let folder = self.enter(server, namespace).map_err(io::Error::other)?;
        let _ = folder.remove(name);
        linkat(&self.folder, name, &folder, name, AtFlags::empty())?;
        self.remove_on_exit(&below(server, namespace, name)).map_err(io::Error::other)
    }

    /// Writes what the programs of a namespace get that have the preload library and say nothing, beside its socket.
    ///
    /// # Errors
    /// When it can't be written; then there is none.
    pub(crate) fn tell_programs_of(
        &mut self,
        server: &str,
        namespace: Option<&str>,
        content: Option<&str>,
    ) -> Result<(), RuntimeDirError> {
        let name = below(server, namespace, DEFAULTS_NAME);
        let folder = self.enter(server, namespace)?;
        program_defaults::tell(&folder, content).map_err(|source| self.failed("write", &name, source))?;
        if content.is_some() { self.remove_on_exit(&name) } else { Ok(()) }
    }

    /// Removes the sockets of a namespace, and its folder where nothing else is in it.
    pub(crate) fn close_entrance(&mut self, server: &str, namespace: Option<&str>) {
        let start = below(server, namespace, "");
        let (own, others) = std::mem::take(&mut self.made)
            .into_iter()
            .partition(|made| made.name.strip_prefix(&start).is_some_and(|name| !name.contains('/')));
        self.made = others;
        for made in Vec::from_iter::<Vec<_>>(own) {
            self.folder.remove_same(&made.name, made.file);
        }
        // What somebody else has put there stays, and the folder with it.
        let folder = start.trim_end_matches('/');
        let _ = unlinkat(&*self.folder, folder, UnlinkatFlags::RemoveDir);
    }

    /// The paths of a namespace's sockets, for who removes them in our place.
    pub(crate) fn entrance_paths(&self, server: &str, namespace: Option<&str>, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| self.file(&below(server, namespace, name))).collect()
    }

    /// The folder of a namespace, made if it is not there.
    fn enter(&self, server: &str, namespace: Option<&str>) -> Result<Folder, RuntimeDirError> {
        let mut at = self.folder.try_clone().map_err(|source| self.failed("open", server, source))?;
        for name in folders(server, namespace) {
            at = inner(&at, name)?;
        }
        Ok(at)
    }
}

/// A folder in another one, ours and closed to others.
fn inner(outer: &Folder, name: &str) -> Result<Folder, RuntimeDirError> {
    let path = outer.file(name);
    let failed = |action| {
        let path = path.clone();
        move |error: Errno| RuntimeDirError::File { action, path, source: error.into() }
    };
    match umask::exactly(DIRECTORY_MODE, || mkdirat(outer, name, DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(failed("make")(error)),
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = openat(outer, name, flags, Mode::empty()).map_err(failed("open"))?;
    let found = fstat(&folder).map_err(failed("look at"))?;
    if !way::is_trusted(found.st_uid) {
        return Err(RuntimeDirError::Foreign { path, owner: found.st_uid });
    }
    if way::is_exposed(&found) {
        return Err(RuntimeDirError::Exposed { path, mode: found.st_mode & 0o7777 });
    }
    Folder::from_fd(folder, &path).map_err(|source| RuntimeDirError::File { action: "open", path, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::packets::accept;
    use crate::io::seqpacket::SeqPacket;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    use std::fs;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn connection(path: &Path, listener: &OwnedFd) -> (OwnedFd, OwnedFd) {
        let client = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        connect(client.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        (client, accept(listener.as_fd()).unwrap())
    }

    #[tokio::test]
    async fn a_connection_tells_by_which_socket_it_came() {
        let place = tempfile::tempdir().unwrap();
        let mut directory = RuntimeDir::open(&place.path().join("pipes")).unwrap();
        let main = directory.bind_listener(CONTROL, 0o666).unwrap();
        let one = directory.open_entrance(7, "training", None).unwrap();
        let two = directory.open_entrance(18, "training", Some("jobs")).unwrap();
        for (name, listener, number) in
            [("control", &main, None), ("training/control", &one, Some(7)), ("training/jobs/control", &two, Some(18))]
        {
            let path = directory.file(name);
            let (_client, accepted) = connection(&path, listener);
            assert_eq!(SeqPacket::new(accepted).unwrap().entrance(), number, "{name}");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666, "{name}");
        }
        let mode = fs::metadata(directory.file("training/jobs")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
        assert!(directory.resume_entrance("training", Some("jobs")));
        directory.close_entrance("training", Some("jobs"));
        assert!(!directory.file("training/jobs").exists() && directory.file("training/control").exists());
        directory.remove_files();
        assert!(directory.file("training").is_dir(), "containers have a mount of it");
        assert!(!directory.file("training/control").exists());
    }

    #[test]
    fn a_folder_that_is_not_ours_alone_is_not_used() {
        let place = tempfile::tempdir().unwrap();
        let mut directory = RuntimeDir::open(&place.path().join("pipes")).unwrap();
        let open = |directory: &mut RuntimeDir, name: &str| directory.open_entrance(1, name, None).map(drop);
        fs::create_dir(directory.file("exposed")).unwrap();
        fs::set_permissions(directory.file("exposed"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(open(&mut directory, "exposed"), Err(RuntimeDirError::Exposed { mode: 0o777, .. })));
        symlink(place.path(), directory.file("link")).unwrap();
        assert!(matches!(open(&mut directory, "link"), Err(RuntimeDirError::File { action: "open", .. })));
        fs::write(directory.file("file"), "").unwrap();
        assert!(matches!(open(&mut directory, "file"), Err(RuntimeDirError::File { .. })));
        let long = "a".repeat(64);
        let long = directory.open_entrance(1, &long, Some(&long)).map(drop);
        assert!(matches!(long, Err(RuntimeDirError::TooLong { .. })));
    }
}
