//! Where a process stands ([`Place`]), from `/proc`: its namespaces, and the container that its cgroup names.
//!
//! Nothing here waits for the process, and nothing is read out of its memory.
//!
//! # What may not be looked at
//! The files in `/proc/PID/ns` open for who may trace the process. A daemon of an ordinary user may not trace root, and
//! one in a container with few capabilities not much at all. What everybody may read says nearly as much:
//! - `uid_map`. One that is the daemon's own to the letter is taken for the daemon's user namespace: the kernel writes the
//!   users of a namespace below it in the daemon's own numbers, and to map all of them onto themselves takes
//!   `CAP_SETUID` in the daemon's namespace, which nobody has who is not there.
//! - `NSpid` in `status`. A process has a number in each PID namespace from that of `/proc` down to its own; with one
//!   number alone it is in that of `/proc`, as the daemon is if the same holds for itself.

use crate::core::{Namespace, Pid, Place};
use crate::sys::proc::ProcDir;
use remps_proto::who::{Cgroups, Reach};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where it stands.
    pub place: Place,
    /// The path of its cgroup that says most.
    pub cgroup: String,
    /// When it was started, in clock ticks since boot.
    pub start_time: u64,
    /// Its user namespace, where that is another than the daemon's and could be opened. While this is open, no other
    /// namespace gets its number.
    pub namespace: Option<OwnedFd>,
}

/// The namespaces of the daemon.
#[derive(Debug, Default)]
struct Own {
    user: Option<u64>,
    pid: Option<u64>,
    users: Option<String>,
    is_where_proc_is: bool,
    container: String,
}

fn own() -> &'static Own {
    static OWN: OnceLock<Own> = OnceLock::new();
    OWN.get_or_init(|| {
        let Some(dir) = ProcDir::own() else { return Own::default() };
        Own {
            user: dir.file("ns/user").and_then(|file| number(&file)).ok(),
            pid: dir.file("ns/pid").and_then(|file| number(&file)).ok(),
            users: dir.text("uid_map"),
            is_where_proc_is: dir.has_one_pid(),
            container: Reach::of(&cgroup(&dir)).container,
        }
    })
}

fn cgroup(dir: &ProcDir) -> String {
    dir.cgroup().map(|text| Cgroups::parse(&text).telling().0).unwrap_or_default()
}

/// Whether who is in one container is outside of all that the other is in.
fn is_apart(container: &str, own: &str) -> bool {
    let below = own.strip_prefix(container).unwrap_or(".");
    !(container.is_empty() || below.is_empty() || below.starts_with('/'))
}

fn number(namespace: &std::fs::File) -> io::Result<u64> {
    namespace.metadata().map(|metadata| metadata.ino())
}

fn user_namespace(dir: &ProcDir) -> (Namespace, Option<OwnedFd>) {
    if let Ok(file) = dir.file("ns/user")
        && let Ok(found) = number(&file)
    {
        return if own().user == Some(found) {
            (Namespace::Own, None)
        } else {
            (Namespace::Other(found), Some(file.into()))
        };
    }
    (by_users(dir.text("uid_map"), own().users.as_deref()), None)
}

/// What a namespace is whose users alone are known.
fn by_users(users: Option<String>, own: Option<&str>) -> Namespace {
    match users {
        None => Namespace::Unknown,
        Some(users) if Some(users.as_str()) == own => Namespace::Own,
        Some(users) => Namespace::Alike(users.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

fn pid_namespace(dir: &ProcDir) -> Namespace {
    match dir.file("ns/pid").and_then(|file| number(&file)) {
        Ok(found) if own().pid == Some(found) => Namespace::Own,
        Ok(found) => Namespace::Other(found),
        Err(_) if own().is_where_proc_is && dir.has_one_pid() => Namespace::Own,
        Err(_) => Namespace::Unknown,
    }
}

/// Looks where a process stands. The caller knows that the pid is still the one that it means when this has returned.
///
/// # Errors
/// `ESRCH` when there is no such process.
pub(crate) fn look(pid: Pid) -> io::Result<Found> {
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    let dir = ProcDir::open(pid).ok_or_else(gone)?;
    let start_time = dir.start_time().ok_or_else(gone)?;
    let (cgroup, place, namespace) = of(&dir);
    Ok(Found { place, cgroup, start_time, namespace })
}

/// Where the process of a directory stands, with the cgroup that says most and the user namespace.
pub(super) fn of(dir: &ProcDir) -> (String, Place, Option<OwnedFd>) {
    let cgroup = cgroup(dir);
    let Reach { container, pod } = Reach::of(&cgroup);
    let (user, namespace) = user_namespace(dir);
    let is_apart = is_apart(&container, &own().container);
    (cgroup, Place { user, pid: pid_namespace(dir), container, pod, is_apart }, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_beside_us_is_where_we_are() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let found = look(child.id()).unwrap();
        assert!(found.place.is_the_daemons(), "{:?}", found.place);
        assert!(found.namespace.is_none());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(look(child.id()).is_err());
    }

    #[test]
    fn a_namespace_that_may_not_be_opened_is_told_by_its_users() {
        let own = Some("         0          0 4294967295\n");
        assert_eq!(by_users(own.map(str::to_owned), own), Namespace::Own);
        let sandbox = by_users(Some("      1000       1000          1\n".to_owned()), own);
        assert_eq!(sandbox, Namespace::Alike("1000 1000 1".to_owned()));
        assert_eq!(by_users(Some(String::new()), own), Namespace::Alike(String::new()), "one without users yet");
        assert_eq!((by_users(None, own), by_users(None, None)), (Namespace::Unknown, Namespace::Unknown));
    }

    #[test]
    fn who_is_in_no_container_or_in_one_around_the_daemon_is_not_apart() {
        let own = "/docker/node/kubelet/pod/daemon";
        for around in ["", "/docker/node", own] {
            assert!(!is_apart(around, own), "{around}");
        }
        for elsewhere in
            ["/docker/node/kubelet/pod/other", "/docker/nod", "/docker/other", "/docker/node/kubelet/pod/daemon/inner"]
        {
            assert!(is_apart(elsewhere, own), "{elsewhere}");
            assert!(is_apart(elsewhere, ""), "{elsewhere}");
        }
    }
}
