//! Tells systemd that the daemon is ready (`Type=notify`).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` to `NOTIFY_SOCKET`, if there is one. A manager that does not listen is not waited for.
pub(crate) fn notify(socket: Option<&OsStr>, state: &str) {
    let Some(socket) = socket.filter(|socket| !socket.is_empty()) else {
        return;
    };
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    };
    let sent = address.and_then(|address| {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        sender.send_to_addr(state.as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "systemd can't be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_arrives_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("bound");
        let name = format!("remps-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("short");
        let by_name = UnixDatagram::bind_addr(&address).expect("bound");
        notify(Some(path.as_os_str()), "READY=1");
        notify(Some(OsStr::new(&format!("@{name}"))), "READY=1");
        notify(None, "READY=1");
        notify(Some(OsStr::new("/nowhere/at/all")), "READY=1");
        for receiver in [by_path, by_name] {
            let mut buffer = [0; 32];
            let length = receiver.recv(&mut buffer).expect("it is there");
            assert_eq!(&buffer[..length], b"READY=1");
        }
    }
}
