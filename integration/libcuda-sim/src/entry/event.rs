//! Events.

use super::capture::unsafe_call;
use crate::abi::{Out, entry_points};
use crate::codes::{Code, Outcome};
use crate::context::{Context, State, Ticket};
use crate::contexts::current;
use crate::driver::{Driver, driver};
use crate::stream::{Event, FOR_CONTEXT, NON_BLOCKING, Stream};
use std::ffi::c_uint;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIME: c_uint = 2;

/// The event of a handle.
pub(super) fn find(driver: &Driver, handle: usize) -> Outcome<Arc<Event>> {
    driver.tables().events.get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
}

/// The point that it was last recorded at.
pub(super) fn ticket(event: &Event) -> Option<Ticket> {
    *event.ticket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The event and its context, which is whole and need not be the current one.
fn event(handle: usize) -> Outcome<(Arc<Context>, Arc<Event>)> {
    let (driver, _) = current()?;
    let event = find(driver, handle)?;
    // One made before a reset belongs to a context that is gone, whatever has its handle now.
    let context = event.origin().ok_or(Code::CONTEXT_IS_DESTROYED)?;
    context.check()?;
    Ok((context, event))
}

fn record(handle: usize, stream: usize) -> Outcome {
    let (driver, context, found) = super::stream::stream(stream)?;
    // As documented an event can be recorded in a stream of its own context alone.
    if !event(handle)?.1.is_of(&context) {
        return Err(Code::INVALID_HANDLE);
    }
    {
        let mut tables = driver.tables();
        if let Some(capture) = tables.graphs.captures.get(&stream).cloned() {
            tables.graphs.events.insert(handle, (capture.graph, capture.last));
            return Ok(());
        }
        tables.graphs.events.remove(&handle);
    }
    record_in(&found, handle)
}

/// Records an event in a stream.
pub(super) fn record_in(stream: &Arc<Stream>, handle: usize) -> Outcome {
    let (context, event) = event(handle)?;
    record_behind(stream, &context, &event, |_| true)
}

/// The same behind what it is to wait for there.
fn record_behind(
    stream: &Arc<Stream>,
    context: &Arc<Context>,
    event: &Arc<Event>,
    is_done: impl Fn(&State) -> bool + Send + 'static,
) -> Outcome {
    let reached = Arc::new(Mutex::new(None));
    let own = Arc::clone(&reached);
    let operation = move |context: &Context| {
        context.wait_until(is_done)?;
        *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    };
    let mut last = event.ticket.lock().unwrap_or_else(PoisonError::into_inner);
    *last = Some(stream.enqueue(context, Box::new(operation))?);
    *event.reached.lock().unwrap_or_else(PoisonError::into_inner) = reached;
    Ok(())
}

/// A context that is whole and captures nothing, by its handle, and an event of it. (Events of other contexts may be waited
/// for with NVIDIA's driver; here they are not.)
fn of_context(context: usize, handle: usize) -> Outcome<(Arc<Context>, Arc<Event>)> {
    unsafe_call()?;
    let driver = driver()?;
    let context = driver.tables().contexts.get(&context).cloned().ok_or(Code::INVALID_CONTEXT)?;
    context.check()?;
    let event = find(driver, handle)?;
    let is_captured = {
        let tables = driver.tables();
        let state = context.state();
        tables.graphs.captures.keys().any(|stream| state.streams.contains_key(stream))
    };
    match event.is_of(&context) {
        _ if is_captured => Err(Code::STREAM_CAPTURE_UNSUPPORTED),
        true => Ok((context, event)),
        false => Err(Code::INVALID_HANDLE),
    }
}

fn record_for(context: &Arc<Context>, event: &Arc<Event>) -> Outcome {
    let known = context.state().streams.get(&FOR_CONTEXT).cloned();
    let stream = known.map_or_else(|| Stream::start(context, FOR_CONTEXT, NON_BLOCKING, 0), Ok)?;
    let goal: Vec<Ticket> = context.tickets().into_iter().filter(|ticket| ticket.stream != FOR_CONTEXT).collect();
    record_behind(&stream, context, event, move |state| goal.iter().all(|&ticket| state.has_reached(ticket)))
}

fn elapsed(milliseconds: &Out<f32>, start: usize, end: usize) -> Outcome {
    let reached = |handle| {
        let (_, event) = event(handle)?;
        let ticket = event.ticket.lock().unwrap_or_else(PoisonError::into_inner);
        ticket.filter(|_| event.has_time).ok_or(Code::INVALID_HANDLE)?;
        let reached = Arc::clone(&event.reached.lock().unwrap_or_else(PoisonError::into_inner));
        let reached = *reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.ok_or(Code::NOT_READY)
    };
    let (start, end): (Instant, Instant) = (reached(start)?, reached(end)?);
    let time = match end.checked_duration_since(start) {
        Some(time) => time.as_secs_f32(),
        None => -start.duration_since(end).as_secs_f32(),
    };
    milliseconds.put(time * 1000.0)
}

entry_points! {
    fn cuEventCreate(handle: Out<usize>, flags: c_uint) {
        let (driver, context) = current()?;
        let mut tables = driver.tables();
        let number = tables.spare_events.pop().unwrap_or_else(|| driver.new_handle());
        tables.events.insert(number, Arc::new(Event::new(&context, flags & WITHOUT_TIME == 0)));
        handle.put(number)
    }

    fn cuEventDestroy_v2(handle: usize) {
        let (driver, _) = current()?;
        let mut tables = driver.tables();
        tables.events.remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        tables.graphs.events.remove(&handle);
        tables.spare_events.push(handle);
        Ok(())
    }

    fn cuEventRecord(handle: usize, stream: usize) {
        record(handle, stream)
    }

    fn cuEventRecordWithFlags(handle: usize, stream: usize, _flags: c_uint) {
        record(handle, stream)
    }

    // It comes when all is done that the context has now.
    fn cuCtxRecordEvent(context: usize, handle: usize) {
        let (context, event) = of_context(context, handle)?;
        record_for(&context, &event)
    }

    fn cuCtxWaitEvent(context: usize, handle: usize) {
        let (context, event) = of_context(context, handle)?;
        let Some(ticket) = ticket(&event) else { return Ok(()) };
        context.update(|state| state.awaited.push(ticket));
        Ok(())
    }

    fn cuEventQuery(handle: usize) {
        unsafe_call()?;
        let (context, event) = event(handle)?;
        ticket(&event).map_or(Ok(()), |ticket| context.ask(ticket))
    }

    fn cuEventSynchronize(handle: usize) {
        unsafe_call()?;
        let (context, event) = event(handle)?;
        let Some(ticket) = ticket(&event) else { return Ok(()) };
        context.wait_until(|state| state.has_reached(ticket))
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) {
        elapsed(&milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: usize, end: usize) {
        elapsed(&milliseconds, start, end)
    }
}
