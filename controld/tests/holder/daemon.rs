//! A daemon that does what it is told by its arguments and then waits to be killed.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use nix::sys::resource::{Resource, setrlimit};
use remps_controld::parts::holder::{FromHolder, HolderLink, Kind, Settings};

use crate::lab::{listener, pair};

/// First argument of the role; the pipe directory and the orders follow.
pub(crate) const ARGUMENT: &str = "--daemon";

/// Does the orders, says `done` and waits.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Everything stays open until the process is killed.
    let _daemon = runtime.block_on(async {
        let mut daemon = Daemon { link: None, open: Vec::new(), wait: 0 };
        for order in &arguments[1..] {
            let words: Vec<&str> = order.split(' ').collect();
            daemon.obey(Path::new(&arguments[0]), &words).await;
        }
        daemon
    });
    std::io::stdout().write_all(b"done\n").unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

struct Daemon {
    link: Option<HolderLink>,
    open: Vec<OwnedFd>,
    wait: u64,
}

impl Daemon {
    async fn obey(&mut self, dir: &Path, words: &[&str]) {
        if let ["limit", descriptors] = words {
            let limit = descriptors.parse().unwrap();
            return setrlimit(Resource::RLIMIT_NOFILE, limit, limit).unwrap();
        }
        if words == ["attach"] {
            self.link = Some(HolderLink::attach(dir).await.unwrap().0);
            return;
        }
        let link = self.link.as_mut().unwrap();
        if let ["cycles", number] = words {
            return crate::manners::cycle(link, number.parse().unwrap()).await;
        }
        let mut keep = |key: &str, kind, state: &str, held: OwnedFd| {
            link.hold(key.parse().unwrap(), kind, state.as_bytes(), &[held.as_fd()]).unwrap();
            self.open.push(held);
        };
        match words {
            ["listen", key, "control"] => keep(key, Kind::LISTENER_PUBLIC, "", listener(&dir.join("control"))),
            ["listen", key, name] => keep(key, Kind::LISTENER_PRIVILEGED, "", listener(&dir.join(name))),
            // A connection and, under the next key, its other end.
            ["connection", key, state] => {
                let (here, there) = pair();
                keep(key, Kind::SERVER_CONNECTION, state, here);
                keep(&(key.parse::<u64>().unwrap() + 1).to_string(), Kind::CLIENT_END, "peer", there);
            }
            ["fifo", key] => {
                let path = dir.join("log");
                nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
                keep(
                    key,
                    Kind::LOG_FIFO,
                    "",
                    std::fs::File::options().read(true).write(true).open(path).unwrap().into(),
                );
            }
            ["state", key, state] => link.hold(key.parse().unwrap(), Kind::STATE, state.as_bytes(), &[]).unwrap(),
            ["update", key, state] => link.update(key.parse().unwrap(), state.as_bytes()).unwrap(),
            ["release", key] => link.release(key.parse().unwrap()).unwrap(),
            ["wait", milliseconds] => self.wait = milliseconds.parse().unwrap(),
            ["unlink", paths @ ..] => {
                let unlink = paths.iter().map(|name| dir.join(name).into_os_string().into_encoded_bytes()).collect();
                let settings = Settings { successor_wait_ms: self.wait, log_buffer_bytes: 0, unlink, adds: false };
                link.settings(&settings).unwrap();
            }
            ["accept"] => match link.next().await.unwrap() {
                FromHolder::Accepted { fd, .. } => self.open.push(fd),
                other @ (FromHolder::Failed { .. } | FromHolder::Passed { .. }) => panic!("{other:?}"),
            },
            other => panic!("no such order: {other:?}"),
        }
    }
}
