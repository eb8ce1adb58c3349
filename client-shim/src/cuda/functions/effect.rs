//! What a function of the driver does to the work of a stream, so that it is known what was done when the context died.

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
    /// Gives the work of a whole graph to a stream. When it fails, part of the work may have been given.
    LaunchesGraph,
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
        for (name, arguments) in functions::texts() {
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
            ("cuGraphLaunch_ptsz", Effect::LaunchesGraph),
            ("cuMemAlloc_v2", Effect::None),
            ("cuCtxGetCurrent", Effect::Silent),
        ] {
            assert_eq!(effect(name), expected, "{name}");
        }
    }
}
