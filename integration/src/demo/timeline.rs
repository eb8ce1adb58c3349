//! The picture: a lane for each program, server and daemon of both runs, on one scale, with marks for what happened.

use super::acts::{DEATH, FAULT, KILL, UPGRADE};
use super::marks::{GOOD, HARM, lanes, mark, name};
use super::story::{Lane, Story, What};
use remps_controld::parts::report::lanes::escaped;
use std::fmt::Write;

/// Every picture of ours has it, which tells that one may be written over.
pub(super) const MARK: &str = "<!-- made by the demo of ReMPS -->";

/// Measures in the picture's own units.
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 14.0;
const LANE: f64 = 22.0;
const BAR: f64 = 13.0;
/// Two rows of words above the lanes.
const WORDS: f64 = 26.0;
/// What a letter takes, to keep words inside the picture.
const LETTER: f64 = 5.4;

/// What keeps words apart from a line or a bar behind them.
const HALO: &str = "stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\"";

/// The colours of what is drawn; each is explained in the legend.
const WAITS: &str = "#c4c4c4";
const WORKS: &str = "#2a9d6f";
const SERVES: &str = "#6b7280";

/// Draws runs one below the other; each with its title.
pub(super) fn draw(runs: &[(&str, &Story)]) -> String {
    let end = runs.iter().flat_map(|(_, story)| &story.events).map(|event| event.ms).fold(1.0, f64::max);
    let mut out = Picture { body: String::new(), scale: (WIDTH - LEFT - RIGHT) / end, y: 30.0 };
    out.text(10.0, 20.0, "What happens when a neighbour crashes", "font-size=\"15\" font-weight=\"bold\"");
    for (title, story) in runs {
        out.run(title, story);
    }
    out.legend();
    let height = out.y + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n{MARK}\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
        out.body
    )
}

struct Picture {
    body: String,
    scale: f64,
    y: f64,
}

impl Picture {
    fn x(&self, ms: f64) -> f64 {
        LEFT + ms.max(0.0) * self.scale
    }

