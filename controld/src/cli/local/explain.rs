//! `explain`: which fault, and how it is told.

use super::LocalCommand;
use super::words::{output, unknown};
use remps_proto::admin::Output;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Which fault to explain, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ExplainRequest {
    /// Its number in the fault list.
    pub fault: u64,
    /// The file for the picture of its timeline.
    pub svg: Option<PathBuf>,
    /// How the page is written.
    pub output: Output,
}

pub(super) fn parse(words: &[OsString]) -> Result<LocalCommand, String> {
    let (output, words) = output(words)?;
    let (mut fault, mut svg) = (None, None);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--svg" => svg = Some(PathBuf::from(words.next().ok_or("--svg needs a file")?)),
            [b'-', ..] => return Err(unknown(word)),
            _ => {
                let number = word.to_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
                let number = number.ok_or_else(|| format!("{} is no number of a fault", word.to_string_lossy()))?;
                if fault.replace(number).is_some() {
                    return Err("explains one fault at a time".to_owned());
                }
            }
        }
    }
    let fault = fault.ok_or("names no fault; get_fault_list has their numbers")?;
    Ok(LocalCommand::Explain(ExplainRequest { fault, svg, output }))
}
