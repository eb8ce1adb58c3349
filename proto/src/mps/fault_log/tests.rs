//! Records of the server's log, in the words of real ones.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Option<(Phrase, Option<u32>, Option<u32>)> {
    FaultLine::parse(text.as_bytes()).map(|line| (line.phrase, line.pid, line.context))
}

#[test]
fn every_record_of_a_fault_on_580_is_understood() {
    for (text, expected) in [
        ("Client {PID: 649, Context: 1} encountered a fatal GPU error.", (Phrase::Encountered, Some(649), Some(1))),
        ("Server is handling a fatal GPU error.", (Phrase::Handling, None, None)),
        ("Client {PID: 649, Context ID: 1} on device 0 to be torn down", (Phrase::TornDown, Some(649), Some(1))),
        (
            "All clients belonging to error trigging process 649 will be torn down",
            (Phrase::Triggering, Some(649), None),
        ),
        (
            "Client {PID: 649, Context ID: 1} on the error-trigging process 649 to be torn down",
            (Phrase::Triggering, Some(649), Some(1)),
        ),
        ("The following devices will be reset:", (Phrase::DevicesReset, None, None)),
        ("The following client process have a sticky error set:", (Phrase::StickyErrors, None, None)),
        ("The following clients have a sticky error set: 649", (Phrase::StickyErrors, None, None)),
        (
            "Server teardown in progress. Refusing to accept new client {PID: 607, Context ID: 0}",
            (Phrase::Refused, Some(607), Some(0)),
        ),
        (
            "Client {PID: 854, Context ID: 1} exiting. Worker is in reset. Number of active client contexts is 2.",
            (Phrase::WorkerReset, Some(854), Some(1)),
        ),
        ("Server encountered a fatal exception. Shutting down", (Phrase::FatalException, None, None)),
    ] {
        assert_eq!(parse(text), Some(expected), "{text}");
    }
}

#[test]
fn a_corrected_spelling_is_understood_too() {
    for text in [
        "All clients belonging to error triggering process 649 will be torn down",
        "Client {PID: 649, Context ID: 1} on the error-triggering process 649 to be torn down",
    ] {
        assert_eq!(FaultLine::parse(text.as_bytes()).and_then(|line| line.accused()), Some(649), "{text}");
    }
}

/// All records of one `oob` and one `trap` on an H200 with 580.159.04, in their order, with two bystanders. The
/// culprits were 812 and 854.
const OOB: &[&str] = &[
    "Client {PID: 791, Context: 1} encountered a fatal GPU error.",
    "Server is handling a fatal GPU error.",
    "Client {PID: 791, Context ID: 1} on device 0 to be torn down",
    "Client {PID: 812, Context ID: 1} on device 0 to be torn down",
    "Client {PID: 790, Context ID: 1} on device 0 to be torn down",
    "All clients belonging to error trigging process 791 will be torn down",
    "Client {PID: 791, Context ID: 1} on the error-trigging process 791 to be torn down",
    "All clients belonging to error trigging process 812 will be torn down",
    "Client {PID: 812, Context ID: 1} on the error-trigging process 812 to be torn down",
    "All clients belonging to error trigging process 790 will be torn down",
    "Client {PID: 790, Context ID: 1} on the error-trigging process 790 to be torn down",
    "The following devices will be reset:",
    "0",
    "The following client process have a sticky error set:",
    "791",
    "812",
    "790",
    "Server failed to recevie command with status 806, assuming client {PID: 790, Context ID: 1} exit",
    "Client {PID: 790, Context ID: 1} exiting. Number of active client contexts is 2.",
];
const TRAP: &[&str] = &[
    "Server is handling a fatal GPU error.",
    "Client {PID: 836, Context ID: 1} on device 0 to be torn down",
    "Client {PID: 854, Context ID: 1} on device 0 to be torn down",
    "All clients belonging to error trigging process 836 will be torn down",
    "All clients belonging to error trigging process 854 will be torn down",
    "Server failed to recevie command with status 806, assuming client {PID: 854, Context ID: 1} exit",
    "Client {PID: 854, Context ID: 1} exiting. Worker is in reset. Number of active client contexts is 2.",
    "Client {PID: 835, Context ID: 1} exiting. Number of active client contexts is 1.",
];

