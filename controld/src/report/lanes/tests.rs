//! A fault drawn in lanes: what stands where, and what is cut off.

use super::*;

fn chart(words: &str) -> Chart {
    let mark = |at_ms, until_ms, words: &str| Mark { at_ms, until_ms, words: words.to_owned() };
    let marks = vec![mark(-1.0, None, "before"), mark(0.5, Some(0.5), words), mark(40.0, Some(9000.0), words)];
    let lane = |marks| Lane { name: "one & only".into(), tone: Tone::Harm, marks };
    Chart {
        title: "a <title>".into(),
        notes: vec![words.to_owned()],
        finest_ms: 0.01,
        lanes: vec![lane(marks), lane(Vec::new())],
    }
}

#[test]
fn nothing_is_outside_of_the_picture_and_what_is_cut_is_whole_in_a_title() {
    for words in ["short", "a \u{1}<&>\"' ] word and another one ".repeat(30).as_str()] {
        let drawn = chart(words).draw();
        let document = roxmltree::Document::parse(&drawn).unwrap_or_else(|error| panic!("{error}: {drawn}"));
        let number = |node: roxmltree::Node<'_, '_>, name| -> f64 {
            node.attribute(name).map_or(0.0, |text| text.parse().unwrap_or(f64::NAN))
        };
        let of = |name: &'static str| document.descendants().filter(move |node| node.has_tag_name(name));
        let bars: Vec<(f64, f64)> = of("rect")
            .filter(|node| node.attribute("class") == Some("harm"))
            .map(|node| (number(node, "x"), number(node, "width")))
            .collect();
        assert_eq!(bars.len(), 2, "{drawn}");
        assert!(bars.iter().all(|(x, width)| *x >= LEFT && *width >= NARROWEST && x + width <= WIDTH), "{bars:?}");
        for node in of("text").filter(|node| node.attribute("font-weight").is_none()) {
            let (x, length) = (number(node, "x"), node.text().unwrap_or_default().chars().count() as f64 * LETTER);
            let (begin, end) = match node.attribute("text-anchor") {
                Some("end") => (x - length, x),
                Some("middle") => (x - length / 2.0, x + length / 2.0),
                _ => (x, x + length),
            };
            assert!(begin >= 0.0 && end <= WIDTH, "{begin} to {end}: {node:?}");
        }
        let whole: String = words.chars().filter(|character| !character.is_control()).collect();
        assert_eq!(of("title").filter(|node| node.text() == Some(&whole)).count(), 2, "{drawn}");
        assert_eq!(drawn.matches("one &amp; only").count(), 1, "a lane without marks is left out: {drawn}");
    }
}

#[test]
fn ticks_are_tenfolds_in_a_unit_that_shows_their_size() {
    let drawn = chart("x").draw();
    for expected in ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"] {
        assert!(drawn.contains(&format!(">{expected}</text>")), "{expected}: {drawn}");
    }
    assert!(!drawn.contains(">10 s</text>"), "{drawn}");
}
