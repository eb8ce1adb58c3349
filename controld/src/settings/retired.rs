//! Keys that were settings once and are constants now.
//!
//! A file that still has one works as without it, because operators exchange the program and leave the file. It is named
//! in the log, by `doctor` and by `--check-config`, with the value that holds and why.

use super::faults::{ConfigFault, Lines};
use super::parse::OVERRIDES;
use crate::core::Constants;
use crate::core::vault::VaultPolicy;
use crate::observe::rate::Rate;
use core::time::Duration;
use toml::{Table, Value};

/// A table of which nothing is left.
const GONE: &str = "servers";

/// A key that was a setting.
pub(super) struct Retired {
    /// Its table; empty for none.
    pub table: &'static str,
    /// The key in it.
    pub key: &'static str,
    /// The value that holds, as it would stand in the file.
    pub value: String,
    /// Why nobody needs another one.
    because: &'static str,
}

/// All of them.
pub(super) fn all() -> [Retired; 13] {
    let (values, vault) = (Constants::default(), VaultPolicy::default());
    let row = |table, key, value, because| Retired { table, key, value, because };
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    [
        row(
            "",
            "first_retry",
            seconds(values.first_retry),
            "clients wait, and what made a start fail may be over at once",
        ),
        row("", "largest_retry", seconds(values.largest_retry), "a try costs nothing at this pace"),
        row("", "max_waiting_per_user", values.max_waiting_per_user.to_string(), "no machine runs so many at once"),
        row("", "log_lines_per_second", Rate::default().per_second.to_string(), "only a flood has more"),
        row("domains", "cgroup_depth", "0".to_owned(), "pods, jobs, containers and services are found by their names"),
        row("faults", "evidence_window", seconds(values.evidence_window), "a witness needs milliseconds"),
        row("faults", "settle_time", seconds(values.settle_time), "a trap is known 9.5 to 11.2 ms after its launch"),
        row("faults", "silence", seconds(values.silence), "a sound server answers within a millisecond"),
        row(GONE, "breaker_failures", values.breaker_failures.to_string(), "the eighth comes 13 s after the first"),
        row(GONE, "breaker_window", seconds(values.breaker_window), "a server that ends sooner is of no use"),
        row(GONE, "breaker_pause", seconds(values.breaker_pause), "it is twice the longest time between two starts"),
        row("vault", "regions_per_user", vault.user_regions.to_string(), "it is a quarter of what all may have"),
        row("vault", "regions", vault.regions.to_string(), "the holder process has room for twice as many"),
    ]
}

impl Retired {
    /// Takes the key out of a table of the file, which has the name `prefix` there, and says so.
    fn take(&self, values: &mut Table, prefix: &str, lines: &Lines) -> Option<ConfigFault> {
        values.remove(self.key)?;
        let key = format!("{prefix}{}", self.key);
        let what = format!("no longer a setting; the value is {} because {}", self.value, self.because);
        Some(ConfigFault { line: lines.get(&key), key, what })
    }
}

/// Takes all of them out of what a file has, and names them in the order of its lines.
pub(super) fn take(given: &mut Table, lines: &Lines) -> Vec<ConfigFault> {
    let mut found = Vec::new();
    for retired in all() {
        if retired.table.is_empty() {
            found.extend(retired.take(given, "", lines));
            continue;
        }
        if let Some(values) = given.get_mut(retired.table).and_then(Value::as_table_mut) {
            found.extend(retired.take(values, &format!("{}.", retired.table), lines));
        }
        let overrides = given.get_mut(OVERRIDES).and_then(Value::as_array_mut).into_iter().flatten();
        for (index, values) in overrides.enumerate() {
            let prefix = format!("{OVERRIDES}[{}].", index + 1);
            found.extend(values.as_table_mut().and_then(|values| retired.take(values, &prefix, lines)));
        }
    }
    if given.get(GONE).and_then(Value::as_table).is_some_and(Table::is_empty) {
        given.remove(GONE);
    }
    found.sort_by_key(|fault| fault.line);
    found
}
