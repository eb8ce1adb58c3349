//! What is kept, and what is not recoverable and why, for whoever runs the program.
//!
//! `MPS_SHIM_REPORT=stderr`, or a path to append to, asks for one line of JSON when the process ends in an orderly way.
#![expect(unsafe_code, reason = "asks to be called at the process's end, and writes to a descriptor of the program's")]

use std::{fs::OpenOptions, io::Write as _, path::Path, process};

use super::{
    account, code,
    graphs::graphs,
    keeping::{is_on, surroundings},
    memory::memory,
    objects::{recipes, recipes::KINDS},
};
use crate::process::{log, panics::unpanicked, settings};

/// Has the report written when the process ends.
pub(super) fn at_exit() {
    if settings::report().is_some() {
        // SAFETY: the handler is a function of ours in a library that is never unloaded.
        let _unreported = unsafe { libc::atexit(ended) };
    }
}

extern "C" fn ended() {
    // A forked child has nothing to report, and a panic would take an ending program along.
    if is_on() {
        let _unreported = unpanicked(write_report);
    }
}

fn write_report() {
    let Ok(([slabs, slab_bytes, blocks, block_bytes, descriptors], own)) =
        memory(|memory| (memory.slabs.totals(), memory.own.totals()))
    else {
        return;
    };
    let [allocations, allocation_bytes, own_descriptors, mappings, kept_bytes, reservations] = own;
    let kept = format!(
        r#"{{"slabs":{slabs},"slab_bytes":{slab_bytes},"blocks":{blocks},"block_bytes":{block_bytes},"descriptors":{descriptors}}}"#
    );
    let mapped = format!(
        r#"{{"allocations":{allocations},"allocation_bytes":{allocation_bytes},"descriptors":{own_descriptors},"#
    ) + &format!(r#""mappings":{mappings},"kept_bytes":{kept_bytes},"reservations":{reservations}}}"#);
    let (counts, image_bytes) = totals();
    let counts = KINDS.iter().zip(counts).map(|(kind, count)| format!(r#""{kind}":{count},"#)).collect::<String>();
    let recorded = format!(r#"{{{counts}"image_bytes":{image_bytes}}}"#);
    let code = code::report();
    let lost = account::list();
    // Under no lock of ours.
    let (private, of_private) = surroundings().map(|of| (of.private)()).unwrap_or_default();
    let comma = if lost.is_empty() || of_private.is_empty() { "" } else { "," };
    let vault =
        surroundings().and_then(|of| (of.report)()).map_or_else(String::new, |vault| format!(r#""vault":{vault},"#));
    let spare =
        surroundings().and_then(|of| (of.spare)()).map_or_else(String::new, |spare| format!(r#""spare":{spare},"#));
    let mut line = format!(
        r#"{{"pid":{},"kept":{kept},"mapped":{mapped},"recorded":{recorded},"code":{code},{vault}{spare}"private":[{private}],"not_recoverable":[{lost}{comma}{of_private}]}}"#,
        process::id()
    );
    line.push('\n');
    match settings::report() {
        Some(place) if place == "stderr" => {
            // SAFETY: the buffer is ours. A failed or short write has nobody to be reported to.
            unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
        }
        Some(place) => {
            let file = OpenOptions::new().append(true).create(true).open(Path::new(&place));
            let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
            if let Err(error) = written {
                log::complain(format_args!("no report in {}: {error}", Path::new(&place).display()));
            }
        }
        None => {}
    }
}

/// How many recipes there are of each kind, and bytes of images; none where they are not kept.
fn totals() -> ([u64; KINDS.len()], u64) {
    let (mut counts, bytes) = recipes(|recipes| recipes.totals()).unwrap_or_default();
    let [.., of_graphs, of_executables] = &mut counts;
    [*of_graphs, *of_executables] = graphs(|graphs| graphs.counts()).unwrap_or_default();
    (counts, bytes)
}
