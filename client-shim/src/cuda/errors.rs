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
const MEANINGS: [(u32, Meaning); 20] = [
    // A device that is busy; what is left of a process after its own fault.
    (46, Meaning::Perhaps),
    (214, Meaning::ForGood("memory of the GPU is damaged (214)")),
    (220, Meaning::ForGood("a link of the GPU is damaged (220)")),
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

/// What an answer means.
pub(crate) fn meaning(answer: CUresult) -> Option<Meaning> {
    // Nearly every answer is none of them: success is 0, a wrong argument 1, and what is not ready 600.
    if answer.0 < 46 || answer.0 == 600 {
        return None;
    }
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
    use super::{MEANINGS, Meaning, meaning};
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
    }
}
