//! Where requests come from: a Unix socket or a loopback address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, connect, socket};
use nix::sys::stat::Mode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, sleep_until};

use crate::io::folder::way::{self, Way};
use crate::io::folder::{Folder, Identity, Kind};

/// The daemon's user and group may ask.
const SOCKET_MODE: Mode = Mode::from_bits_truncate(0o660);
/// Connections that wait for `accept`.
const BACKLOG: i32 = 128;
/// What the name of a Unix socket begins with.
const PREFIX: &str = "unix:";
/// How long to wait before accepting again when the kernel has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The text is neither `unix:/path` nor an address.
    #[error("\"{0}\" is neither unix:/path nor 127.0.0.1:port")]
    NoAddress(String),
    /// An address that others than this machine can reach.
    #[error("{0} is no loopback address")]
    NotLoopback(SocketAddr),
    /// Something that is no socket has the name, or somebody listens there already.
    #[error("{} is in the way", .0.display())]
    InTheWay(PathBuf),
    /// The kernel refused.
    #[error("{address}: {source}")]
    Io {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener, Name),
    Tcp(TcpListener),
}

/// Where a Unix socket is, and which file it is.
#[derive(Debug)]
struct Name {
    shown: PathBuf,
    folder: Folder,
    name: String,
    file: Option<Identity>,
}

/// A socket that listens. The file of a Unix socket is removed with it.
#[derive(Debug)]
pub struct Endpoint {
    socket: Socket,
}

impl Endpoint {
    /// Listens where `listen` says, as `unix:/run/nvidia-mps/metrics.sock` or `127.0.0.1:9400`. Needs a runtime.
    ///
    /// A socket file on which nobody listens any more, as a killed daemon leaves it, is replaced.
    ///
    /// # Errors
    /// [`ListenError`]; the daemon can do without.
    pub async fn bind(listen: &str) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Io { address: listen.to_owned(), source };
        if let Some(path) = listen.strip_prefix(PREFIX) {
            let mut name = Name::of(Path::new(path)).map_err(failed)?;
            name.is_free()?;
            let listener = name.listen().map_err(failed)?;
            return Ok(Self { socket: Socket::Unix(listener, name) });
        }
        let address: SocketAddr = listen.parse().map_err(|_| ListenError::NoAddress(listen.to_owned()))?;
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self { socket: Socket::Tcp(listener) })
    }

    /// The address in use, which tells the port when 0 was asked for.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_address(&self) -> io::Result<String> {
        match &self.socket {
            Socket::Unix(_, name) => Ok(format!("{PREFIX}{}", name.shown.display())),
            Socket::Tcp(listener) => listener.local_addr().map(|address| address.to_string()),
        }
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> Stream {
        loop {
            let accepted = match &self.socket {
                Socket::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
                Socket::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
            };
            match accepted {
                Ok(stream) => return stream,
                // Out of descriptors, or the peer has gone again. A pause keeps this from turning at full speed.
                Err(_) => sleep_until(Instant::now() + ACCEPT_PAUSE).await,
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Socket::Unix(_, Name { folder, name, file: Some(file), .. }) = &self.socket {
            // Somebody else may have made his own there since.
            folder.remove_same(name, *file);
        }
    }
}

impl Name {
    fn of(path: &Path) -> io::Result<Self> {
        let Way { folder, name, .. } = way::find(path)?;
        let folder = Folder::from_fd(folder, path.parent().unwrap_or(path))?;
        let name = name.into_string().map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))?;
        Ok(Self { shown: path.to_owned(), folder, name, file: None })
    }

    /// Whether nothing is there but a socket on which nobody listens any more.
    fn is_free(&self) -> Result<(), ListenError> {
        let in_the_way = || ListenError::InTheWay(self.shown.clone());
        if self.folder.identity(&self.name).is_none() {
            return Ok(());
        }
        if !self.folder.has(&self.name, Kind::Socket) {
            return Err(in_the_way());
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let asked = socket(AddressFamily::Unix, SockType::Stream, flags, None)
            .and_then(|socket| connect(socket.as_raw_fd(), &self.folder.address(&self.name)?));
        if asked == Err(Errno::ECONNREFUSED) { Ok(()) } else { Err(in_the_way()) }
    }

    fn listen(&mut self) -> io::Result<UnixListener> {
        let listener = self.folder.listen(&self.name, SockType::Stream, SOCKET_MODE, Backlog::new(BACKLOG)?)?;
        self.file = self.folder.identity(&self.name);
        UnixListener::from_std(listener.into())
    }
}

/// A connection of either kind.
#[derive(Debug)]
pub(super) enum Stream {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
