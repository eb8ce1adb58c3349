//! A screen, drawn into a buffer.

use super::gather::Seen;
use super::page::{head, section};
use super::rows::Kind;
use super::state::{Now, State};
use super::table::{Layout, padded};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// The smallest terminal that shows anything of use.
const SMALLEST: (u16, u16) = (30, 8);
/// Rows that a table has before another one gets more of them.
const FEW: usize = 3;
/// An empty line and the heading of a table.
const AROUND: usize = 2;

/// The keys, by what they are for; the text of `?`.
const HELP: [(&str, &str); 12] = [
    ("q F10 Ctrl-C", "end"),
    ("Tab Shift-Tab", "the next table, the one before"),
    ("Up Down k j PgUp PgDn", "mark another row"),
    ("Home End g G", "the first row, the last"),
    ("< > , . Left Right F6", "sort by the column beside"),
    ("P M U", "sort by PID, GPU-MEM, USER"),
    ("r I + -", "turn the order around; upwards, downwards"),
    ("/ f F4", "filter: rows that have this text anywhere"),
    ("Esc", "no filter"),
    ("Space", "hold the screen, go on"),
    ("u", "ask the daemon now"),
    ("? h F1", "these keys"),
];

/// Draws the screen.
pub(super) fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        buffer.set_stringn(area.x, area.y, "terminal too small", area.width.into(), Style::new());
        return;
    }
    let width = usize::from(area.width);
    let room = usize::from(area.height) - 1;
    let mut lines: Vec<Line<'static>> = match &state.now {
        Now::Asking => vec![Line::raw("asking the daemon ...")],
        Now::NoDaemon(why) => no_daemon(why, width),
        Now::Seen(seen) => head(seen, width, state.look.utc).into_iter().map(Line::raw).collect(),
    };
    if state.shows_help {
        lines.push(Line::raw(""));
        lines.extend(HELP.iter().map(|(keys, what)| Line::raw(format!("  {keys:<22} {what}"))));
        lines.push(Line::raw(""));
        lines.extend(WORDS.iter().map(|line| Line::raw(format!("  {line}"))));
    } else if let Now::Seen(seen) = &state.now {
        let left = room.saturating_sub(lines.len());
        lines.extend(tables(state, seen, width, left));
    }
    lines.truncate(room);
    for (y, line) in (area.y..).zip(&lines) {
        buffer.set_line(area.x, y, line, area.width);
    }
    let foot = Line::styled(foot(state, width), Style::new().add_modifier(Modifier::REVERSED));
    buffer.set_line(area.x, area.bottom() - 1, &foot, area.width);
}

/// What the columns mean that no other tool has.
const WORDS: [&str; 3] = [
    "%THR     active thread percentage",
    "SPARE    a second copy of the driver that stands by",
    "VERDICT  the latest that names it; explain N tells all",
];

fn no_daemon(why: &str, width: usize) -> Vec<Line<'static>> {
    let why = crate::report::text::harmless(why);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = [Line::styled("no daemon", bold), Line::raw(""), Line::raw(padded(&why, width, false))];
    lines.into_iter().chain([Line::raw("It is asked again.")]).collect()
}

/// The tables, in so many lines.
fn tables(state: &State, seen: &Seen, width: usize, room: usize) -> Vec<Line<'static>> {
    let rows = Kind::ALL.map(|kind| state.rows(kind));
    let is_there = |kind: Kind| kind == state.focus || !rows[kind as usize].is_empty();
    let mut kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| is_there(*kind)).collect();
    if room < kinds.len() * AROUND + 2 * FEW {
        // Rows of one table rather than headings of all.
        kinds = vec![state.focus];
    }
    let shares = shares(&kinds, state.focus, |kind| rows[kind as usize].len(), room);
    let mut lines = Vec::new();
    for (kind, share) in kinds.into_iter().zip(shares) {
        let rows = &rows[kind as usize];
        let all = seen.count(kind);
        // The heading has the number of rows where not all are there.
        let marked = state.marked(kind, rows);
        let first = if share == 0 { 0 } else { (marked + 1).saturating_sub(share) };
        let last = (first + share).min(rows.len());
        let count = if last - first < rows.len() || rows.len() < all {
            format!("{}-{last} of {all} {}", (first + 1).min(last), kind.name())
        } else {
            String::new()
        };
        let is_focus = kind == state.focus;
        let layout = Layout::of(kind, rows, width);
        lines.push(Line::styled(padded(&count, width, true), Style::new().add_modifier(Modifier::DIM)));
        let heading = padded(&layout.heading(kind, state.view(kind).order), width, false);
        let strong = if is_focus { Modifier::REVERSED | Modifier::BOLD } else { Modifier::REVERSED };
        lines.push(Line::styled(heading, Style::new().add_modifier(strong)));
        for (at, row) in rows.iter().enumerate().take(last).skip(first) {
            let line = layout.line(kind, row, &state.look);
            let is_marked = is_focus && at == marked && state.view(kind).marked.is_some();
            lines.push(if is_marked { line.patch_style(Style::new().add_modifier(Modifier::REVERSED)) } else { line });
        }
        if rows.is_empty() {
            lines.push(Line::from(Span::raw(section::none(kind, all))));
        }
    }
    lines
}

/// How many rows each of these tables shows: the one that keys are for as many as it has, the others a few, and what is
/// left to those that have more.
fn shares(kinds: &[Kind], focus: Kind, count: impl Fn(Kind) -> usize, room: usize) -> Vec<usize> {
    let mut left = room.saturating_sub(kinds.len() * AROUND);
    let mut shares = vec![0; kinds.len()];
    let few: usize = kinds.iter().filter(|kind| **kind != focus).map(|kind| count(*kind).min(FEW)).sum();
    let mut give = |at: usize, most: usize, left: &mut usize| {
        let more = most.min(count(kinds[at]) - shares[at]).min(*left);
        shares[at] += more;
        *left -= more;
    };
    // The focus first, but for the few of the others; then those; then who has more, from the bottom.
    if let Some(at) = kinds.iter().position(|kind| *kind == focus) {
        give(at, left.saturating_sub(few).max(left / 2), &mut left);
    }
    for at in (0..kinds.len()).rev().filter(|at| kinds[*at] != focus) {
        give(at, FEW, &mut left);
    }
    for at in (0..kinds.len()).rev() {
        give(at, usize::MAX, &mut left);
    }
    shares
}

fn foot(state: &State, width: usize) -> String {
    let text = if state.is_editing {
        format!(" filter: {}_   Enter: done  Esc: no filter", state.filter)
    } else {
        let filter = if state.filter.is_empty() { String::new() } else { format!("  filter: {}", state.filter) };
        let held = if state.is_held { "  HELD" } else { "" };
        format!(" ? keys  Tab table  <> sort  r turn  / filter  Space hold  q end{filter}{held}")
    };
    padded(&text, width, false)
}
