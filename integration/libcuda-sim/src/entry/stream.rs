//! Streams.

use crate::abi::{In, Out, entry_points};
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::contexts::current;
use crate::driver::Driver;
use crate::graphs::{Capture, Task};
use crate::stream::{NON_BLOCKING, NULL_STREAM, Stream};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// `CU_STREAM_LEGACY`: the null stream by another name.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`: each thread has one of its own in each context.
pub(super) const PER_THREAD: usize = 2;

/// `CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW`, `…_SYNCHRONIZATION_POLICY`, `…_PRIORITY`, `…_MEM_SYNC_DOMAIN_MAP`,
/// `…_MEM_SYNC_DOMAIN`: what streams have.
const ATTRIBUTES: [c_uint; 5] = [1, 3, 8, 9, 10];

/// What a stream's attributes are found by: its handle, or that of the context for its default stream.
fn attributes_of(handle: usize) -> Outcome<(&'static Driver, usize)> {
    let (driver, context, _) = stream(handle)?;
    let is_default = matches!(handle, NULL_STREAM | LEGACY | PER_THREAD);
    Ok((driver, if is_default { context.handle } else { handle }))
}

/// A stream of the current context.
pub(super) fn find(context: &Arc<Context>, handle: usize) -> Outcome<Arc<Stream>> {
    if handle == PER_THREAD {
        return crate::stream::of_this_thread(context, || Ok(crate::driver::driver()?.new_handle()));
    }
    let handle = if handle == LEGACY { NULL_STREAM } else { handle };
    context.state().streams.get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
}

/// The stream and its context, which need not be the current one; one made before a reset is dead.
pub(super) fn stream(handle: usize) -> Outcome<(&'static Driver, Arc<Context>, Arc<Stream>)> {
    let (driver, context) = current()?;
    let error = match find(&context, handle) {
        Ok(stream) => return Ok((driver, context, stream)),
        Err(error) => error,
    };
    let other = {
        let tables = driver.tables();
        let of = tables.streams.get(&handle).ok_or(error)?;
        tables.contexts.get(of).cloned().ok_or(Code::CONTEXT_IS_DESTROYED)?
    };
    other.check()?;
    let found = find(&other, handle).map_err(|_| Code::CONTEXT_IS_DESTROYED)?;
    Ok((driver, other, found))
}

fn create(handle: &Out<usize>, flags: c_uint, priority: c_int) -> Outcome {
    let (driver, context) = current()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let spare = driver.tables().spare_streams.pop();
    let number = spare.unwrap_or_else(|| driver.new_handle());
    Stream::start(&context, number, flags, priority)?;
    driver.tables().streams.insert(number, context.handle);
    handle.put(number)
}

/// Has a stream wait for an event.
pub(super) fn wait_in(context: &Arc<Context>, stream: &Arc<Stream>, event: usize) -> Outcome {
    let event = super::event::find(crate::driver::driver()?, event)?;
    let Some(ticket) = super::event::ticket(&event) else { return Ok(()) };
    if !event.is_of(context) {
        return Err(Code::CONTEXT_IS_DESTROYED);
    }
    let operation = move |context: &Context| context.wait_until(|state| state.has_reached(ticket));
    stream.enqueue(context, Box::new(operation)).map(drop)
}

fn synchronize(handle: usize) -> Outcome {
    let (_, context, stream) = stream(handle)?;
    let ticket = stream.ticket(&context);
    context.wait_until(|state| state.has_reached(ticket))
}

fn query(handle: usize) -> Outcome {
    let (_, context, stream) = stream(handle)?;
    let ticket = stream.ticket(&context);
    context.ask(ticket)
}

