use tracing::{debug, info, warn};

use super::super::log::{CONTROL_LOG, Format, Limits};
use super::*;

fn logged(format: Format, level: LevelFilter, events: impl FnOnce()) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (sink, warning) = LogSink::files(folder.path(), Limits::default(), format);
    assert!(warning.is_none());
    tracing::subscriber::with_default(subscriber(sink, level), events);
    std::fs::read_to_string(folder.path().join(CONTROL_LOG)).unwrap()
}

#[test]
fn an_event_becomes_a_line_of_the_daemon_with_its_fields() {
    let text = logged(Format::Vendor, DEFAULT_LEVEL, || {
        warn!(epoch = 3, uid = 1000_u32, reason = "no such\nfile", "Server did not start");
        debug!("below the level");
    });
    let line = text.strip_suffix('\n').unwrap();
    let own = format!(" Control {:>5}] ", std::process::id());
    let (_, text) = line.split_once(&own).unwrap();
    assert_eq!(text, "Server did not start epoch=3 uid=1000 reason=no such file");
}

#[test]
fn the_json_form_keeps_the_fields_apart() {
    let text = logged(Format::Json, LevelFilter::DEBUG, || {
        let error = std::io::Error::from_raw_os_error(libc::ENOSPC);
        debug!(epoch = 3, ratio = 0.5, ok = true, error = &error as &dyn std::error::Error, "packet");
    });
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["text"], "packet");
    assert_eq!(value["level"], "debug");
    assert_eq!(
        (value["epoch"].as_i64(), value["ratio"].as_f64(), value["ok"].as_bool()),
        (Some(3), Some(0.5), Some(true))
    );
    assert_eq!(value["error"], "No space left on device (os error 28)");
    assert_eq!(value["source"], "Control");
}

#[test]
fn the_level_is_as_asked_and_info_by_default() {
    let count = |level| {
        logged(Format::Vendor, level, || {
            warn!("w");
            info!("i");
            debug!("d");
        })
        .lines()
        .count()
    };
    assert_eq!(count(level(None).unwrap()), 2);
    assert_eq!(count(level(Some("warn")).unwrap()), 1);
    assert_eq!(count(level(Some(" DEBUG ")).unwrap()), 3);
    assert_eq!(count(level(Some("off")).unwrap()), 0);
    assert!(level(Some("loud")).is_err());
}
