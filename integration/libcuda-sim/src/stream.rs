//! Streams: one thread each, operations in order, the null stream ordered with all blocking ones.

use crate::codes::{Code, Outcome};
use crate::context::{Context, Progress, Ticket};
use crate::endings;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// Work for a stream.
pub(crate) type Operation = Box<dyn FnOnce(&Context) -> Outcome + Send>;

/// Handle of the null stream.
pub(crate) const NULL_STREAM: usize = 0;
/// A stream of each context that no program has: what is recorded for the whole context is recorded there.
pub(crate) const FOR_CONTEXT: usize = usize::MAX;
/// `CU_STREAM_NON_BLOCKING`: not ordered with the null stream.
pub(crate) const NON_BLOCKING: u32 = 1;

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    handle: usize,
    /// Its number, which no other stream of this copy has, or had.
    pub(crate) id: u64,
    queue: Mutex<Option<Sender<Queued>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Flags as given.
    pub(crate) flags: u32,
    /// Priority as given.
    pub(crate) priority: i32,
}

struct Queued {
    /// What must be done before.
    after: Vec<Ticket>,
    operation: Operation,
}

impl Stream {
    /// Starts a stream in a context, under this handle.
    pub(crate) fn start(context: &Arc<Context>, handle: usize, flags: u32, priority: i32) -> Outcome<Arc<Self>> {
        let (queue, operations) = channel::<Queued>();
        let worker = Arc::clone(context);
        let run = move || {
            for queued in operations {
                // After the context has failed operations are passed over, as on a lost channel.
                let result = worker
                    .wait_until(|state| queued.after.iter().all(|&ticket| state.has_reached(ticket)))
                    .and_then(|()| (queued.operation)(&worker));
                if let Err(error) = result {
                    worker.fail(error);
                }
                worker.update(|state| {
                    if let Some(progress) = state.progress.get_mut(&handle) {
                        progress.completed += 1;
                    }
                });
            }
        };
        let builder = std::thread::Builder::new().name("cuda-stream".into());
        let thread = builder.spawn(run).map_err(|_| Code::OUT_OF_MEMORY)?;
        static LAST: AtomicU64 = AtomicU64::new(0);
        let stream = Arc::new(Self {
            handle,
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            flags,
            priority,
        });
        context.update(|state| {
            let is_blocking = handle != NULL_STREAM && flags & NON_BLOCKING == 0;
            // One that had the handle before may still be waited for, by its events.
            let before = state.progress.get(&handle).copied().unwrap_or_default();
            state.progress.insert(handle, Progress { is_blocking, ..before });
            state.streams.insert(handle, Arc::clone(&stream));
        });
        Ok(stream)
    }

    /// Queues an operation.
    pub(crate) fn enqueue(&self, context: &Context, operation: Operation) -> Outcome<Ticket> {
        context.check()?;
        // Held over both, so that operations come in the order of their numbers: whoever waits for a number waits for
        // the operation that has it.
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or(Code::CONTEXT_IS_DESTROYED)?;
        let (after, number) = context.update(|state| {
            let is_blocking = state.progress.get(&self.handle).is_some_and(|progress| progress.is_blocking);
            let mut awaited = std::mem::take(&mut state.awaited);
            awaited.retain(|ticket| !state.has_reached(*ticket));
            state.awaited.clone_from(&awaited);
            if self.handle == FOR_CONTEXT {
                awaited.clear();
            }
            let after: Vec<Ticket> = state
                .progress
                .iter()
                .filter(|(handle, progress)| match self.handle {
                    NULL_STREAM => progress.is_blocking,
                    _ => is_blocking && **handle == NULL_STREAM,
                })
                .map(|(&stream, progress)| Ticket { stream, number: progress.submitted })
                .chain(awaited)
                .collect();
            let progress = state.progress.entry(self.handle).or_default();
            progress.submitted += 1;
            (after, progress.submitted)
        });
        queue.send(Queued { after, operation }).map_err(|_| Code::CONTEXT_IS_DESTROYED)?;
        Ok(Ticket { stream: self.handle, number })
    }

    /// The point that the stream will have reached when all that it has now is done.
    pub(crate) fn ticket(&self, context: &Context) -> Ticket {
        let number = context.state().progress.get(&self.handle).map_or(0, |progress| progress.submitted);
        Ticket { stream: self.handle, number }
    }

    /// Whether all that it was given is done.
    pub(crate) fn is_idle(&self, context: &Context) -> bool {
        let progress = context.state().progress.get(&self.handle).copied().unwrap_or_default();
        progress.completed == progress.submitted
    }

    /// Takes no more operations and waits until those it has are done or passed over.
    pub(crate) fn end(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A host function may destroy its own context; a thread can't wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                // Its operations don't panic across: the result says nothing new.
                let _ = thread.join();
            }
        }
    }

    /// Takes no more operations; those it has are still done.
    pub(crate) fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The default streams of a thread, by context.
#[derive(Debug, Default)]
struct Own(Vec<(Weak<Context>, Arc<Stream>)>);

impl Drop for Own {
    fn drop(&mut self) {
        for (context, stream) in &self.0 {
            stream.close();
            if let Some(context) = context.upgrade() {
                context.update(|state| state.streams.remove(&stream.handle));
            }
        }
    }
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

/// This thread's default stream in a context: blocking, as documented. `handle` gives one for a new stream.
pub(crate) fn of_this_thread(context: &Arc<Context>, handle: impl FnOnce() -> Outcome<usize>) -> Outcome<Arc<Stream>> {
    let found = OWN.try_with(|own| {
        let mut own = own.borrow_mut();
        let known = own.0.iter().find(|(of, _)| of.as_ptr() == Arc::as_ptr(context));
        if let Some((_, stream)) = known {
            return Ok(Arc::clone(stream));
        }
        let stream = Stream::start(context, handle()?, 0, 0)?;
        own.0.push((Arc::downgrade(context), Arc::clone(&stream)));
        endings::this_thread_has_a_stream();
        Ok(stream)
    });
    // A thread that is ending has none any longer.
    found.unwrap_or(Err(Code::INVALID_HANDLE))
}

/// An event: a point in a stream, and when it was reached.
#[derive(Debug)]
pub(crate) struct Event {
    /// What it was last recorded in.
    pub(crate) ticket: Mutex<Option<Ticket>>,
    /// When that was reached: of each record by itself, since an earlier one may be reached later, in another stream.
    pub(crate) reached: Mutex<Arc<Mutex<Option<Instant>>>>,
    /// Whether anybody may ask when that was.
    pub(crate) has_time: bool,
    /// The context it was made in: a primary context has the same handle after a reset.
    origin: Weak<Context>,
}

impl Event {
    /// An event of this context that was not recorded yet.
    pub(crate) fn new(context: &Arc<Context>, has_time: bool) -> Self {
        let origin = Arc::downgrade(context);
        Self { ticket: Mutex::default(), reached: Mutex::default(), has_time, origin }
    }

    /// The context that it was made in, if there still is anything of that.
    pub(crate) fn origin(&self) -> Option<Arc<Context>> {
        self.origin.upgrade()
    }

    /// Whether it was made in this very context.
    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        self.origin.as_ptr() == Arc::as_ptr(context)
    }
}
