//! Where lines are written to, and why one can't be.

use crate::observe::log_file::{LogFile, REMOVED};
use crate::observe::log_stream::LogStream;

#[derive(Debug)]
pub(super) enum Output {
    File(LogFile),
    Stream(LogStream),
    Nowhere,
}

#[derive(Debug)]
pub(super) struct Destination {
    pub(super) output: Output,
    /// Lines that could not be written since the last that could.
    pub(super) lost: u64,
    /// Why they could not.
    pub(super) trouble: Option<String>,
}

impl Destination {
    /// Why lines are not kept now, with the file's name.
    pub(super) fn trouble(&self) -> Option<String> {
        match &self.output {
            Output::File(file) => {
                let is_removed = file.is_removed();
                let why = self.trouble.as_deref().or(is_removed.then_some(REMOVED))?;
                Some(format!("{}: {why}", file.path().display()))
            }
            Output::Stream(_) | Output::Nowhere => self.trouble.clone(),
        }
    }
}
