//! Which GPUs a program may have held open: those whose device file it has open itself.
//!
//! A program says by its UUID on which GPU its memory is, and may say anything. The daemon can open every GPU's device
//! file, and as long as it does the GPU can't be reset or shut down. So it does that for nobody who could not do the same:
//! a container that has one GPU in its devices' control group gets no other one held, whatever it says. Who has memory on
//! a GPU has its device file open, since the driver library opens it with the context.
//!
//! It takes the right to look at the program's descriptors. Without it nothing is held, and `vault list` says so.

use super::client::Client;
use crate::witness::uvm::has_open;
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The major number of NVIDIA's devices; registered with Linux (`admin-guide/devices.txt`).
const MAJOR: u32 = 195;
/// How often a program that names GPUs it does not have is looked at.
const PACE: Duration = Duration::from_secs(1);

/// What one connection's program was found to have.
#[derive(Debug)]
pub(super) struct Reach {
    major: u32,
    /// Minor numbers of GPUs that it had open.
    found: BTreeSet<u32>,
    /// Until when it is not looked at again, after it named one that it had not.
    not_before: Option<Instant>,
}

impl Default for Reach {
    fn default() -> Self {
        Self::of(MAJOR)
    }
}

impl Reach {
    pub(super) fn of(major: u32) -> Self {
        Self { major, found: BTreeSet::new(), not_before: None }
    }

    /// Whether the program has, or had while it was connected, the device file of this minor number open. Blocks.
    pub(super) fn includes(&mut self, client: &Client, minor: u32) -> bool {
        if self.found.contains(&minor) {
            return true;
        }
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        let pid = Pid::from_raw(client.caller.process.pid.cast_signed());
        let end = format!("{minor}");
        let has = has_open(pid, client.pidfd.as_fd(), (self.major, minor), end.as_bytes()).unwrap_or(false);
        // A descriptor of whoever has its pid by now could not have been copied through its pidfd.
        if has {
            self.found.insert(minor);
        } else {
            self.not_before = Some(Instant::now() + PACE);
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::client::identify;
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    /// A pseudo-terminal as a stand-in for a GPU.
    #[test]
    fn a_program_reaches_the_devices_that_it_has_open_and_no_others() {
        let (here, _there) = UnixStream::pair().unwrap();
        let client = identify(&here.into()).unwrap();
        let pair = nix::pty::openpty(None, None).unwrap();
        let name = nix::unistd::ttyname(&pair.slave).unwrap();
        let minor: u32 = name.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let mut reach = Reach::of(136);
        assert!(reach.includes(&client, minor));
        assert!(!reach.includes(&client, 99_999));
        drop(pair);
        assert!(reach.includes(&client, minor), "it had it open");
        let _opened = File::open("/dev/null").unwrap();
        assert!(!Reach::of(195).includes(&client, 3), "another device");
    }
}
