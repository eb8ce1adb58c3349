//! The timeline as a picture: a lane for each whom the fault concerns, and time to the right.
//!
//! What matters happens within milliseconds and goes on for minutes, so the scale is logarithmic: each tick is ten times
//! as far from the first sign as the one before.

use super::Explanation;
use super::page::after;
use super::timeline::{Lane, Moment};
use std::fmt::Write as _;

/// Measures in the picture's own units.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 66.0;
/// A line of words; each moment has one of its own, so that no two overlap.
const ROW: f64 = 16.0;
/// Between two lanes.
const GAP: f64 = 10.0;
/// What a letter takes, about.
const LETTER: f64 = 5.8;
/// The lanes from top to bottom, with their names and colours.
const LANES: [(Lane, &str, &str); 5] = [
    (Lane::Culprit, "culprit", "#b3261e"),
    (Lane::Daemon, "daemon", "#374151"),
    (Lane::Servers, "servers", "#6b7280"),
    (Lane::Victims, "victims", "#b26a00"),
    (Lane::Newcomers, "newcomers", "#2a9d6f"),
];

/// The whole picture.
pub(super) fn draw(explanation: &Explanation) -> String {
    let moments = &explanation.timeline;
    let furthest = moments.iter().map(|moment| moment.after_ms).fold(1.0, f64::max);
    let mut picture = Picture { body: String::new(), scale: (WIDTH - LEFT - RIGHT) / far(furthest) };
    let title = format!("Fault {}, {}", explanation.fault, explanation.time);
    picture.text(10.0, 20.0, &title, "font-size=\"14\" font-weight=\"bold\"");
    for (line, words) in lines(&explanation.summary).iter().enumerate() {
        picture.text(10.0, 36.0 + 13.0 * line as f64, words, "");
    }
    let mut y = TOP;
    let mut drawn = Vec::new();
    for (lane, name, colour) in LANES {
        let of_lane: Vec<&Moment> = moments.iter().filter(|moment| moment.lane == lane).collect();
        if of_lane.is_empty() {
            continue;
        }
        let height = ROW * of_lane.len() as f64;
        drawn.push((y, height, name, colour, of_lane));
        y += height + GAP;
    }
    picture.scale_of(furthest, y);
    for (y, height, name, colour, moments) in drawn {
        picture.lane(y, height, name, colour, &moments);
    }
    let height = y + 24.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
        picture.body
    )
}

/// How far to the right a time is, in tenfolds of a tenth of a millisecond. What was before the first sign is there.
fn far(ms: f64) -> f64 {
    const FINEST_MS: f64 = 0.1;
    (1.0 + ms.max(0.0) / FINEST_MS).log10()
}

/// A sentence in lines of the picture's width.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && (line + word.chars().count() + 1) as f64 * LETTER > WIDTH - 20.0 {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

struct Picture {
    body: String,
    scale: f64,
}

impl Picture {
    fn x(&self, ms: f64) -> f64 {
        LEFT + far(ms) * self.scale
    }

    /// Writing into a string does not fail.
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(text);
    }

    fn text(&mut self, x: f64, y: f64, text: &str, style: &str) {
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>\n", escaped(text)));
    }

    /// Thin lines at 1 ms, 10 ms and so on, with their times below.
    fn scale_of(&mut self, furthest: f64, bottom: f64) {
        let mut ms = 1.0;
        while ms <= furthest {
            let x = self.x(ms);
            self.put(format_args!(
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#e5e7eb\"/>\n",
                TOP - 6.0
            ));
            self.text(x, bottom + 14.0, &after(ms), "text-anchor=\"middle\" fill=\"#6b7280\"");
            ms *= 10.0;
        }
    }

    fn lane(&mut self, y: f64, height: f64, name: &str, colour: &str, moments: &[&Moment]) {
        self.text(10.0, y + 10.0, name, "font-weight=\"bold\"");
        self.put(format_args!(
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\" stroke=\"#d1d5db\"/>\n",
            y + height,
            WIDTH - RIGHT
        ));
        for (row, moment) in moments.iter().enumerate() {
            let (x, y) = (self.x(moment.after_ms), y + 6.0 + ROW * row as f64);
            self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\n"));
            let words = format!("{} {}", after(moment.after_ms), moment.what);
            // Words stand on the side that has room for them.
            let is_right = x + 8.0 + words.chars().count() as f64 * LETTER > WIDTH;
            let (x, anchor) = if is_right { (x - 8.0, "end") } else { (x + 8.0, "start") };
            self.text(x, y + 4.0, &words, &format!("text-anchor=\"{anchor}\""));
        }
    }
}

/// Text as it may stand in XML. What no XML may have at all is left out.
fn escaped(text: &str) -> String {
    let allowed =
        text.chars().filter(|character| !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}'));
    let allowed: String = allowed.collect();
    allowed.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
