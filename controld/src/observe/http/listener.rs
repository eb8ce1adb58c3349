//! Where requests come from: a Unix socket or a loopback address.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, sleep_until};

/// The daemon's user and group may ask.
const SOCKET_MODE: u32 = 0o660;
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
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
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
            let path = Path::new(path);
            clear(path)?;
            let listener = UnixListener::bind(path).map_err(failed)?;
            fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
            return Ok(Self { socket: Socket::Unix(listener, path.to_owned()) });
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
            Socket::Unix(_, path) => Ok(format!("{PREFIX}{}", path.display())),
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
        if let Socket::Unix(_, path) = &self.socket {
            // Somebody else may have removed it.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a socket on which nobody listens.
fn clear(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Io { address: path.display().to_string(), source };
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
            Ok(_) | Err(_) => Err(ListenError::InTheWay(path.to_owned())),
        },
        Ok(_) => Err(ListenError::InTheWay(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
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
