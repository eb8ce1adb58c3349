//! Classes of GPU fault, as injected by a kernel's name.

use std::time::Duration;

/// How long after the launch the other clients of the server learn of a fault, unless scripted otherwise; a real H200
/// takes 120 to 430 ms.
pub const SPREAD: Duration = Duration::from_millis(15);
/// How long after the launch a client learns of its own fault, unless scripted otherwise; a real H200 takes 9 to 16 ms
/// for all but memory faults.
pub const OWN: Duration = Duration::from_millis(5);
/// How long after the launch a client under MPS learns of its own memory fault or trap, unless scripted otherwise, when its
/// server has not told it by then: a real H200's culprit has the error of a memory fault when all have it, and the server's
/// log counts it among them; that of a trap when the server says that it is in fault. So long that a server that lives
/// always tells it first, however busy the machine is.
pub const OWN_TOLD: Duration = Duration::from_secs(60);
/// How long after the launch the tools device has the event of a memory fault, unless scripted otherwise; a real H200
/// takes 0.1 to 0.8 ms.
pub const EVENT: Duration = Duration::from_micros(300);

remps_proto::open_enum! {
    /// What a kernel did wrong; the number is the `CUresult` that those on the device see.
    pub struct FaultKind: u32 {
        /// Access to an address that is not mapped: Xid 31, `CUDA_ERROR_ILLEGAL_ADDRESS`.
        OUT_OF_BOUNDS = 700,
        /// A failed device-side assertion: `CUDA_ERROR_ASSERT`.
        ASSERT = 710,
        /// Misaligned access: Xid 13, `CUDA_ERROR_MISALIGNED_ADDRESS`.
        MISALIGNED = 716,
        /// Trap instruction: Xid 43, `CUDA_ERROR_LAUNCH_FAILED`.
        TRAP = 719,
    }
}

impl FaultKind {
    /// The kind that a kernel of this name brings about.
    #[must_use]
    pub fn of_kernel(name: &str) -> Option<Self> {
        Some(match name {
            "oob" => Self::OUT_OF_BOUNDS,
            "trap" => Self::TRAP,
            "misaligned" => Self::MISALIGNED,
            "assert" => Self::ASSERT,
            _ => return None,
        })
    }

    /// Whether it takes the other clients of the server along; a failed assertion was seen to end its client alone.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self != Self::ASSERT
    }

    /// Whether the culprit's own calls fail by themselves. Those after a misaligned access succeed: it may have ended
    /// with status 0 before the server notices.
    #[must_use]
    pub fn is_told_to_culprit(self) -> bool {
        self != Self::MISALIGNED
    }

    /// Whether a culprit under MPS learns of it no earlier than its server does.
    #[must_use]
    pub fn is_told_by_server(self) -> bool {
        self.is_shared() && self.is_told_to_culprit()
    }

    /// What the client gets that is told as the `place`th of `count`. Measured after a misaligned access: most have its
    /// own number and some that of a failed launch, in any order; here the last one has.
    #[must_use]
    pub fn seen_by(self, place: usize, count: usize) -> Self {
        if self == Self::MISALIGNED && place > 0 && place + 1 == count { Self::TRAP } else { self }
    }

    /// Whether the server's log says of the culprit's context that its worker is in reset.
    #[must_use]
    pub fn resets_worker(self) -> bool {
        matches!(self, Self::TRAP | Self::ASSERT)
    }

    /// Whether the kernel module sees it as a memory fault, which the server's log then announces with a pid.
    #[must_use]
    pub fn is_memory_fault(self) -> bool {
        self == Self::OUT_OF_BOUNDS
    }
}
