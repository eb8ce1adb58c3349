//! What a function of the driver does to the work of a stream, so that it is known what was done when the context died.

/// What a call does to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that matters here: it makes, asks or ends something. Programs ignore its errors, so lost work is not told
    /// by it.
    None,
    /// Gives work to a stream: a copy or a set, which may be done again.
    Submits,
    /// Gives a kernel or a function to a stream.
    Launches,
    /// Gives the work of a whole graph, or of a list, to a stream. When it fails, part of the work may have been given.
    SubmitsMany,
    /// Gives work to streams that its arguments do not name.
    SubmitsElsewhere,
    /// A copy that ends before the call does, with all that the default stream had before it.
    CopiesToHost,
    /// Success says that a stream has done its work.
    FinishesStream,
    /// Success says that an event has come.
    FinishesEvent,
    /// Success says that all streams of a context have done their work: of its argument, or of the current one.
    FinishesContext,
    /// Puts an event behind a stream's work.
    RecordsEvent,
    /// Puts an event behind the work of all streams of a context.
    RecordsContext,
    /// Puts an event behind work that is not known here: a graph does it whenever it is launched, or it is that of a green
    /// context.
    RecordsEventElsewhere,
    /// Has a stream, or a whole context, wait for an event.
    WaitsForEvent,
    /// Ends an event.
    EndsEvent,
    /// The time between two events, which are not recorded again after a recovery.
    ReadsEvents,
    /// Ends a stream, whose work goes on.
    EndsStream,
}

impl Effect {
    /// Whether such a call gives work.
    pub(crate) fn gives_work(self) -> bool {
        match self {
            Self::Submits | Self::Launches | Self::SubmitsMany | Self::SubmitsElsewhere | Self::CopiesToHost => true,
            Self::None
            | Self::FinishesStream
            | Self::FinishesEvent
            | Self::FinishesContext
            | Self::RecordsEvent
            | Self::RecordsContext
            | Self::RecordsEventElsewhere
            | Self::WaitsForEvent
            | Self::EndsEvent
            | Self::ReadsEvents
            | Self::EndsStream => false,
        }
    }

    /// Whether the program hears of lost work from such a call: it gives work, waits, asks how far some is, or puts an
    /// event behind some, which others may wait for. The errors of all others are ignored by many programs, and would be
    /// told to nobody.
    pub(crate) fn tells(self) -> bool {
        match self {
            Self::FinishesStream
            | Self::FinishesEvent
            | Self::FinishesContext
            | Self::RecordsEvent
            | Self::RecordsContext
            | Self::WaitsForEvent
            | Self::ReadsEvents => true,
            Self::None | Self::RecordsEventElsewhere | Self::EndsEvent | Self::EndsStream => false,
            Self::Submits | Self::Launches | Self::SubmitsMany | Self::SubmitsElsewhere | Self::CopiesToHost => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Effect;
    use crate::cuda::functions;

    /// By the name as written in the table.
    fn effect(name: &str) -> Effect {
        let function = functions::all().find(|function| function.name.to_bytes() == name.as_bytes()).expect(name);
        function.effect()
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
        for (name, arguments) in functions::texts() {
            if arguments.contains("CUstream)") || arguments.contains("CUstream,") {
                let is_harmless = harmless.iter().any(|prefix| name.starts_with(prefix));
                assert_eq!(matches!(effect(name), Effect::None), is_harmless, "{name}");
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
            ("cuEventElapsedTime", Effect::ReadsEvents),
            ("cuEventElapsedTime_v2", Effect::ReadsEvents),
            ("cuMemcpyDtoH_v2", Effect::CopiesToHost),
            ("cuMemcpyDtoHAsync_v2", Effect::Submits),
            ("cuMemsetD8_v2", Effect::Submits),
            ("cuLaunchKernelEx", Effect::Launches),
            ("cuGraphLaunch_ptsz", Effect::SubmitsMany),
            ("cuMemAlloc_v2", Effect::None),
            ("cuCtxGetCurrent", Effect::None),
        ] {
            assert_eq!(effect(name), expected, "{name}");
        }
    }

    #[test]
    fn what_ends_or_asks_tells_nothing_and_what_gives_or_waits_does() {
        let silent = [
            "cuMemFree",
            "cuMemAlloc",
            "cuMemHost",
            "cuMemUnmap",
            "cuMemRelease",
            "cuMemAddressFree",
            "cuPointerGet",
            "cuEventDestroy",
            "cuEventCreate",
            "cuStreamDestroy",
            "cuStreamCreate",
            "cuStreamGet",
            "cuModule",
            "cuLibrary",
            "cuDevice",
            "cuCtxGet",
            "cuCtxSet",
            "cuCtxPush",
            "cuCtxPop",
            "cuCtxDestroy",
            "cuGraphDestroy",
            "cuGraphExecDestroy",
            "cuGraphAdd",
            "cuFuncGet",
            "cuKernelGet",
            "cuOccupancy",
            "cuIpc",
            "cuTexObject",
            "cuArrayDestroy",
            "cuMipmappedArrayDestroy",
            "cuMemPoolDestroy",
            "cuGreenCtxDestroy",
            "cuUserObject",
            "cuGetExportTable",
        ];
        let telling = [
            "cuLaunch",
            "cuMemcpy",
            "cuMemset",
            "cuMemPrefetch",
            "cuStreamSynchronize",
            "cuStreamQuery",
            "cuStreamWait",
            "cuStreamWrite",
            "cuStreamBatch",
            "cuEventRecord",
            "cuEventQuery",
            "cuEventSynchronize",
            "cuEventElapsedTime",
            "cuCtxSynchronize",
            "cuCtxRecordEvent",
            "cuCtxWaitEvent",
            "cuGraphLaunch",
            "cuGraphUpload",
        ];
        for function in functions::all() {
            let name = function.name.to_str().expect("names are ASCII");
            let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
            assert!(!(begins(&silent) && function.effect().tells()), "{name} tells");
            assert!(!begins(&telling) || function.effect().tells(), "{name} does not tell");
        }
    }

    #[test]
    fn a_copy_that_is_evidence_says_how_much_it_copies_and_nothing_else() {
        for (name, arguments) in functions::texts().filter(|(name, _)| effect(name) == Effect::CopiesToHost) {
            assert_eq!(arguments.matches(": usize").count(), 1, "{name}");
        }
    }

    #[test]
    fn whatever_takes_an_event_is_known_to_do_something_with_it() {
        for (name, arguments) in functions::texts().filter(|(_, arguments)| arguments.contains(": CUevent")) {
            let is_harmless = name.starts_with("cuIpcGetEvent") || name.contains("EventWaitNode");
            assert_eq!(effect(name) == Effect::None, is_harmless, "{name} {arguments}");
        }
    }
}
