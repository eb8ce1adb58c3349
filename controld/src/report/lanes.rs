//! Lanes with what happened on one time scale, as SVG: the picture of `explain`, and that of a fault on a GPU which the
//! suites draw.
//!
//! What matters happens within milliseconds and goes on for minutes, so the scale is logarithmic: each tick is ten times
//! as far from the beginning as the one before. The picture is 800 units wide and has colours for a light and for a dark
//! page. Each moment has a line of words of its own, so that no two overlap; words for which there is no room are cut,
//! and whole in the moment's title.

use super::text::shortened;
use std::fmt::Write as _;

/// Measures in the picture's own units.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 124.0;
const RIGHT: f64 = 24.0;
/// The edge of all words.
const MARGIN: f64 = 10.0;
/// A line of words.
const ROW: f64 = 16.0;
/// A line of the notes.
const NOTE: f64 = 14.0;
/// Between two lanes.
const GAP: f64 = 10.0;
/// What a letter takes, about.
const LETTER: f64 = 5.8;
/// Between a mark and its words.
const BESIDE: f64 = 8.0;
/// What lasts shorter than can be drawn is so wide.
const NARROWEST: f64 = 2.0;
const BAR: f64 = 8.0;
/// Colours of a light page, and of a dark one.
const STYLE: &str = "<style>\n\
    .paper{fill:#fff}.ink{fill:#1f2328}.faint{fill:#656d76}.rule{stroke:#d8dee4}\n\
    .harm{fill:#b3261e}.daemon{fill:#374151}.server{fill:#6b7280}.program{fill:#b26a00}.good{fill:#1a7f64}\n\
    @media (prefers-color-scheme: dark){\n\
    .paper{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#9198a1}.rule{stroke:#30363d}\n\
    .harm{fill:#ff7b72}.daemon{fill:#c9d1d9}.server{fill:#8b949e}.program{fill:#e3a03c}.good{fill:#3fb68b}}\n\
    </style>";

/// Whose or what kind of a lane it is, which its colour shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Who did harm, and who was lost.
    Harm,
    /// The daemon.
    Daemon,
    /// Servers.
    Server,
    /// Programs that were hit.
    Program,
    /// What is well.
    Good,
}

impl Tone {
    const fn class(self) -> &'static str {
        match self {
            Self::Harm => "harm",
            Self::Daemon => "daemon",
            Self::Server => "server",
            Self::Program => "program",
            Self::Good => "good",
        }
    }
}

/// Something that happened, at a moment or from then on for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Milliseconds from the beginning.
    pub at_ms: f64,
    /// When it was over.
    pub until_ms: Option<f64>,
    /// What it was.
    pub words: String,
}

/// A lane with what happened in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// What stands before it.
    pub name: String,
    /// Its colour.
    pub tone: Tone,
    /// From top to bottom.
    pub marks: Vec<Mark>,
}

/// The whole picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// In bold letters.
    pub title: String,
    /// Sentences below it.
    pub notes: Vec<String>,
    /// How much is a first step on the scale, in milliseconds.
    pub finest_ms: f64,
    /// From top to bottom; those without marks are left out.
    pub lanes: Vec<Lane>,
}

impl Chart {
    /// Draws it.
    #[must_use]
    pub fn draw(&self) -> String {
        let lanes: Vec<&Lane> = self.lanes.iter().filter(|lane| !lane.marks.is_empty()).collect();
        let marks = || lanes.iter().flat_map(|lane| &lane.marks);
        let furthest = marks().map(|mark| mark.until_ms.unwrap_or(mark.at_ms)).fold(1.0, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / far(furthest, self.finest_ms);
        let mut picture = Picture { body: String::new(), scale, finest_ms: self.finest_ms };
        picture.text(MARGIN, 20.0, &self.title, "class=\"ink\" font-size=\"14\" font-weight=\"bold\"");
        let mut y = 22.0;
        for line in self.notes.iter().flat_map(|note| lines(note)) {
            y += NOTE;
            picture.text(MARGIN, y, &line, "class=\"ink\"");
        }
        let top = y + 16.0;
        let bottom = top + lanes.iter().map(|lane| ROW * lane.marks.len() as f64 + GAP).sum::<f64>();
        picture.scale_of(furthest, top, bottom);
        y = top;
        for lane in lanes {
            picture.lane(y, lane);
            y += ROW * lane.marks.len() as f64 + GAP;
        }
        let height = bottom + 24.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<title>{}</title>\n{STYLE}\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            escaped(&self.title),
            picture.body
        )
    }
}

