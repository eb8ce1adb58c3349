//! What each of the driver's functions does to the work of a stream, so that it is known what was done when the context
//! died.

use crate::api::Class;

/// What a call does to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing, and the program does not expect to hear of lost work from it.
    Silent,
    /// Nothing.
    None,
    /// Gives work to a stream: a copy or a set, which may be done again.
    Submits,
    /// Gives a kernel or a function to a stream.
    Launches,
    /// A copy that ends before the call does, with all that the default stream had before it.
    CopiesToHost,
    /// Success says that a stream has done its work.
    FinishesStream,
    /// Success says that an event has come.
    FinishesEvent,
    /// Success says that all streams of the current context have done their work.
    FinishesContext,
    /// Puts an event behind a stream's work.
    RecordsEvent,
    /// The time between two events, which are not recorded again after a recovery.
    ReadsEvents,
    /// Ends a stream, whose work goes on.
    EndsStream,
}

const fn begins(name: &[u8], with: &[u8]) -> bool {
    let mut at = 0;
    while at < with.len() {
        // Every name ends in NUL, which no prefix has.
        if name[at] != with[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl Effect {
    /// The effect of the function of this name, which ends in NUL.
    pub(crate) const fn of(name: &[u8], class: Class) -> Self {
        match class {
            Class::Lookup | Class::Query | Class::Other => Self::Silent,
            Class::Context if begins(name, b"cuCtxSynchronize") => Self::FinishesContext,
            Class::Context => Self::Silent,
            Class::Copy if begins(name, b"cuMemcpyDtoH_v2") => Self::CopiesToHost,
            Class::Copy => Self::Submits,
            Class::Kernel if begins(name, b"cuLaunch") => Self::Launches,
            Class::Graph if begins(name, b"cuGraphLaunch") || begins(name, b"cuGraphUpload") => Self::Launches,
            Class::Stream if begins(name, b"cuStreamSynchronize") || begins(name, b"cuStreamQuery") => {
                Self::FinishesStream
            }
            Class::Stream if begins(name, b"cuStreamDestroy") => Self::EndsStream,
            Class::Stream if begins(name, b"cuStreamAddCallback") => Self::Launches,
            Class::Stream
                if begins(name, b"cuStreamBatchMemOp")
                    || begins(name, b"cuStreamWriteValue")
                    || begins(name, b"cuStreamWaitValue")
                    || begins(name, b"cuStreamAttachMemAsync") =>
            {
                Self::Submits
            }
            Class::Event if begins(name, b"cuEventSynchronize") || begins(name, b"cuEventQuery") => Self::FinishesEvent,
            Class::Event if begins(name, b"cuEventRecord") => Self::RecordsEvent,
            Class::Event if begins(name, b"cuEventElapsedTime") => Self::ReadsEvents,
            Class::External if begins(name, b"cuSignalExternal") || begins(name, b"cuWaitExternal") => Self::Launches,
            Class::Memory
            | Class::Mapping
            | Class::Pool
            | Class::Host
            | Class::Ipc
            | Class::Stream
            | Class::Event
            | Class::Module
            | Class::Library
            | Class::Kernel
            | Class::Graph
            | Class::Array
            | Class::External => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Effect;
    use crate::api;

    /// By the name as written in the table.
    fn effect(name: &str) -> Effect {
        let hook = api::hooks().find(|hook| hook.name.to_bytes() == name.as_bytes()).expect(name);
        hook.effect()
    }

    #[test]
    fn whatever_gives_work_to_a_stream_is_known_to() {
        // By argument: what takes a stream and is none of those that do not give it work.
        let harmless = [
            "cuStreamGet",
            "cuStreamIsCapturing",
            "cuStreamBegin",
            "cuStreamEnd",
            "cuStreamSetAttribute",
            "cuStreamCopyAttributes",
            "cuStreamUpdateCapture",
            "cuStreamWaitEvent",
            "cuMemAllocAsync",
            "cuMemAllocFromPoolAsync",
            "cuMemFreeAsync",
            "cuMemMapArrayAsync",
            "cuGraphInstantiate",
            "cuGraphicsMap",
            "cuGraphicsUnmap",
            "cuStreamCreate",
            "cuGreenCtxStreamCreate",
        ];
        for (name, arguments) in api::texts() {
            if arguments.contains("CUstream)") || arguments.contains("CUstream,") {
                let is_harmless = harmless.iter().any(|prefix| name.starts_with(prefix));
                assert_eq!(matches!(effect(name), Effect::None | Effect::Silent), is_harmless, "{name}");
            }
        }
    }

    #[test]
    fn what_finishes_work_is_known() {
        for (name, expected) in [
            ("cuStreamSynchronize_ptsz", Effect::FinishesStream),
            ("cuStreamQuery", Effect::FinishesStream),
            ("cuCtxSynchronize", Effect::FinishesContext),
            ("cuEventQuery", Effect::FinishesEvent),
            ("cuMemcpyDtoH_v2", Effect::CopiesToHost),
            ("cuMemcpyDtoHAsync_v2", Effect::Submits),
            ("cuMemsetD8_v2", Effect::Submits),
            ("cuLaunchKernelEx", Effect::Launches),
            ("cuMemAlloc_v2", Effect::None),
            ("cuCtxGetCurrent", Effect::Silent),
        ] {
            assert_eq!(effect(name), expected, "{name}");
        }
    }
}
