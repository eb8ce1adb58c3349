//! Finds a client's address space and watches it, at once or as soon as there is one.
//!
//! A client connects to the daemon in `cuInit`, before or after it has opened UVM, and again for each context. No file
//! system event tells of a new entry in `/proc/PID/fd`, so the daemon looks again and again: every millisecond at first,
//! ever more seldom later, with pauses in proportion to what there is to look at and to how many are looked for at the
//! same time, until the process ends or the deadline comes; and at once when somebody waits for it. At the connection of a context the address space is there, and one look will do. A look also keeps what else
//! the client has opened since.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::copies::{Copies, Held, OpenFiles};
use super::descriptors::{Candidate, Given, Taken, open_files, prove_given, take, taken};
use super::error::AttachError;
use super::tracker::{Armed, Probed, Tracker, arm};
use super::{Uvm, look};
use crate::sys::polled;

/// Between two looks at first.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// For so long the pause stays what it is at first: `cuInit` takes 8 to 70 ms under MPS.
const EAGER: Duration = Duration::from_millis(100);
/// The pause in the rest of the first second.
const SECOND_PAUSE: Duration = Duration::from_millis(10);
/// The end of that.
const ALERT: Duration = Duration::from_secs(1);
/// The pause after the first second.
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// A pause is at least so long for each descriptor that was looked at: ten times what it takes to look at one. By the
/// number and not by the time that it took, which on a busy machine says more about the others.
const PAUSE_PER_DESCRIPTOR: Duration = Duration::from_micros(15);
/// A pause is at least so long for each client that is looked for: four looks a millisecond are done in all, so that a
/// crowd's looks take neither the daemon's time nor the machine's from the crowd itself.
const PAUSE_PER_CLIENT: Duration = Duration::from_micros(250);

/// Before the looks for the descriptor that goes with an address space: the client opens it right after.
const COMPLETION_PAUSES: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(2), Duration::from_millis(4)];

/// A client that is watched and whose descriptors are kept.
#[derive(Debug)]
pub struct Attached {
    /// Its faults.
    pub tracker: Tracker,
    /// Its descriptors.
    pub copies: Copies,
}

/// What one look found.
struct Found {
    space: Option<(Armed, Arc<Held>)>,
    /// Descriptors that are no address space, and not held yet.
    companions: Vec<Arc<Held>>,
    /// How many descriptors of the process were looked at.
    looked_at: usize,
}

fn sort(uvm: &Uvm, Taken { found: candidates, looked_at }: Taken) -> Result<Found, AttachError> {
    let mut found = Found { space: None, companions: Vec::new(), looked_at };
    for Candidate { held, is_new } in candidates {
        match (&found.space, arm(uvm, &held)?) {
            (None, Probed::Space(armed)) => found.space = Some((armed, held)),
            // A second address space of the process: the next look's, since this one's is held then.
            (Some(_), Probed::Space(_)) => {}
            (_, Probed::Other) if is_new => found.companions.push(held),
            // It is kept with another address space of the process.
            (_, Probed::Other) => {}
        }
    }
    Ok(found)
}

impl Uvm {
    /// Looks once for an address space of the process that nobody holds yet, keeps it and watches it. When the
    /// descriptor that goes with it is not there yet, that is waited for a few milliseconds, in which the queue is
    /// filled already. Without a new address space it gives the number of descriptors that were looked at, and what has
    /// been found besides is added to the copies that are kept of this process.
    async fn try_attach(
        self: &Arc<Self>,
        pid: Pid,
        pidfd: BorrowedFd<'_>,
    ) -> Result<Result<Attached, usize>, AttachError> {
        let Found { space, companions, looked_at } = self.look(pid, pidfd).await?;
        let Some((armed, space)) = space else {
            self.registry().keep_with_others(pid, companions);
            return Ok(Err(looked_at));
        };
        let Some(copies) = Copies::new(self.registry(), pid, space, companions) else {
            armed.discard();
            return Ok(Err(looked_at));
        };
        let tracker = Tracker::listen(armed, &copies)?;
        for pause in COMPLETION_PAUSES {
            if copies.is_complete() {
                break;
            }
            pass(pause).await;
            // Its end, or whatever else is wrong, is for the next who asks; the tracker stands.
            let _ = self.complete(&copies, pidfd).await;
        }
        Ok(Ok(Attached { tracker, copies }))
    }

    async fn look(self: &Arc<Self>, pid: Pid, pidfd: BorrowedFd<'_>) -> Result<Found, AttachError> {
        let (uvm, process) = (Arc::clone(self), duplicate(pidfd)?);
        look(pid, move || sort(&uvm, take(uvm.registry(), uvm.major(), pid, process.as_fd())?)).await
    }

    /// Keeps and watches an address space whose descriptors somebody has handed over: the preload library of a client
    /// that may not be traced, or a keeper in another process. They are proven like any other; whose they are is for the
    /// caller to know, by who has sent them.
    ///
    /// # Errors
    /// [`AttachError::NotYet`] when no address space is among them that nobody holds yet; else see [`AttachError`].
    pub async fn attach_handed_over(self: &Arc<Self>, pid: Pid, given: Vec<Given>) -> Result<Attached, AttachError> {
        self.attach_given(pid, taken(given)).await
    }

