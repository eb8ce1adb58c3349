//! Which answers of the driver mean that the context is dead and a recovery may help.
//!
//! The numbers are those of NVIDIA's `CUresult`; which of them stay until the process ends is documented with them
//! ("the process must be terminated and relaunched"), and 46, 805, 806 and 807 were seen on a dead process or server
//! (`recovery-findings` 1 and 4).
#![expect(unsafe_code, reason = "asks the driver")]

use crate::cuda::{result::CUresult, types::CUstream};

/// What an answer says about the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is dead.
    Dead,
    /// It may be: a healthy context is asked, and answers.
    Perhaps,
    /// It is dead, and must stay so, for this reason.
    ForGood(&'static str),
}

/// The answers that have a meaning here. All others pass.
const MEANINGS: [(u32, Meaning); 21] = [
    // A device that is busy; what is left of a process after its own fault.
    (46, Meaning::Perhaps),
    (214, Meaning::ForGood("memory of the GPU is damaged (214)")),
    (220, Meaning::ForGood("a link of the GPU is damaged (220)")),
    // An access of a peer's memory over NVLink, or an error of the hardware: nobody says which.
    (226, Meaning::ForGood("the GPU has contained an error of its own or of a peer's (226)")),
    // An address outside of what is mapped.
    (700, Meaning::Dead),
    // A kernel that ran for too long.
    (702, Meaning::Dead),
    // Also what the program has destroyed itself.
    (709, Meaning::Perhaps),
    // A failed assertion.
    (710, Meaning::Dead),
    // Kernel stack, instruction, alignment, address space, program counter, launch.
    (714, Meaning::Dead),
    (715, Meaning::Dead),
    (716, Meaning::Dead),
    (717, Meaning::Dead),
    (718, Meaning::Dead),
    (719, Meaning::Dead),
    // Tensor memory that was not given back.
    (721, Meaning::Dead),
    (802, Meaning::ForGood("the GPU is not ready for CUDA (802)")),
    // No daemon; a dead server; one that is recovering.
    (805, Meaning::Perhaps),
    (806, Meaning::Dead),
    (807, Meaning::Perhaps),
    // The operator wants the program to end.
    (810, Meaning::ForGood("the operator has terminated this client (810)")),
    (999, Meaning::Perhaps),
];

/// Answers that a context's own channel gives: nothing of it runs any more.
const OF_THE_CHANNEL: [u32; 10] = [700, 702, 710, 714, 715, 716, 717, 718, 719, 721];

/// Whether a context that answers so has nothing left that runs. Where its server has died (806) something may, as long
/// as the server is not reaped: 128 ms, measured on an H200 with 580.159.04.
pub(crate) fn is_at_rest(answer: CUresult) -> bool {
    OF_THE_CHANNEL.contains(&answer.0)
}

/// What an answer means.
#[inline(always)]
pub(crate) fn meaning(answer: CUresult) -> Option<Meaning> {
    // Nearly every answer is none of them: success is 0, a wrong argument 1, and what is not ready 600.
    if answer.0 < 46 || answer.0 == 600 { None } else { listed(answer) }
}

#[cold]
fn listed(answer: CUresult) -> Option<Meaning> {
    MEANINGS.iter().find(|(code, _)| *code == answer.0).map(|(_, meaning)| *meaning)
}

/// Whether the context is dead after this answer: one that may mean something else is confirmed by a question about the
/// default stream, which a healthy context answers with success, or that it is not ready.
pub(crate) fn is_confirmed(meaning: Meaning) -> bool {
    match meaning {
        Meaning::Dead | Meaning::ForGood(_) => true,
        Meaning::Perhaps => {
            let again = driver!(stream::cuStreamQuery(CUstream(0)));
            matches!(self::meaning(again), Some(Meaning::Dead | Meaning::ForGood(_)))
                // A process that can have no context any longer says so again.
                || again == CUresult(46)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MEANINGS, Meaning, OF_THE_CHANNEL, is_at_rest, meaning};
    use crate::cuda::result::CUresult;

    #[test]
    fn ordinary_answers_mean_nothing() {
        // Success, argument, memory, not initialised, context, handle, not found, not ready, launch too large, refused.
        for code in [0, 1, 2, 3, 101, 201, 304, 400, 500, 600, 701, 704, 708, 720, 800, 801, 900, 901] {
            assert_eq!(meaning(CUresult(code)), None, "{code}");
        }
        assert_eq!(meaning(CUresult(700)), Some(Meaning::Dead));
    }

    #[test]
    fn only_a_dead_context_is_at_rest_and_none_whose_server_has_died() {
        for answer in OF_THE_CHANNEL {
            assert_eq!(meaning(CUresult(answer)), Some(Meaning::Dead), "{answer}");
        }
        assert!([0, 46, 600, 709, 805, 806, 807, 999].iter().all(|answer| !is_at_rest(CUresult(*answer))));
    }

    #[test]
    fn each_answer_is_there_once_and_is_one_of_the_headers() {
        use cudarc::driver::sys::CUresult as Header;
        assert!(MEANINGS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let of_header = [
            (Header::CUDA_ERROR_ILLEGAL_ADDRESS, Meaning::Dead),
            (Header::CUDA_ERROR_LAUNCH_TIMEOUT, Meaning::Dead),
            (Header::CUDA_ERROR_ASSERT, Meaning::Dead),
            (Header::CUDA_ERROR_HARDWARE_STACK_ERROR, Meaning::Dead),
            (Header::CUDA_ERROR_ILLEGAL_INSTRUCTION, Meaning::Dead),
            (Header::CUDA_ERROR_MISALIGNED_ADDRESS, Meaning::Dead),
            (Header::CUDA_ERROR_INVALID_ADDRESS_SPACE, Meaning::Dead),
            (Header::CUDA_ERROR_INVALID_PC, Meaning::Dead),
            (Header::CUDA_ERROR_LAUNCH_FAILED, Meaning::Dead),
            (Header::CUDA_ERROR_TENSOR_MEMORY_LEAK, Meaning::Dead),
            (Header::CUDA_ERROR_MPS_RPC_FAILURE, Meaning::Dead),
            (Header::CUDA_ERROR_CONTEXT_IS_DESTROYED, Meaning::Perhaps),
            (Header::CUDA_ERROR_MPS_CONNECTION_FAILED, Meaning::Perhaps),
            (Header::CUDA_ERROR_MPS_SERVER_NOT_READY, Meaning::Perhaps),
            (Header::CUDA_ERROR_UNKNOWN, Meaning::Perhaps),
        ];
        for (code, expected) in of_header {
            assert_eq!(meaning(CUresult(code as u32)), Some(expected), "{code:?}");
        }
        for code in [
            Header::CUDA_ERROR_ECC_UNCORRECTABLE,
            Header::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            Header::CUDA_ERROR_CONTAINED,
            Header::CUDA_ERROR_MPS_CLIENT_TERMINATED,
        ] {
            let is_for_good =
                |meaning| matches!(meaning, Meaning::ForGood(why) if why.contains(&(code as u32).to_string()));
            assert!(meaning(CUresult(code as u32)).is_some_and(is_for_good), "{code:?}");
        }
    }
}
