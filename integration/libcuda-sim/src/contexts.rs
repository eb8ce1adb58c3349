//! Which context is current on a thread, and the life of contexts.

use crate::allocations::Owner;
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::driver::{Driver, driver};
use crate::stream::{NULL_STREAM, Stream};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

thread_local! {
    // Never dropped: a program's exit handlers run when its main thread's locals are gone, and may still ask.
    static STACK: RefCell<ManuallyDrop<Vec<usize>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// Handle of the current context.
pub(crate) fn current_handle() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied())
}

/// Makes a context current in place of the one that is.
pub(crate) fn set_current(handle: Option<usize>) {
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend(handle);
    });
}

/// Makes a context current on top of the one that is.
pub(crate) fn push(handle: usize) {
    STACK.with_borrow_mut(|stack| stack.push(handle));
}

/// Takes the current one off.
pub(crate) fn pop() -> Option<usize> {
    STACK.with_borrow_mut(|stack| stack.pop())
}

/// The current context and the driver, whether or not the context has failed.
pub(crate) fn current_or_failed() -> Outcome<(&'static Driver, Arc<Context>)> {
    let driver = driver()?;
    let handle = current_handle().ok_or(Code::INVALID_CONTEXT)?;
    let context = driver.tables().contexts.get(&handle).map(Arc::clone);
    Ok((driver, context.ok_or(Code::CONTEXT_IS_DESTROYED)?))
}

/// The current context and the driver.
///
/// # Errors
/// The context's sticky error, if it has one.
pub(crate) fn current() -> Outcome<(&'static Driver, Arc<Context>)> {
    let (driver, context) = current_or_failed()?;
    context.check()?;
    Ok((driver, context))
}

impl Driver {
    /// Makes a context with its null stream; one that can't have it is not kept.
    pub(crate) fn create_context(&'static self, handle: usize, device: u32) -> Outcome<Arc<Context>> {
        let context = self.make_context(handle, device)?;
        if let Err(error) = Stream::start(&context, NULL_STREAM, 0, 0) {
            self.destroy_context(handle);
            return Err(error);
        }
        Ok(context)
    }

    /// Makes the context of a green context, which is not told to the daemon: it works in the channel of the primary one.
    pub(crate) fn make_green(&'static self, device: u32) -> Outcome<usize> {
        let home = self.retain_primary(device)?;
        let handle = self.new_handle();
        let mut context = Context::new(handle, device, 100.0, None);
        context.home = home;
        let context = self.insert(context);
        Stream::start(&context, NULL_STREAM, 0, 0)?;
        Ok(handle)
    }

    /// Handle of a device's primary context: the same for the life of the process.
    pub(crate) fn primary_handle(device: u32) -> usize {
        crate::copies::first_handle() + usize::try_from(device).expect("an ordinal is small") * 0x1000
    }

    /// `cuDevicePrimaryCtxRetain`.
    pub(crate) fn retain_primary(&'static self, device: u32) -> Outcome<usize> {
        let handle = Self::primary_handle(device);
        let existing = self.tables().contexts.get(&handle).map(Arc::clone);
        match existing {
            Some(context) => context.check()?,
            None => drop(self.create_context(handle, device)?),
        }
        self.tables().primaries.entry(device).or_default().count += 1;
        Ok(handle)
    }

    /// `cuDevicePrimaryCtxRelease`: the last one destroys it.
    pub(crate) fn release_primary(&self, device: u32) -> Outcome {
        let is_last = {
            let mut tables = self.tables();
            let primary = tables.primaries.entry(device).or_default();
            primary.count = primary.count.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
            primary.count == 0
        };
        if is_last {
            self.destroy_context(Self::primary_handle(device));
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxReset`: destroys it, however often it is retained.
    pub(crate) fn reset_primary(&self, device: u32) {
        self.tables().primaries.entry(device).or_default().count = 0;
        self.destroy_context(Self::primary_handle(device));
    }

    /// Ends a context and frees what it owns; whether there was one.
    pub(crate) fn destroy_context(&self, handle: usize) -> bool {
        let Some(context) = self.tables().contexts.remove(&handle) else { return false };
        // Its kernels have ended when this returns, so the memory can go.
        context.destroy();
        let stored: Vec<_> = self.tables().storage.extract_if(|(of, _), _| *of == handle).collect();
        for ((_, key), (value, ended)) in stored {
            if let Some(ended) = ended {
                ended(handle, key, value);
            }
        }
        let mut tables = self.tables();
        for (bytes, size) in tables.arrays.end(handle) {
            // One that is gone already needs nothing.
            let _unmapped = crate::vmm::unmap(bytes, size);
        }
        tables.graphs.end_captures(handle);
        tables.peers.retain(|(user, owner)| *user != handle && *owner != handle);
        tables.attached.remove(&handle);
        tables.context_limits.retain(|(of, _), _| *of != handle);
        tables.stream_attributes.retain(|(of, _), _| *of != handle);
        let owned: Vec<usize> = tables
            .ranges
            .0
            .iter()
            .filter(|(_, range)| range.owner.is_of(handle))
            .map(|(&address, _)| address)
            .collect();
        for address in owned {
            if matches!(tables.ranges.0.get(&address), Some(range) if matches!(range.owner, Owner::Registered { .. })) {
                tables.ranges.0.remove(&address);
                continue;
            }
            if let Ok(range) = tables.ranges.free(address)
                && matches!(range.owner, Owner::Context(_))
            {
                tables.used.remove(range.device, range.size as u64);
            }
        }
        let unloaded: Vec<_> = tables.modules.extract_if(|_, module| module.context == handle).collect();
        for (_, module) in unloaded {
            crate::variables::free(&mut tables, &module);
        }
        tables.libraries.values_mut().for_each(|library| {
            library.modules.remove(&handle);
        });
        tables.functions.retain(|_, (module, _)| module.context != handle);
        true
    }
}
