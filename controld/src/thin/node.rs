//! The daemon of the node, as the thin one sees it: where it is, how it is joined, and under which name.

use super::Request;
use crate::io::folder::Folder;
use crate::io::join_link::{JoinLink, Parcel};
use crate::io::listener_owner::may_be_the_daemon;
use crate::patience::patient;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, connect, socket};
use remps_proto::admin::module::is_name;
use remps_proto::join::{MAX_TEXT, SOCKET_NAME, ToNode, ToThin, VERSION};
use remps_proto::shim::ProgramDefaults;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::timeout;

/// How long the node's daemon may take to answer: it looks up the GPUs for a server that is new.
const ANSWER: Duration = Duration::from_secs(60);
/// What a name begins with that nobody has chosen.
const PREFIX: &str = "joined_";

/// Why the node's daemon is not joined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    /// Nobody is there.
    #[error("no daemon can be joined at {}: {source}", path.display())]
    Nobody {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else is there.
    #[error("who listens at {} is neither root nor this user", .0.display())]
    Stranger(PathBuf),
    /// It says no.
    #[error("the daemon of {} refuses: {reason}", path.display())]
    Refused {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It says nothing.
    #[error("the daemon of {} does not answer", .0.display())]
    Silent(PathBuf),
    /// It ended meanwhile.
    #[error("the daemon of {} has closed the connection", .0.display())]
    Closed(PathBuf),
    /// The name is none.
    #[error("--join-name: a name is 1 to 64 lower-case letters, digits and underscores")]
    Name,
    /// Too many devices.
    #[error("CUDA_VISIBLE_DEVICES has more than {MAX_TEXT} bytes")]
    Devices,
    /// Its own directory.
    #[error("the pipe directory can't be looked at: {0}")]
    Own(io::Error),
}

/// The daemon of the node.
#[derive(Debug)]
pub(super) struct Node {
    path: PathBuf,
    name: String,
    devices: String,
    /// What the daemon that was joined last has said of limits.
    limits: String,
}

/// A name that belongs to a directory as long as that exists: two directories that have the same path in two containers
/// have different ones, and one that has the number of a removed one, too.
fn name_for(path: &Path) -> io::Result<String> {
    /// FNV-1a, which is the same in every release.
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let found = fs::metadata(path)?;
    let born = found.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let numbers = [found.dev(), found.ino(), born.as_secs(), u64::from(born.subsec_nanos())];
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    let bytes = path.as_os_str().as_bytes().iter().copied().chain(numbers);
    let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    Ok(format!("{PREFIX}{hash:016x}"))
}

impl Node {
    /// Works out where the node's daemon is and as what it is to be joined.
    ///
    /// # Errors
    /// When a name or the devices make no sense.
    pub(super) fn new(request: &Request, own: &Folder) -> Result<Self, NodeError> {
        let name = match &request.name {
            Some(name) => name.clone(),
            None => name_for(own.path()).map_err(NodeError::Own)?,
        };
        if !is_name(&name) {
            return Err(NodeError::Name);
        }
        if request.devices.len() > MAX_TEXT {
            return Err(NodeError::Devices);
        }
        // A socket in the directory stands for it; what is not there yet is taken for the directory.
        let socket = &request.socket;
        let is_socket = fs::metadata(socket).is_ok_and(|found| !found.is_dir());
        let path = socket.parent().filter(|_| is_socket).unwrap_or(socket).to_owned();
        Ok(Self { path, name, devices: request.devices.clone(), limits: String::new() })
    }

    /// What it says of limits, for a later one to be told.
    pub(super) fn has_said(&mut self, limits: String) {
        self.limits = limits;
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> impl std::fmt::Display + '_ {
        self.path.display()
    }

    /// Joins it with this directory and these values for programs that say nothing; the conversation, and the name.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub(super) async fn join(
        &self,
        own: &Folder,
        replay: Option<ProgramDefaults>,
    ) -> Result<(JoinLink, String), NodeError> {
        let path = || self.path.clone();
        let nobody = |source: io::Error| NodeError::Nobody { path: path(), source };
        let link = self.connected().map_err(nobody)?;
        if !may_be_the_daemon(&link, &self.path) {
            return Err(NodeError::Stranger(path()));
        }
        let (name, devices, limits) = (self.name.clone(), self.devices.clone(), self.limits.clone());
        let replay = replay.map(|replay| replay.to_string()).unwrap_or_default();
        let hello = ToNode::Hello { version: VERSION, name, devices, limits, replay }.encode();
        let answer = async {
            // Where it was refused, the reason is there to be read all the same.
            let _ = link.send(&hello, Some(own.as_fd())).await;
            link.receive().await
        };
        let answer = timeout(patient(ANSWER), answer).await.map_err(|_| NodeError::Silent(path()))?;
        let Ok(Some(Parcel { bytes, .. })) = answer else { return Err(NodeError::Closed(path())) };
        match ToThin::decode(&bytes) {
            Ok(ToThin::Joined { name }) => Ok((link, name)),
            Ok(ToThin::Refused(reason) | ToThin::Ended(reason)) => Err(NodeError::Refused { path: path(), reason }),
            Ok(ToThin::Limits(_) | ToThin::Unknown(_)) | Err(_) => {
                Err(NodeError::Refused { path: path(), reason: "what it answers is not understood".to_owned() })
            }
        }
    }

    fn connected(&self) -> io::Result<JoinLink> {
        let folder = Folder::open(&self.path)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        loop {
            match connect(socket.as_raw_fd(), &folder.address(SOCKET_NAME)?) {
                Ok(()) => return JoinLink::new(socket),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_its_name_as_long_as_it_exists_and_no_other_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::create_dir(&one).and_then(|()| fs::create_dir(&two)).expect("our folder");
        let name = name_for(&one).expect("it is there");
        fs::write(one.join("file"), "").expect("our folder");
        assert_eq!(name_for(&one).expect("it is there"), name);
        assert!(is_name(&name) && name_for(&two).expect("it is there") != name);
    }
}
