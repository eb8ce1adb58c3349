//! The same as plain text in 80 columns, for `--once`, and what the screen has in common with it.

use super::gather::Seen;
use super::rows::Kind;
use super::state::Look;
use super::table::{Layout, Order, chosen, shortened};
use crate::report::text::{WIDEST, harmless, mebibytes, span};
use crate::ui::local_time;
use std::time::Duration;

/// All that was seen, with a line end behind each line.
pub(super) fn text(seen: &Seen, utc: bool) -> String {
    let look = Look { colour: false, utc, interval: Duration::ZERO };
    let mut lines = head(seen, WIDEST, utc);
    for kind in Kind::ALL {
        let order = Order { column: 0, is_reversed: false };
        let rows = chosen(seen.rows(kind), "", order);
        lines.push(String::new());
        if rows.is_empty() {
            lines.push(section::none(kind, 0));
            continue;
        }
        let layout = Layout::of(kind, &rows, WIDEST);
        // On paper nothing can be sorted, so no arrow says how.
        let heading = layout.heading(kind, Order { column: usize::MAX, ..order });
        lines.push(heading);
        lines.extend(rows.iter().map(|row| {
            let line = layout.line(kind, row, &look);
            line.spans.iter().map(|span| span.content.as_ref()).collect::<String>()
        }));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The lines above the tables.
pub(super) fn head(seen: &Seen, room: usize, utc: bool) -> Vec<String> {
    let daemon = &seen.daemon;
    let ready =
        if seen.ready { "ready".to_owned() } else { format!("not ready: {}", harmless(&seen.obstacles.join(", "))) };
    let up = Duration::try_from_secs_f64(daemon.uptime_s).unwrap_or_default();
    let first = format!(
        "{}  daemon {}, ReMPS {} in place of {}, up {}, {ready}",
        clock(&seen.time, utc),
        daemon.pid,
        harmless(&daemon.version),
        harmless(&daemon.personality),
        span(up),
    );
    let live = seen.clients.iter().filter(|client| client.phase == "live").count();
    let waiting = seen.clients.iter().filter(|client| client.phase == "waiting").count();
    let bytes: Vec<u64> = seen.clients.iter().filter_map(|client| client.memory_bytes).collect();
    let memory = if bytes.is_empty() {
        "GPU-MEM not known".to_owned()
    } else {
        format!("GPU-MEM {}", mebibytes(bytes.iter().sum()))
    };
    let why = daemon.memory_unknown.as_ref().map(|why| format!("GPU-MEM not known: {}", harmless(why)));
    let second = format!(
        "{}, {}, {}: {live} live, {waiting} waiting; {memory}",
        some(seen.domains.len(), "domain"),
        some(seen.servers.len(), "server"),
        some(seen.clients.len(), "client"),
    );
    let third = seen.verdicts.first().map_or_else(
        || "no verdict".to_owned(),
        |verdict| {
            let whom = verdict.culprit.as_ref().map_or_else(
                || "nobody can be named".to_owned(),
                |culprit| {
                    let command = shortened(&harmless(&culprit.command), room / 4);
                    format!("{} of {} ({command})", culprit.pid, seen.user(culprit.uid))
                },
            );
            let victims = some(verdict.victims.len(), "victim");
            let (kind, sure) = (harmless(&verdict.kind), harmless(&verdict.confidence));
            let (now, time) = (clock(&seen.time, utc), clock(&verdict.time, utc));
            // The day, where it is another one than today.
            let today = now.split(' ').next().unwrap_or_default();
            let time = time.strip_prefix(today).map_or(time.as_str(), str::trim_start);
            format!("last verdict {} at {time}: {whom}, {kind}, {sure}, {victims}", verdict.number)
        },
    );
    [first, second, third].iter().chain(&why).map(|line| shortened(line, room)).collect()
}

/// The day and the time of the day; a time that is none as it is.
fn clock(time: &str, utc: bool) -> String {
    let shown = if utc { None } else { local_time::shown(time) };
    let shown = shown.unwrap_or_else(|| harmless(time).replacen('T', " ", 1));
    let shown = shown.split('.').next().unwrap_or_default().trim_end_matches('Z').to_owned();
    if utc { shown + "Z" } else { shown }
}

fn some(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

impl Seen {
    /// How many rows a table has before any is filtered away.
    pub(super) fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Domains => self.domains.len(),
            Kind::Servers => self.servers.len(),
            Kind::Clients => self.clients.len(),
        }
    }
}

/// What stands in the place of a table.
pub(super) mod section {
    use super::Kind;

    /// That it has no row, of so many.
    pub(in crate::top) fn none(kind: Kind, of: usize) -> String {
        if of == 0 { format!("no {}", kind.name()) } else { format!("none of {of} {} has that", kind.name()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_no_fraction_and_what_is_none_is_harmless() {
        assert_eq!(clock("2026-11-20T18:15:41.181627Z", true), "2026-11-20 18:15:41Z");
        assert_eq!(clock("\u{1b}[2J", true), "\\u{1b}[2JZ");
    }
}
