//! What words of several commands mean: the form of an answer, a process, a time.

use remps_proto::admin::{Form, Output};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// What the options of [`FORM`](super::FORM), [`UTC`](super::UTC) and [`JSON`](super::JSON) say, and the other words.
pub(super) fn output(words: &[OsString]) -> Result<(Output, Vec<&OsString>), String> {
    let (mut output, mut asked, mut others) = (Output::default(), None, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let form = match word.as_bytes() {
            b"--utc" => {
                output.utc = true;
                continue;
            }
            b"--json" => b"json",
            b"-o" => words.next().ok_or("-o needs table, wide or json")?.as_bytes(),
            [b'-', b'o', form @ ..] => form,
            _ => {
                others.push(word);
                continue;
            }
        };
        output.form = Form::named(form)
            .ok_or_else(|| format!("-o {} is not table, wide or json", String::from_utf8_lossy(form)))?;
        if asked.replace(output.form).is_some_and(|earlier| earlier != output.form) {
            return Err("asks for two forms".to_owned());
        }
    }
    Ok((output, others))
}

pub(super) fn unknown(word: &OsStr) -> String {
    format!("{} is not understood", word.to_string_lossy())
}

pub(super) fn pid(word: &OsStr) -> Result<u32, String> {
    let number = word.to_str().and_then(|text| text.parse::<i32>().ok()).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number != 0).ok_or_else(|| format!("{} is no pid", word.to_string_lossy()))
}

pub(super) fn seconds(word: &OsStr) -> Result<Duration, String> {
    let time = word.to_str().and_then(|text| text.parse().ok()).and_then(|time| Duration::try_from_secs_f64(time).ok());
    time.ok_or_else(|| format!("{} is no number of seconds", word.to_string_lossy()))
}
