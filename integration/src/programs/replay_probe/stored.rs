//! A value in the context, kept by the driver as cudart keeps its own, if the driver has a table for that.

use super::failed;
use crate::programs::gpu::GpuError;
use crate::programs::memory_probe::tables::{Storage, storage};

/// What the value is kept under, and the value.
const KEY: usize = 0x5e90;
const VALUE: usize = 0x1234_5678;

/// The value's place.
pub(super) struct Stored {
    storage: Option<&'static Storage>,
    /// The context that was current.
    context: usize,
}

impl Stored {
    /// Puts it in the current context, which has this handle.
    pub(super) fn put(context: usize) -> Result<Self, GpuError> {
        let storage = storage().ok();
        match storage.map_or(0, |storage| (storage.put)(0, KEY, VALUE, None)) {
            0 => Ok(Self { storage, context }),
            answer => Err(failed("context-local storage", answer)),
        }
    }

    /// What is wrong with it: it must be found in the current context and by the context's handle.
    pub(super) fn wrong(&self) -> Option<String> {
        let storage = self.storage?;
        let found = [0, self.context].map(|context| {
            let mut value = 0;
            ((storage.get)(&raw mut value, context, KEY), value)
        });
        (found != [(0, VALUE); 2]).then(|| format!("the stored value is {found:?}"))
    }
}