    /// The same with descriptors that an earlier daemon had proven.
    ///
    /// # Errors
    /// As [`Self::attach_handed_over`].
    pub async fn attach_given(self: &Arc<Self>, pid: Pid, given: Vec<OwnedFd>) -> Result<Attached, AttachError> {
        let uvm = Arc::clone(self);
        let prove = move || {
            let found = prove_given(uvm.registry(), uvm.major(), pid, given)?;
            sort(&uvm, Taken { looked_at: found.len(), found })
        };
        let Found { space, companions, looked_at: _ } = look(pid, prove).await?;
        let (armed, space) = space.ok_or(AttachError::NotYet)?;
        let Some(copies) = Copies::new(self.registry(), pid, space, companions) else {
            armed.discard();
            return Err(AttachError::NotYet);
        };
        Ok(Attached { tracker: Tracker::listen(armed, &copies)?, copies })
    }

    /// The same, as soon as there is one; `hurry` ends a pause between two looks. Called again it waits for another: one that the process opens when it makes a
    /// new context after having destroyed its last, or with a second copy of libcuda.
    ///
    /// # Errors
    /// [`AttachError::NotYet`] at the deadline, [`AttachError::Gone`] when the process ends; else see [`AttachError`].
    pub async fn attach_when_ready(
        self: &Arc<Self>,
        pid: Pid,
        pidfd: BorrowedFd<'_>,
        deadline: Instant,
        hurry: &Notify,
    ) -> Result<Attached, AttachError> {
        let _looked_for = self.looked_for.one_more();
        let ended = polled::register(duplicate(pidfd)?, Interest::READABLE)
            .map_err(|source| AttachError::System { what: "wait for the process's end", source })?;
        let begin = Instant::now();
        loop {
            let looked_at = match self.try_attach(pid, pidfd).await? {
                Ok(attached) => return Ok(attached),
                Err(looked_at) => looked_at,
            };
            let now = Instant::now();
            if now >= deadline {
                return Err(AttachError::NotYet);
            }
            let pause = pause_after(now - begin, looked_at, self.looked_for.count()).min(deadline - now);
            let gone = async {
                tokio::select! {
                    ended = ended.readable() => Some(ended),
                    () = hurry.notified() => None,
                }
            };
            if let Ok(Some(ended)) = timeout(pause, gone).await {
                ended
                    .map_err(|source| AttachError::System { what: "wait for the process's end", source })?
                    .retain_ready();
                return Err(AttachError::Gone);
            }
        }
    }

    /// Looks once which of the files that are held a process has open, its own or another one's.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub async fn files_open_in(self: &Arc<Self>, pid: Pid, pidfd: BorrowedFd<'_>) -> Result<OpenFiles, AttachError> {
        let (uvm, process) = (Arc::clone(self), duplicate(pidfd)?);
        look(pid, move || open_files(uvm.registry(), uvm.major(), pid, process.as_fd())).await
    }

    /// Adds what the client has opened since: the second descriptor, if the first was found before it was there. To be
    /// called when the client's next connection comes, unless [`Copies::is_complete`] or another address space is looked
    /// for then.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub async fn complete(self: &Arc<Self>, copies: &Copies, pidfd: BorrowedFd<'_>) -> Result<(), AttachError> {
        let found = self.look(copies.process(), pidfd).await?;
        copies.extend(self.registry(), found.companions);
        Ok(())
    }
}

/// Lets time pass, in which nothing is waited for.
async fn pass(time: Duration) {
    // It always runs out.
    let _ = timeout(time, std::future::pending::<()>()).await;
}

fn duplicate(pidfd: BorrowedFd<'_>) -> Result<OwnedFd, AttachError> {
    pidfd.try_clone_to_owned().map_err(|source| AttachError::System { what: "duplicate a pidfd", source })
}

/// How many clients are looked for at the moment.
#[derive(Debug, Default)]
pub(super) struct LookedFor(AtomicUsize);

/// One of them, until it is dropped.
struct OneMore<'a>(&'a LookedFor);

impl LookedFor {
    fn one_more(&self) -> OneMore<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        OneMore(self)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for OneMore<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long to wait before the next look, by the time since the first, what the last one looked at, and how many clients
/// are looked for.
fn pause_after(since: Duration, looked_at: usize, clients: usize) -> Duration {
    let pause = match since {
        since if since < EAGER => FIRST_PAUSE,
        since if since < ALERT => SECOND_PAUSE,
        _ => LAST_PAUSE,
    };
    let times = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    pause
        .max(PAUSE_PER_DESCRIPTOR.saturating_mul(times(looked_at)))
        .max(PAUSE_PER_CLIENT.saturating_mul(times(clients)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer_and_rarer_still_for_many_descriptors_and_in_a_crowd() {
        assert_eq!(pause_after(Duration::ZERO, 40, 1), Duration::from_millis(1));
        assert_eq!(pause_after(Duration::from_millis(500), 40, 1), Duration::from_millis(10));
        assert_eq!(pause_after(Duration::from_secs(60), 40, 1), Duration::from_millis(100));
        assert_eq!(pause_after(Duration::ZERO, 20_000, 1), Duration::from_millis(300));
        assert_eq!(pause_after(Duration::ZERO, 40, 48), Duration::from_millis(12));
        let looked_for = LookedFor::default();
        let all: Vec<OneMore<'_>> = (0..3).map(|_| looked_for.one_more()).collect();
        assert_eq!(looked_for.count(), 3);
        drop(all);
        assert_eq!(looked_for.count(), 0);
    }
}