entry_points! {
    fn cuStreamCreate(handle: Out<usize>, flags: c_uint) {
        create(&handle, flags, 0)
    }

    fn cuStreamCreateWithPriority(handle: Out<usize>, flags: c_uint, priority: c_int) {
        create(&handle, flags, priority)
    }

    fn cuStreamDestroy_v2(handle: usize) {
        if handle == NULL_STREAM {
            return Err(Code::INVALID_HANDLE);
        }
        let (driver, context, stream) = stream(handle)?;
        {
            let mut tables = driver.tables();
            tables.streams.remove(&handle);
            tables.stream_attributes.retain(|(of, _), _| *of != handle);
        }
        // Its work still gets done, and whoever waits for that work still can.
        stream.close();
        let is_idle = context.update(|state| {
            state.streams.remove(&handle);
            state.progress.get(&handle).is_none_or(|progress| progress.completed == progress.submitted)
        });
        if is_idle {
            driver.tables().spare_streams.push(handle);
        }
        Ok(())
    }

    fn cuStreamSynchronize(handle: usize) {
        synchronize(handle)
    }

    fn cuStreamQuery(handle: usize) {
        query(handle)
    }

    fn cuStreamWaitEvent(handle: usize, event: usize, _flags: c_uint) {
        let (driver, context, stream) = stream(handle)?;
        {
            let mut tables = driver.tables();
            if let Some((graph, last)) = tables.graphs.events.get(&event).cloned() {
                // The stream comes after what the event was recorded after, and is of that capture from now on.
                let context = context.handle;
                let joined = Capture { graph, context, last: Vec::new(), begun: None, is_broken: false };
                let capture = tables.graphs.captures.entry(handle).or_insert(joined);
                if capture.graph != graph {
                    return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
                }
                let more: Vec<usize> = last.into_iter().filter(|node| !capture.last.contains(node)).collect();
                capture.last.extend(more);
                return Ok(());
            }
        }
        if driver.is_captured(handle, &Task::Wait(event))? {
            return Ok(());
        }
        wait_in(&context, &stream, event)
    }

    fn cuStreamSetAttribute(handle: usize, attribute: c_uint, value: In<[u64; 8]>) {
        let (driver, of) = attributes_of(handle)?;
        if !ATTRIBUTES.contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        driver.tables().stream_attributes.insert((of, attribute), value.get()?);
        Ok(())
    }

    fn cuStreamGetAttribute(handle: usize, attribute: c_uint, value: Out<[u64; 8]>) {
        let (driver, of) = attributes_of(handle)?;
        if !ATTRIBUTES.contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        value.put(driver.tables().stream_attributes.get(&(of, attribute)).copied().unwrap_or_default())
    }

    fn cuStreamCopyAttributes(to: usize, from: usize) {
        let ((driver, to), (_, from)) = (attributes_of(to)?, attributes_of(from)?);
        let mut tables = driver.tables();
        for attribute in ATTRIBUTES {
            let value = tables.stream_attributes.get(&(from, attribute)).copied().unwrap_or_default();
            tables.stream_attributes.insert((to, attribute), value);
        }
        Ok(())
    }

    fn cuStreamGetCtx(handle: usize, context_handle: Out<usize>) {
        let (_, context, _) = stream(handle)?;
        context_handle.put(context.handle)
    }

    fn cuStreamGetId(handle: usize, id: Out<u64>) {
        let (_, _, stream) = stream(handle)?;
        id.put(stream.id)
    }

    fn cuStreamGetFlags(handle: usize, flags: Out<c_uint>) {
        let (_, _, stream) = stream(handle)?;
        flags.put(stream.flags)
    }

    fn cuStreamGetPriority(handle: usize, priority: Out<c_int>) {
        let (_, _, stream) = stream(handle)?;
        priority.put(stream.priority)
    }

    fn cuStreamAddCallback(
        handle: usize,
        function: Option<extern "C" fn(usize, c_int, *mut c_void)>,
        data: usize,
        flags: c_uint
    ) {
        let (driver, context, stream) = stream(handle)?;
        let function = function.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
        if driver.tables().graphs.captures.contains_key(&handle) {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let operation = move |_: &Context| {
            function(handle, 0, std::ptr::with_exposed_provenance_mut(data));
            Ok(())
        };
        stream.enqueue(&context, Box::new(operation)).map(drop)
    }

    fn cuLaunchHostFunc(handle: usize, function: Option<extern "C" fn(*mut c_void)>, data: usize) {
        let (driver, context, stream) = stream(handle)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        if driver.is_captured(handle, &Task::Host([(function as *const c_void).expose_provenance(), data]))? {
            return Ok(());
        }
        let operation = move |_: &Context| {
            function(std::ptr::with_exposed_provenance_mut(data));
            Ok(())
        };
        stream.enqueue(&context, Box::new(operation)).map(drop)
    }
}
