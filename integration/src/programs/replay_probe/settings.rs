//! What is set on a context, on its default stream and on streams: set once, and asked for in every round.
#![expect(unsafe_code, reason = "the driver's functions are unsafe")]

use crate::programs::gpu::{GpuError, Stream};
use crate::programs::memory_probe::check;
use cudarc::driver::sys::{self, CUlaunchAttributeID_enum as Attribute, CUlimit_enum as Limit};

/// `CU_CTX_SCHED_BLOCKING_SYNC`.
const FLAGS: u32 = 4;
/// Bytes of the heap of device code, and of what it prints.
const LIMITS: [(Limit, usize); 2] =
    [(Limit::CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20), (Limit::CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20)];
/// `CU_SYNC_POLICY_SPIN`, and one for the default stream: `CU_SYNC_POLICY_YIELD`.
const SPIN: u64 = 2;
const YIELD: u64 = 3;

/// The streams: the default one, one that is set, one that has got its attributes.
pub(super) struct Settings([sys::CUstream; 3]);

fn set(stream: sys::CUstream, value: u64) -> Result<(), GpuError> {
    let words = [value, 0, 0, 0, 0, 0, 0, 0_u64];
    let attribute = Attribute::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
    // SAFETY: a value has so many words.
    check("cuStreamSetAttribute", unsafe { sys::cuStreamSetAttribute(stream, attribute, words.as_ptr().cast()) })
}

fn found(stream: sys::CUstream) -> Result<u64, GpuError> {
    let mut words = [0_u64; 8];
    let (attribute, place) = (Attribute::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, words.as_mut_ptr());
    // SAFETY: a value has so many words.
    check("cuStreamGetAttribute", unsafe { sys::cuStreamGetAttribute(stream, attribute, place.cast()) })?;
    Ok(words[0] & u64::from(u32::MAX))
}

impl Settings {
    pub(super) fn new(streams: [Stream; 2]) -> Result<Self, GpuError> {
        let all = [std::ptr::null_mut(), streams[0].0, streams[1].0];
        // SAFETY: sets flags of the current context.
        check("cuCtxSetFlags", unsafe { sys::cuCtxSetFlags(FLAGS) })?;
        for (limit, bytes) in LIMITS {
            // SAFETY: no kernel uses either yet.
            check("cuCtxSetLimit", unsafe { sys::cuCtxSetLimit(limit, bytes) })?;
        }
        set(all[0], YIELD)?;
        set(all[1], SPIN)?;
        // SAFETY: both live as long as the process.
        check("cuStreamCopyAttributes", unsafe { sys::cuStreamCopyAttributes(all[2], all[1]) })?;
        Ok(Self(all))
    }

    /// What is set to something else now.
    pub(super) fn wrong(&self) -> Result<Vec<String>, GpuError> {
        let mut wrong = Vec::new();
        let mut flags = 0;
        // SAFETY: the result is a variable of ours.
        check("cuCtxGetFlags", unsafe { sys::cuCtxGetFlags(&raw mut flags) })?;
        if flags & FLAGS == 0 {
            wrong.push(format!("the context's flags are {flags}"));
        }
        for (limit, expected) in LIMITS {
            let mut bytes = 0;
            // SAFETY: the result is a variable of ours.
            check("cuCtxGetLimit", unsafe { sys::cuCtxGetLimit(&raw mut bytes, limit) })?;
            if bytes < expected {
                wrong.push(format!("{limit:?} is {bytes}"));
            }
        }
        for (stream, expected) in self.0.into_iter().zip([YIELD, SPIN, SPIN]) {
            let found = found(stream)?;
            if found != expected {
                wrong.push(format!("the policy of a stream is {found} in place of {expected}"));
            }
        }
        Ok(wrong)
    }
}
