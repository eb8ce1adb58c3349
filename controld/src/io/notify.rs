//! Tells systemd that the daemon is ready (`Type=notify`), and that it still serves (`WatchdogSec=`).

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

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

/// How often systemd is told within the time after which it would end the daemon: one word may be late.
const TOLD_PER_PERIOD: u32 = 3;

/// The word that the daemon still serves, which its one task gives: a task that stands still gives none, and systemd
/// starts another daemon, to whom the holder hands everything over.
#[derive(Debug)]
pub(crate) struct Watchdog {
    socket: OsString,
    every: Duration,
    next: Instant,
}

impl Watchdog {
    /// By `NOTIFY_SOCKET`, and `WATCHDOG_USEC` where `WATCHDOG_PID` is this process or nobody; `None` when nobody waits
    /// for the word.
    pub(crate) fn wanted(environment: impl Fn(&str) -> Option<OsString>, now: Instant) -> Option<Self> {
        let number = |name: &str| environment(name)?.to_str()?.parse::<u64>().ok();
        if environment("WATCHDOG_PID").is_some() && number("WATCHDOG_PID") != Some(u64::from(std::process::id())) {
            return None;
        }
        let period = Duration::from_micros(number("WATCHDOG_USEC").filter(|period| *period > 0)?);
        Some(Self { socket: environment("NOTIFY_SOCKET")?, every: period / TOLD_PER_PERIOD, next: now })
    }

    /// When the next word is due.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.next
    }

    /// Gives the word when it is due.
    pub(crate) fn tell(&mut self, now: Instant) {
        if now >= self.next {
            notify(Some(&self.socket), "WATCHDOG=1");
            self.next = now + self.every;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_given_three_times_a_period_to_whom_it_was_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        manager.set_nonblocking(true).expect("a socket");
        let own = std::process::id().to_string();
        let environment = |pid: Option<&str>, period: &str| {
            let (pid, period, path) = (pid.map(OsString::from), OsString::from(period), path.clone());
            move |name: &str| match name {
                "WATCHDOG_PID" => pid.clone(),
                "WATCHDOG_USEC" => Some(period.clone()),
                _ => Some(path.clone().into_os_string()),
            }
        };
        let now = Instant::now();
        assert!(Watchdog::wanted(environment(Some("1"), "3000000"), now).is_none());
        assert!(Watchdog::wanted(environment(None, "0"), now).is_none());
        assert!(Watchdog::wanted(environment(None, "soon"), now).is_none());
        assert!(Watchdog::wanted(environment(None, "3000000"), now).is_some());

        let mut watchdog = Watchdog::wanted(environment(Some(&own), "3000000"), now).expect("asked for");
        let mut words = |at: Duration| {
            watchdog.tell(now + at);
            let mut buffer = [0; 32];
            std::iter::from_fn(|| manager.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()))
                .collect::<Vec<_>>()
        };
        let word: Vec<Vec<u8>> = vec![b"WATCHDOG=1".to_vec()];
        assert_eq!(words(Duration::ZERO), word);
        assert_eq!(words(Duration::from_millis(999)), Vec::<Vec<u8>>::new());
        assert_eq!(words(Duration::from_millis(1000)), word);
        assert_eq!(words(Duration::from_millis(1001)), Vec::<Vec<u8>>::new());
        assert_eq!(watchdog.next_deadline(), now + Duration::from_secs(2));
    }

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
