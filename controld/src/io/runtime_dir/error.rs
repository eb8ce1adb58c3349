//! Why the pipe directory cannot be used, and what whoever starts a daemon can do about it.

use super::MAX_SOCKET_PATH;
use crate::sys::proc::MISSING;
use nix::errno::Errno;
use std::io;
use std::path::PathBuf;

/// Why the pipe directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// The directory does not exist and cannot be made, or cannot be entered. The text is the vendor's.
    #[error("Cannot access CUDA_MPS_PIPE_DIRECTORY={}", path.display())]
    Access {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Its sockets are bound by its descriptor, which has no path without `/proc`.
    #[error("{MISSING}")]
    NoProc,
    /// A socket in the directory would have too long a path.
    #[error("the path of {} has {length} bytes, over the limit of {MAX_SOCKET_PATH} of a socket", path.display())]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
    /// Another daemon holds the lock. The text is the vendor's.
    #[error("An instance of this daemon is already running")]
    AlreadyRunning,
    /// A file of ours cannot be made.
    #[error("cannot {action} {}: {source}{}", path.display(), next_step(source))]
    File {
        /// What was attempted.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else has the name of a file of ours, and it can't be moved out of the way.
    #[error("{} is in the way and can't be moved: {source}. Remove it, or choose another CUDA_MPS_PIPE_DIRECTORY", path.display())]
    InTheWay {
        /// The name.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The directory is another user's.
    #[error(
        "{} belongs to user {owner}, who could put himself in the daemon's place. Remove it, give it to root, or choose \
         another CUDA_MPS_PIPE_DIRECTORY",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Other users may replace files in the directory, and it is not ours to change: so a volume of Kubernetes is.
    #[error(
        "Other users can replace the daemon's files in {0} (mode {mode:04o}): chmod go-w it, or chmod +t. Where neither can \
         be done, as in an emptyDir of Kubernetes, use a directory in it, which the daemon makes with its own mode: \
         CUDA_MPS_PIPE_DIRECTORY={0}/mps",
        path.display()
    )]
    Unclosed {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Other users may replace files in the folder of a namespace.
    #[error("Other users can replace the daemon's files in {} (mode {mode:04o}): chmod go-w it", path.display())]
    Exposed {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

/// What whoever starts a daemon can do about a file of its own that it can't make.
fn next_step(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => {
            ". Start the daemon as root or as the owner of the directory, or choose another CUDA_MPS_PIPE_DIRECTORY"
        }
        Some(Errno::ENOSPC | Errno::EDQUOT) => {
            ". Make room on its file system, or choose another CUDA_MPS_PIPE_DIRECTORY"
        }
        Some(_) => {
            ". Choose another CUDA_MPS_PIPE_DIRECTORY, on a file system that can be written to and has sockets and locks"
        }
        // It says itself who is in the way.
        None => ". Choose another CUDA_MPS_PIPE_DIRECTORY",
    }
}
