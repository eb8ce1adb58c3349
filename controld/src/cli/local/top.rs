//! `top`: what it shows, and how often it looks.

use super::LocalCommand;
use super::words::{seconds, unknown};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// How often `top` looks, unless the call says otherwise.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest interval: each look is work for the daemon.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);

/// What `top` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TopForm {
    /// A screen that follows what there is; once as text where there is no terminal.
    Screen,
    /// What there is now, as text.
    Once,
    /// The same as JSON.
    Json,
}

/// How to show what there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopRequest {
    pub form: TopForm,
    /// Between two looks.
    pub interval: Duration,
    /// Whether times are in UTC and not the local ones.
    pub utc: bool,
}

pub(super) fn parse(words: &[OsString]) -> Result<LocalCommand, String> {
    let mut request = TopRequest { form: TopForm::Screen, interval: DEFAULT_INTERVAL, utc: false };
    let mut interval = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let form = match word.as_bytes() {
            b"--once" => TopForm::Once,
            b"--json" => TopForm::Json,
            b"--utc" => {
                request.utc = true;
                continue;
            }
            b"--interval" => {
                interval = Some(seconds(words.next().ok_or("--interval needs a number of seconds")?)?);
                continue;
            }
            _ => return Err(unknown(word)),
        };
        if request.form != TopForm::Screen && request.form != form {
            return Err("asks for two forms".to_owned());
        }
        request.form = form;
    }
    if let Some(interval) = interval {
        if request.form != TopForm::Screen {
            return Err("--interval is for the screen; --once and --json look once".to_owned());
        }
        if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
            return Err("--interval is from 0.1 to 3600 seconds".to_owned());
        }
        request.interval = interval;
    }
    Ok(LocalCommand::Top(request))
}
