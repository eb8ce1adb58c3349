//! Rows in a width: sorted, filtered, with the columns that have room.

use super::rows::{Column, Kind, Row, Tone};
use super::state::Look;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Blanks between columns.
const GAP: usize = 1;
/// The last column is given as much before others stay.
const LAST: usize = 10;

/// By which column a table is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub column: usize,
    pub is_reversed: bool,
}

/// The columns a table shows, with their widths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    columns: Vec<(usize, usize)>,
}

/// How many columns of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Rows that have the text in one of their cells, in the table's order.
pub(super) fn chosen(mut rows: Vec<Row>, filter: &str, order: Order) -> Vec<Row> {
    let filter = filter.to_lowercase();
    rows.retain(|row| filter.is_empty() || row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&filter)));
    let key = |row: &Row| row.cells.get(order.column).map(|cell| cell.by.clone());
    // Equal ones stay in the daemon's order, so that nothing jumps.
    rows.sort_by(|one, two| match (key(one), key(two)) {
        (Some(one), Some(two)) => one.order(&two, order.is_reversed),
        _ => core::cmp::Ordering::Equal,
    });
    rows
}

impl Layout {
    /// Which columns have room in a width, and how wide each is.
    pub(super) fn of(kind: Kind, rows: &[Row], room: usize) -> Self {
        let columns = kind.columns();
        let wide = |index: usize, column: &Column| {
            // One column more for the arrow of the order.
            let heading = column.name.len() + 1;
            let widest = rows.iter().map(|row| width(&row.cells[index].text)).max().unwrap_or_default();
            widest.min(column.most).max(heading)
        };
        // What nobody has anything in is left out first.
        let is_empty = |index: usize| rows.iter().all(|row| row.cells[index].text == "-");
        let last = columns.len() - 1;
        let mut shown: Vec<(usize, usize)> = columns.iter().enumerate().map(|(at, one)| (at, wide(at, one))).collect();
        shown[last].1 = 0;
        let taken = |shown: &[(usize, usize)]| shown.iter().map(|(_, width)| width + GAP).sum::<usize>();
        while taken(&shown) + LAST > room + GAP {
            let goes = |(at, _): &&(usize, usize)| (is_empty(*at), columns[*at].goes);
            let Some(first) = shown.iter().filter(|(at, _)| columns[*at].goes > 0).max_by_key(goes).copied() else {
                break;
            };
            shown.retain(|one| *one != first);
        }
        let left = (room + GAP).saturating_sub(taken(&shown));
        if let Some(last) = shown.last_mut() {
            last.1 = left;
        }
        Self { columns: shown }
    }

    /// The line above the rows.
    pub(super) fn heading(&self, kind: Kind, order: Order) -> String {
        let cell = |(at, width): &(usize, usize)| {
            let column = kind.columns()[*at];
            let arrow = match (*at == order.column, order.is_reversed) {
                (false, _) => "",
                (true, false) => "▲",
                (true, true) => "▼",
            };
            padded(&format!("{}{arrow}", column.name), *width, column.is_number)
        };
        self.columns.iter().map(cell).collect::<Vec<_>>().join(" ")
    }

    /// A row.
    pub(super) fn line(&self, kind: Kind, row: &Row, look: &Look) -> Line<'static> {
        let mut spans = Vec::new();
        for (at, width) in &self.columns {
            let column = kind.columns()[*at];
            if !spans.is_empty() {
                spans.push(Span::raw(" "));
            }
            let text = padded(&row.cells[*at].text, *width, column.is_number);
            let style = if column.name == "STATE" { toned(row.tone, look) } else { Style::new() };
            spans.push(Span::styled(text, style));
        }
        Line::from(spans)
    }
}

fn toned(tone: Tone, look: &Look) -> Style {
    let (colour, modifier) = match tone {
        Tone::Good => (Color::Green, Modifier::empty()),
        Tone::Pending => (Color::Yellow, Modifier::empty()),
        Tone::Bad => (Color::Red, Modifier::BOLD),
    };
    let style = Style::new().add_modifier(modifier);
    if look.colour { style.fg(colour) } else { style }
}

/// A text in exactly so many columns of a terminal: its beginning and its end where it is longer, since cgroups and
/// domains differ in their ends.
pub(super) fn padded(text: &str, room: usize, at_the_right: bool) -> String {
    let text = shortened(text, room);
    let blanks = " ".repeat(room.saturating_sub(width(&text)));
    if at_the_right { blanks + &text } else { text + &blanks }
}

/// A text in at most so many columns of a terminal.
pub(super) fn shortened(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    if room == 0 {
        return String::new();
    }
    let end = room / 3;
    let begin = room - end - 1;
    let head = taken(text.chars(), begin);
    let tail: String = taken(text.chars().rev(), end).chars().rev().collect();
    format!("{head}…{tail}")
}

/// As many characters as fit so many columns.
fn taken(characters: impl Iterator<Item = char>, room: usize) -> String {
    let mut text = String::new();
    for character in characters {
        text.push(character);
        if width(&text) > room {
            text.pop();
            break;
        }
    }
    text
}
