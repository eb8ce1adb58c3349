//! Events.

use super::capture::unsafe_call;
use crate::abi::{Out, entry_points};
use crate::codes::{Code, Outcome};
use crate::context::{Context, Ticket};
use crate::contexts::current;
use crate::driver::Driver;
use crate::stream::{Event, NULL_STREAM, Stream};
use std::ffi::c_uint;
use std::sync::{Arc, PoisonError};
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

/// The event, in a context that is the current one and whole.
fn event(handle: usize) -> Outcome<(Arc<Context>, Arc<Event>)> {
    let (driver, context) = current()?;
    let event = find(driver, handle)?;
    // One made before a reset belongs to a context that is gone, whatever has its handle now.
    if event.is_of(&context) { Ok((context, event)) } else { Err(Code::CONTEXT_IS_DESTROYED) }
}

fn record(handle: usize, stream: usize) -> Outcome {
    let (driver, context) = current()?;
    let found = super::stream::find(&context, stream)?;
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
    let reached = Arc::clone(&event.reached);
    *reached.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let operation = move |_: &Context| {
        *reached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    };
    let ticket = stream.enqueue(&context, Box::new(operation))?;
    *event.ticket.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticket);
    Ok(())
}

fn elapsed(milliseconds: &Out<f32>, start: usize, end: usize) -> Outcome {
    let reached = |handle| {
        let (_, event) = event(handle)?;
        ticket(&event).filter(|_| event.has_time).ok_or(Code::INVALID_HANDLE)?;
        let reached = *event.reached.lock().unwrap_or_else(PoisonError::into_inner);
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

    // It comes when all work of the context is done, which is waited for here.
    fn cuCtxRecordEvent(context: usize, handle: usize) {
        unsafe_call()?;
        let (_, current) = current()?;
        if context != current.handle {
            return Err(Code::INVALID_CONTEXT);
        }
        current.drain()?;
        record(handle, NULL_STREAM)
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