/// How far to the right a time is, in tenfolds of the finest. What was before the beginning is there.
fn far(ms: f64, finest_ms: f64) -> f64 {
    (1.0 + ms.max(0.0) / finest_ms).log10()
}

/// A tick's time.
fn tick(ms: f64) -> String {
    const SECOND: f64 = 1e3;
    match ms {
        ms if ms < 0.999 => format!("{:.0} µs", ms * 1e3),
        ms if ms < SECOND => format!("{ms:.0} ms"),
        ms => format!("{:.0} s", ms / SECOND),
    }
}

/// A sentence in lines of the picture's width.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && (line + word.chars().count() + 1) as f64 * LETTER > WIDTH - 2.0 * MARGIN {
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

/// As many letters as there is room for.
fn cut(words: &str, room: f64) -> String {
    // Room for a few hundred letters at most, and not below none.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
    shortened(words, (room / LETTER).max(1.0) as usize)
}

struct Picture {
    body: String,
    scale: f64,
    finest_ms: f64,
}

impl Picture {
    fn x(&self, ms: f64) -> f64 {
        LEFT + far(ms, self.finest_ms) * self.scale
    }

    /// Writing into a string does not fail.
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(text);
    }

    fn text(&mut self, x: f64, y: f64, text: &str, style: &str) {
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>\n", escaped(text)));
    }

    /// Thin lines at each tenfold of the finest time that is not at the beginning itself, with their times below.
    fn scale_of(&mut self, furthest: f64, top: f64, bottom: f64) {
        let mut ms = self.finest_ms * 10.0;
        while ms <= furthest {
            let x = self.x(ms);
            self.put(format_args!(
                "<line class=\"rule\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\n",
                top - 6.0
            ));
            self.text(x, bottom + 14.0, &tick(ms), "class=\"faint\" text-anchor=\"middle\"");
            ms *= 10.0;
        }
    }

    fn lane(&mut self, y: f64, lane: &Lane) {
        let class = lane.tone.class();
        self.text(MARGIN, y + 10.0, &lane.name, "class=\"ink\" font-weight=\"bold\"");
        self.put(format_args!(
            "<line class=\"rule\" x1=\"{MARGIN}\" y1=\"{0:.1}\" x2=\"{1:.1}\" y2=\"{0:.1}\"/>\n",
            y + ROW * lane.marks.len() as f64 + 2.0,
            WIDTH - RIGHT
        ));
        for (row, mark) in lane.marks.iter().enumerate() {
            let (begin, y) = (self.x(mark.at_ms), y + 6.0 + ROW * row as f64);
            let title = escaped(&mark.words);
            let end = mark.until_ms.map_or(begin, |until| self.x(until).max(begin + NARROWEST));
            if mark.until_ms.is_some() {
                self.put(format_args!(
                    "<rect class=\"{class}\" x=\"{begin:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"1\">\
                     <title>{title}</title></rect>\n",
                    y - BAR / 2.0,
                    end - begin
                ));
            } else {
                self.put(format_args!(
                    "<circle class=\"{class}\" cx=\"{begin:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{title}</title></circle>\n"
                ));
            }
            // Words stand on the side that has room for them, or more of it.
            let (left, right) = (begin - BESIDE - LEFT, WIDTH - MARGIN - end - BESIDE);
            let wanted = mark.words.chars().count() as f64 * LETTER;
            let is_right = wanted <= right || right >= left;
            let (x, anchor, room) =
                if is_right { (end + BESIDE, "start", right) } else { (begin - BESIDE, "end", left) };
            self.text(x, y + 4.0, &cut(&mark.words, room), &format!("class=\"ink\" text-anchor=\"{anchor}\""));
        }
    }
}

/// Text as it may stand in XML. What no XML may have at all is left out.
#[must_use]
pub fn escaped(text: &str) -> String {
    let allowed =
        text.chars().filter(|character| !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}'));
    let allowed: String = allowed.collect();
    allowed.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
