#![no_main]
//! The file of the option `-a`: whatever is in it, it is understood or refused with its mistakes in the order of their
//! lines, and what is understood keeps its bounds.
//!
//! Its reader is a room of the daemon and is taken from there by path: a build of the whole daemon with the coverage flags
//! would take minutes.

#![expect(dead_code, reason = "the daemon's other files are read with the rest")]

#[path = "../../../controld/src/nearest.rs"]
mod nearest;
#[path = "../../../controld/src/settings"]
mod settings {
    mod faults;
    pub(crate) mod servers_file;
}

use remps_proto::admin::module::is_name;
use settings::servers_file::parse;

/// Mistakes that are told, and one line for all others.
const MOST_TOLD: usize = 51;

libfuzzer_sys::fuzz_target!(|text: &str| {
    for installed in [None, Some(580), Some(615)] {
        match parse(text, installed) {
            Ok(plan) => {
                for (name, server) in &plan {
                    assert!(is_name(name) && server.namespaces.contains_key("default"), "{name}");
                    assert!(server.namespaces.keys().all(|namespace| is_name(namespace)), "{name}");
                }
            }
            Err(faults) => {
                assert!(!faults.is_empty() && faults.len() <= MOST_TOLD, "{faults:?}");
                let lines: Vec<_> = faults.iter().filter_map(|fault| fault.line).collect();
                assert!(lines.is_sorted(), "{faults:?}");
                faults.iter().for_each(|fault| assert!(!fault.to_string().is_empty()));
            }
        }
    }
});