#[test]
fn a_real_fault_begins_once_accuses_everybody_and_blames_one_or_nobody() {
    for (records, culprit) in [(OOB, None), (TRAP, Some(854))] {
        let lines: Vec<FaultLine> = records.iter().filter_map(|text| FaultLine::parse(text.as_bytes())).collect();
        assert!(lines[0].begins());
        let accused: std::collections::BTreeSet<u32> = lines.iter().filter_map(FaultLine::accused).collect();
        assert!(accused.len() > 1, "{accused:?}");
        let blamed: Vec<Option<u32>> = lines.iter().filter(|line| line.blames()).map(|line| line.pid).collect();
        assert_eq!(blamed, Vec::from_iter(culprit.map(Some)));
    }
}

#[test]
fn a_client_that_is_only_mentioned_is_not_accused() {
    let accused = |text: &str| FaultLine::parse(text.as_bytes()).unwrap().accused();
    assert_eq!(accused("Client {PID: 649, Context ID: 1} on device 0 to be torn down"), None);
    assert_eq!(accused("Server teardown in progress. Refusing to accept new client {PID: 607, Context ID: 0}"), None);
    assert_eq!(accused("Client {PID: 649, Context: 1} encountered a fatal GPU error."), Some(649));
}

#[test]
fn one_phrase_blames_and_two_begin_a_fault() {
    let line = |text: &str| FaultLine::parse(text.as_bytes()).unwrap();
    let reset = "exiting. Worker is in reset. Number of active client contexts is 2.";
    assert!(line(&format!("Client {{PID: 854, Context ID: 1}} {reset}")).blames());
    assert!(!line(&format!("Client {{PID: -5, Context ID: 1}} {reset}")).blames());
    assert!(!line("Client {PID: 649, Context: 1} encountered a fatal GPU error.").blames());
    assert!(line("Client {PID: 649, Context: 1} encountered a fatal GPU error.").begins());
    assert!(line("Server is handling a fatal GPU error.").begins());
    assert!(!line("The following devices will be reset:").begins());
}

#[test]
fn the_records_of_an_ordinary_life_are_left_alone() {
    for text in [
        "Startup",
        "Connecting to control daemon on socket: /tmp/nvidia-mps/control",
        "Creating server context on device 0 (NVIDIA H200)",
        "Destroy server context on device 0 (NVIDIA H200)",
        "CUDA MPS Server for Linux/Unix. Binary version: 13000",
        "Received new client request for {PID: -1333654781, Context ID: 0}",
        "Client {PID: 542, Context ID: 0} connected",
        "Creating worker thread for client {PID: 542, Context ID: 0}",
        "Status of client {PID: 542, Context ID: 1} is ACTIVE",
        "Volta MPS: status of client {542, 1} is ACTIVE",
        "Server failed to recevie command with status 806, assuming client {PID: 542, Context ID: 1} exit",
        "Receive command failed, assuming client exit",
        "Client {PID: 542, Context ID: 1} exiting. Number of active client contexts is 0.",
        "Client process 542 disconnected",
        "Server has been notified to shutdown",
        "Waiting for current clients to finish",
        "Failed to accept client {PID: 607, Context ID: 0} with status 807",
        "649",
        "",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
    assert_eq!(FaultLine::parse(b"Server is handling a fatal GPU error.\xff"), None);
}

proptest! {
    #[test]
    fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..120), tail in "\\PC{0,40}") {
        let _ = FaultLine::parse(&bytes);
        for head in ["Client {PID: ", "All clients belonging to error trig", "The following client", "Client {"] {
            let _ = FaultLine::parse(format!("{head}{tail}").as_bytes());
        }
    }
}
