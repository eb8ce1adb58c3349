//! One context: its state, its error, its streams' progress.

use crate::codes::{Code, Outcome};
use crate::driver::{Driver, Tables};
use crate::mps::Link;
use crate::stream::Stream;
use crate::tables::Table;
use crate::uvm::WildAccess;
use sim_wire::fault::FaultKind;
use sim_wire::rpc::{Command, Notice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How far a stream has come.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Progress {
    /// Operations given to it.
    pub(crate) submitted: u64,
    /// Operations done.
    pub(crate) completed: u64,
    /// Ordered with the null stream.
    pub(crate) is_blocking: bool,
}

/// A point in a stream's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The stream's handle; 0 is the null stream.
    pub(crate) stream: usize,
    /// Operations up to there.
    pub(crate) number: u64,
}

/// What changes while a context lives.
#[derive(Debug, Default)]
pub(crate) struct State {
    error: Option<Code>,
    is_destroyed: bool,
    /// By stream handle.
    pub(crate) progress: Table<usize, Progress>,
    /// By handle; 0 is the null stream.
    pub(crate) streams: Table<usize, Arc<Stream>>,
    /// What all work comes after that the context is given from now on.
    pub(crate) awaited: Vec<Ticket>,
}

impl State {
    /// Whether the stream has done everything up to the ticket; a stream that is gone has.
    pub(crate) fn has_reached(&self, ticket: Ticket) -> bool {
        self.progress.get(&ticket.stream).is_none_or(|progress| progress.completed >= ticket.number)
    }
}

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// Its handle; a primary context has the same after a reset.
    pub(crate) handle: usize,
    /// Handle of the context that has what is made in it, besides streams: its own, or the primary one of a green context.
    pub(crate) home: usize,
    /// Its number, which no other context of this copy has, or had.
    pub(crate) id: u64,
    /// Device ordinal.
    pub(crate) device: u32,
    /// Share of the device's threads, in percent.
    pub(crate) thread_percentage: f64,
    link: Mutex<Option<Link>>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Context {
    /// A context; `link` is its connection to the server, under MPS.
    pub(crate) fn new(handle: usize, device: u32, thread_percentage: f64, link: Option<Link>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            handle,
            home: handle,
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            device,
            thread_percentage,
            link: Mutex::new(link),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Its state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its sticky error, if it has one.
    pub(crate) fn check(&self) -> Outcome {
        Self::verdict(&self.state())
    }

    /// The memory, for work that a stream has begun. A context that has failed has none: it fails with the tables in hand,
    /// so once its error can be heard nothing of its work changes anything.
    ///
    /// # Errors
    /// Its own, if it has failed.
    pub(crate) fn at_work<'driver>(&self, driver: &'driver Driver) -> Outcome<MutexGuard<'driver, Tables>> {
        let tables = driver.tables();
        self.check()?;
        Ok(tables)
    }

    fn verdict(state: &State) -> Outcome {
        match state.error {
            _ if state.is_destroyed => Err(Code::CONTEXT_IS_DESTROYED),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Gives it its sticky error; the first one stays.
    pub(crate) fn fail(&self, error: Code) {
        self.state().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// The same for an error that leaves nothing of it: its variables are gone before anybody hears of it.
    fn die(&self, driver: &Driver, error: Code) {
        driver.lose_variables(self.handle, || self.fail(error));
    }

    /// Changes the state and wakes whoever waits for it.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Waits until the state is as asked, or the context fails.
    pub(crate) fn wait_until(&self, is_reached: impl Fn(&State) -> bool) -> Outcome {
        let mut state = self.state();
        loop {
            Self::verdict(&state)?;
            if is_reached(&state) {
                return Ok(());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a point is reached, if the context has not failed: looked at at once, since what a stream passes over after a
    /// failure counts as done for whoever waits.
    pub(crate) fn ask(&self, ticket: Ticket) -> Outcome {
        let state = self.state();
        Self::verdict(&state)?;
        if state.has_reached(ticket) { Ok(()) } else { Err(Code::NOT_READY) }
    }

    /// The points that its streams will have reached when all that they have now is done.
    pub(crate) fn tickets(&self) -> Vec<Ticket> {
        let state = self.state();
        state.progress.iter().map(|(&stream, progress)| Ticket { stream, number: progress.submitted }).collect()
    }

    /// Waits until all its streams have done what they have now.
    pub(crate) fn drain(&self) -> Outcome {
        let goal = self.tickets();
        self.wait_until(|state| goal.iter().all(|&ticket| state.has_reached(ticket)))
    }

    /// Lets time pass as a kernel does; ends early when the context fails. `None` is for ever.
    pub(crate) fn pass_time(&self, time: Option<Duration>) -> Outcome {
        let end = time.map(|time| Instant::now() + time);
        let mut state = self.state();
        loop {
            Self::verdict(&state)?;
            state = match end {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(());
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// One of its kernels does wrong: of a memory fault the tools device hears, then the server, and after a while the
    /// context fails. After a fault of which the culprit learns from the server alone it goes on.
    pub(crate) fn fault(&self, driver: &Driver, kind: FaultKind, access: Option<WildAccess>) -> Outcome {
        if let Some(gate) = &driver.fault_gate {
            // Opening waits; without such a file there is nothing to wait for.
            drop(std::fs::File::open(gate));
        }
        let mut own = match kind {
            kind if kind.is_memory_fault() => driver.own_memory_fault,
            kind if kind.is_told_by_server() => driver.own_trap,
            _ => driver.own_fault,
        };
        if let Some(access) = access {
            // Before the server: the kernel module has written the queues when anybody else hears of the fault, and the
            // server's word may end this process while this thread is kept from running.
            self.pass_time(Some(driver.fault_event))?;
            driver.tell_fault(self.device, access);
            own = own.saturating_sub(driver.fault_event);
        }
        // Without MPS, or without its server, there is nobody to tell.
        let told = self.with_link(|link| link.tell(Command::Fault(kind.0)));
        self.pass_time(Some(own))?;
        if told.is_some() && !kind.is_told_to_culprit() {
            return Ok(());
        }
        let code = Code(kind.0);
        driver.forbid_contexts(code);
        self.die(driver, code);
        Err(code)
    }

    /// Something came from the server, or it closed.
    pub(crate) fn hear(&self, driver: &Driver, notice: Option<Notice>) {
        match notice {
            Some(Notice::Doom(status)) => driver.doom(Code(status)),
            Some(Notice::Poison(status)) => {
                driver.forbid_contexts(Code(status));
                self.die(driver, Code(status));
            }
            Some(Notice::Terminate) => {
                driver.forbid_contexts(Code::MPS_CLIENT_TERMINATED);
                driver.stop_kernels();
                self.die(driver, Code::MPS_CLIENT_TERMINATED);
                self.disconnect();
            }
            None => {
                if self.is_connected() {
                    driver.forbid_if_doomed();
                    self.die(driver, Code::MPS_RPC_FAILURE);
                }
            }
        }
    }

    fn with_link<T>(&self, use_it: impl FnOnce(&Link) -> T) -> Option<T> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(use_it)
    }

    fn is_connected(&self) -> bool {
        self.with_link(|_| ()).is_some()
    }

    /// Closes the connection to the server.
    fn disconnect(&self) {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Ends it: kernels stop, streams end, the server is told by the closed connection.
    pub(crate) fn destroy(&self) {
        let streams = self.update(|state| {
            state.is_destroyed = true;
            state.progress.clear();
            std::mem::take(&mut state.streams)
        });
        for stream in streams.values() {
            stream.end();
        }
        self.with_link(Link::leave);
        self.disconnect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_passed_over_after_a_failure_is_not_said_to_be_done() {
        let context = Context::new(1, 0, 100.0, None);
        let ticket = Ticket { stream: 0, number: 1 };
        context.update(|state| state.progress.insert(0, Progress { submitted: 1, ..Progress::default() }));
        assert_eq!(context.ask(ticket), Err(Code::NOT_READY));
        context.fail(Code::LAUNCH_FAILED);
        context.update(|state| state.progress.entry(0).or_default().completed = 1);
        assert_eq!(context.ask(ticket), Err(Code::LAUNCH_FAILED));
    }
}