    /// Writing into a string cannot fail.
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(text);
    }

    fn text(&mut self, x: f64, y: f64, text: &str, style: &str) {
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>\n", escaped(text)));
    }

    fn run(&mut self, title: &str, story: &Story) {
        self.y += 18.0;
        self.text(10.0, self.y, title, "font-weight=\"bold\"");
        self.y += 8.0;
        let lanes = lanes(story);
        let bottom = self.y + WORDS + lanes.len() as f64 * LANE;
        self.acts(story, bottom);
        self.y += WORDS;
        let end = story.events.last().map_or(0.0, |event| event.ms);
        for lane in lanes {
            self.put(format_args!("<g class=\"lane\" data-lane=\"{}\">\n", escaped(&lane.to_string())));
            self.text(10.0, self.y + BAR - 2.0, &name(lane, story.side), "fill=\"#222\"");
            self.bars(story, lane, end);
            self.marks(story, lane);
            self.put(format_args!("</g>\n"));
            self.y += LANE;
        }
    }

    /// Dashed lines through all lanes for what was done to the programs and the daemon.
    fn acts(&mut self, story: &Story, bottom: f64) {
        let daemon = |wanted: What| story.first(Lane::Daemon, move |what| *what == wanted).map(|event| event.ms);
        let killed = story.first(Lane::Killed, |what| *what == What::Killed).map(|event| event.ms);
        let moments = [
            (FAULT, story.fault(), "a fault"),
            (DEATH, killed, "killed in a kernel"),
            (KILL, daemon(What::Killed), "daemon killed"),
            (UPGRADE, daemon(What::Upgraded), "upgraded"),
        ];
        let moments: Vec<(u8, f64, &str)> =
            moments.into_iter().filter_map(|(act, at, text)| Some((act, self.x(at?), text))).collect();
        for &(act, x, _) in &moments {
            let y = self.y;
            self.put(format_args!(
                "<line class=\"act\" data-act=\"{act}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{bottom:.1}\" \
                 stroke=\"{HARM}\" stroke-dasharray=\"3 3\"/>\n"
            ));
        }
        // Where words end in the first row, and the line before.
        let (mut free, mut before) = (0.0, 0.0);
        for (index, &(_, x, text)) in moments.iter().enumerate() {
            // Words stand right of their line, or left of it where they would run into the next one; those that would
            // run into words before stand in the second row.
            let length = 6.0 + text.len() as f64 * (LETTER + 1.2);
            let next = moments.get(index + 1).map_or(WIDTH, |(_, x, _)| *x);
            let is_left = x + length > next && x - length > before;
            let begin = if is_left { x - length } else { x };
            let row = if begin < free { 20.0 } else { 8.0 };
            if begin >= free {
                free = begin + length;
            }
            before = x;
            let (at, anchor) = if is_left { (x - 3.0, "text-anchor=\"end\" ") } else { (x + 3.0, "") };
            self.text(at, self.y + row, text, &format!("{anchor}fill=\"{HARM}\" {HALO}"));
        }
    }

    /// From a start to the end: what waits is grey, what works is not.
    fn bars(&mut self, story: &Story, lane: Lane, end: f64) {
        let works = if matches!(lane, Lane::Daemon | Lane::Server(_)) { SERVES } else { WORKS };
        let mut open: Option<(f64, &str)> = None;
        for event in story.of(lane) {
            let what = &event.what;
            let next = if matches!(what, What::Started { .. }) {
                // The daemon is noted when it takes connections.
                Some((event.ms, if lane == Lane::Daemon { works } else { WAITS }))
            } else if matches!(what, What::Ready | What::Served { .. }) {
                Some((event.ms, works))
            } else if what.failed().is_some() && lane == Lane::Culprit {
                // Whoever is started again waits until then.
                Some((event.ms, WAITS))
            } else if what.is_loss() || *what == What::Killed {
                None
            } else {
                continue;
            };
            if let Some((from, colour)) = open.take() {
                self.bar(from, event.ms, colour);
            }
            open = next;
        }
        if let Some((from, colour)) = open {
            self.bar(from, end, colour);
        }
    }

    fn bar(&mut self, from: f64, to: f64, colour: &str) {
        let (x, y) = (self.x(from), self.y);
        // What is over in a moment is still to be seen.
        let width = (self.x(to) - x).max(1.5);
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{colour}\"/>\n"
        ));
    }

    fn marks(&mut self, story: &Story, lane: Lane) {
        // Words stand beside each other as long as there is room; a mark without room has none.
        let mut free = 0.0;
        let mut marked: Vec<(f64, &str, &str, String)> = story
            .of(lane)
            .filter_map(|event| mark(event).map(|(kind, colour, text)| (event.ms, kind, colour, text)))
            .collect();
        // Who fails again and again with the same has one mark for it.
        marked.dedup_by(|next, last| (next.1, &next.3) == (last.1, &last.3));
        for (index, (at, kind, colour, text)) in marked.iter().enumerate() {
            let (x, y) = (self.x(*at), self.y + BAR / 2.0);
            self.put(format_args!(
                "<circle class=\"mark\" data-mark=\"{kind}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\" \
                 stroke=\"#fff\"><title>{}</title></circle>\n",
                escaped(&format!("{at:.1} ms: {text}"))
            ));
            let next = marked.get(index + 1).map_or(WIDTH, |(at, ..)| self.x(*at) - 6.0);
            let length = text.chars().count() as f64 * LETTER;
            let begin = x + 7.0;
            let begin = if begin + length > WIDTH - 4.0 { x - 7.0 - length } else { begin };
            if begin >= free && begin + length <= next.max(x) {
                self.text(begin, y + 3.5, text, &format!("fill=\"{colour}\" {HALO} font-size=\"10\""));
                free = begin + length;
            }
        }
    }

    fn legend(&mut self) {
        self.y += 16.0;
        let y = self.y;
        let mut x = 10.0;
        let parts = [
            (WAITS, "waits"),
            (WORKS, "works"),
            (SERVES, "daemon and servers"),
            (HARM, "fault, error, death"),
            (GOOD, "verdict, recovery"),
        ];
        for (colour, text) in parts {
            self.put(format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n",
                y - 9.0
            ));
            self.text(x + 14.0, y, text, "fill=\"#555\"");
            x += 32.0 + text.len() as f64 * (LETTER + 0.6);
        }
        let seconds = (WIDTH - LEFT - RIGHT) / self.scale / 1e3;
        self.text(x, y, &format!("{seconds:.1} s from the left to the right"), "fill=\"#555\"");
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{nvidia, remps, without};
    use super::*;

    /// The names of the elements, when every one is closed in its order and every ampersand begins an entity.
    fn elements(picture: &str) -> Vec<String> {
        let (mut open, mut seen): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let text = picture.replace(MARK, "");
        for part in text.split('<').skip(1) {
            let (tag, words) = part.split_once('>').expect("a tag ends");
            assert!(!words.contains('>'), "{part}");
            let entities = ["amp;", "lt;", "gt;", "quot;"];
            assert!(
                part.split('&').skip(1).all(|rest| entities.iter().any(|entity| rest.starts_with(entity))),
                "{part}"
            );
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.trim_end_matches('/').split(' ').next().unwrap_or_default().to_owned();
            if let Some(name) = name.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
            } else {
                seen.push(name.clone());
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        assert_eq!(open, [""; 0]);
        seen
    }

    #[test]
    fn the_picture_is_well_formed_and_has_a_lane_for_everybody() {
        let picture = draw(&[("ours <&\">", &remps()), ("theirs", &nvidia())]);
        let lanes = elements(&picture).iter().filter(|name| *name == "g").count();
        assert_eq!(lanes, lanes_of(&remps()) + lanes_of(&nvidia()));
        for lane in ["daemon", "server 50", "server 51", "plain program", "with the library", "culprit", "newcomer 3"] {
            assert!(picture.contains(&format!("data-lane=\"{lane}\"")), "{lane}: {picture}");
        }
    }

    fn lanes_of(story: &Story) -> usize {
        lanes(story).len()
    }

    #[test]
    fn marks_are_there_for_what_happened_and_for_nothing_else() {
        let count = |picture: &str, kind: &str| picture.matches(&format!("data-mark=\"{kind}\"")).count();
        let whole = draw(&[("ours", &remps())]);
        for kind in ["fault", "verdict", "blamed", "recovered", "found", "upgraded"] {
            assert_eq!(count(&whole, kind), 1, "{kind}");
        }
        assert_eq!(count(&whole, "killed"), 2, "a program and the daemon");
        assert_eq!(whole.matches("data-act").count(), 4);
        let less = draw(&[("ours", &without(remps(), Lane::Daemon, |what| matches!(what, What::Verdict { .. })))]);
        assert_eq!((count(&less, "verdict"), count(&less, "fault")), (0, 1));
    }
}
