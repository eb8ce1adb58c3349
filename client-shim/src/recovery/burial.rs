//! The dead copy is cut off when the program runs again, beside it, in either way of a recovery.
//!
//! Nothing of it could still do harm by then, which is why it can wait: nothing of its runs on the GPU any more ([`rest`](super::rest)),
//! the program's memory is unmapped from it or, after a switch, written by nobody, no thread of the program is in it, and
//! the private tables lead elsewhere. What is left is the files, which the kernel takes milliseconds to close.
//!
//! | what could meet it meanwhile | |
//! |---|---|
//! | another recovery | waits until it is cut off ([`dead`]) |
//! | a child, by `fork` | has nothing of it ([`children`](crate::cuda::children)); nor has a program that is begun |
//! | an allocation for which memory is short | waits for it, and is tried again |
//! | the end of the process | waits for it, for [`PATIENCE`] at most: the driver's own end would meet its dead server |
//! | a pipe of a dead server | ends nobody ([`NoBrokenPipe`]) |
//! | the daemon, which keeps copies of its files | is told when it is cut off ([`renewal`]) |
//!
//! One case is left before the gate: where neither the channel's own error nor the reaped server proves that nothing runs,
//! but only that the program had given no work. There the closed files are the proof.
#![expect(unsafe_code, reason = "asks what to do at the end of the process")]

use std::time::{Duration, Instant};

use super::{
    amputation::{self, Cut, Mapped},
    is_armed, report,
};
use crate::{
    cuda::{
        belongings::{self, Belongings},
        dead::{self, Dead, Uncut},
        socket_name::{self, Exchanged},
    },
    daemon::renewal,
    process::{failpoint::reached, log, settings, signals::NoBrokenPipe},
};

/// How long the end of the process, and an allocation for which memory is short, wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A dead copy that is not cut off yet.
#[derive(Debug)]
pub(super) struct Former {
    belongings: Belongings,
    mapped: Mapped,
    /// Ranges that are the other copy's by now, address and size.
    reserved: Vec<(u64, u64)>,
    /// Its sockets, where their names had to be free already.
    listeners: Option<Vec<Exchanged>>,
}

impl Former {
    /// One that a fresh copy, or the spare one with names of its own, has taken the place of.
    pub(super) fn new(
        belongings: Belongings,
        mapped: Mapped,
        reserved: Vec<(u64, u64)>,
        listeners: Option<Vec<Exchanged>>,
    ) -> Self {
        Self { belongings, mapped, reserved, listeners }
    }

    /// Cuts it off.
    pub(super) fn cut_off(self) -> Cut {
        let listeners = self.listeners.unwrap_or_else(|| own_listeners(&self.belongings));
        let mut cut = amputation::silence(&self.belongings, self.mapped.owner(), &listeners);
        reached("dead-silenced");
        // Only now: until then a pipe without its other end would keep a thread of the dead copy busy.
        drop(listeners);
        cut.mappings = amputation::overlay(&self.mapped, &self.reserved);
        belongings::are_cut_off();
        cut
    }
}

/// Frees the names of a dead copy's sockets. A number that it has closed since, or that was closed for it, may be that of
/// another copy's socket by now.
fn own_listeners(dead: &Belongings) -> Vec<Exchanged> {
    let mut numbers = Vec::new();
    dead.each(|number| numbers.push(number));
    socket_name::free_of(numbers).unwrap_or_default()
}

/// What is cut off when the gate is open.
#[derive(Debug)]
pub(super) struct Burial {
    former: Former,
    uncut: Uncut,
    /// Of which recovery, and when that began.
    number: u64,
    begin: Instant,
    /// Until then the dead copy may write to its server's pipe.
    quiet: NoBrokenPipe,
}

impl Burial {
    /// From now on, with the gate still closed, whoever must not meet the dead copy waits.
    pub(super) fn new(former: Former, number: u64, begin: Instant, quiet: NoBrokenPipe) -> Self {
        Self { former, uncut: Uncut::begin(), number, begin, quiet }
    }

    /// Begins it. The gate is open.
    pub(super) fn begin(self, dead: Option<Dead>) {
        let Self { former, uncut, number, begin, quiet } = self;
        dead::bury(dead, uncut, move || {
            reached("burial-begun");
            let since = Instant::now();
            let cut = former.cut_off();
            report::cut_off(number, &cut, since.elapsed(), begin.elapsed());
            drop(quiet);
            is_cut_off(number, &cut, since.elapsed());
            reached("dead-amputated");
            cut.descriptors
        });
    }
}

/// The copy that lived until the recovery of this number is cut off: the daemon may look.
pub(super) fn is_cut_off(number: u64, cut: &Cut, took: Duration) {
    renewal::is_cut_off(number);
    if settings::lines_wanted() {
        let Cut { descriptors, mappings } = cut;
        log::complain(format_args!(
            "the dead copy of the driver is cut off in {} us, number {number}; descriptors: {}, mappings: {mappings}",
            took.as_micros(),
            descriptors.len(),
        ));
    }
}

/// Memory is short: what the dead copy has of it comes back first.
pub(crate) fn wait() {
    if is_armed() {
        dead::are_cut_off(PATIENCE);
    }
}

/// Has the end of the process wait. The driver is initialised, so its own end comes after.
pub(super) fn prepare() {
    // SAFETY: the handler is a function of ours in a library that is never unloaded.
    let _not_waited_for = unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    // A forked child has no such thread.
    wait();
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        os::{
            fd::AsRawFd as _,
            linux::net::SocketAddrExt as _,
            unix::net::{SocketAddr, UnixListener},
        },
    };

    use super::own_listeners;
    use crate::{
        cuda::{belongings::Belongings, socket_name},
        process::descriptors::identity_of,
    };

    #[test]
    fn a_socket_that_has_got_a_dead_copys_number_is_left_to_the_copy_that_lives() {
        let name = format!("cuda-uvmfd-burial-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        let number = listener.as_raw_fd();
        let before = identity_of(std::fs::File::open("/").expect("a folder").as_raw_fd()).expect("it is open");
        let of = |identity| Belongings::of(BTreeMap::from([(number, identity)]));
        assert!(own_listeners(&of(before)).is_empty(), "the number was another file's then");
        assert!(socket_name::of(number).is_some());
        let exchanged = own_listeners(&of(identity_of(number).expect("it is open")));
        assert_eq!((exchanged.len(), socket_name::of(number).is_some()), (1, false));
    }
}
