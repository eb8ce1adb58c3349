//! What somebody may have meant who wrote a word that is not known.

/// How many words are named at most.
const MOST: usize = 3;
/// In characters: a shorter part of a word says nothing about the whole.
const SHORTEST_PART: usize = 4;

/// Those of the known words that are near this one, nearest first.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    let mut near: Vec<(usize, &'a str)> =
        known.iter().filter_map(|known| Some((farness(word, known)?, *known))).collect();
    near.sort_unstable();
    near.into_iter().take(MOST).map(|(_, known)| known).collect()
}

/// How far two words are from each other; `None` when nobody would take the one for the other.
fn farness(word: &str, known: &str) -> Option<usize> {
    let (length, other) = (word.chars().count(), known.chars().count());
    let most = length / 3;
    let is_part = length.min(other) >= SHORTEST_PART && (known.contains(word) || word.contains(known));
    if is_part {
        return Some(length.abs_diff(other));
    }
    // Comparing takes the product of both lengths, and a word may be as long as a file.
    if length.abs_diff(other) > most {
        None
    } else {
        Some(strsim::osa_distance(word, known)).filter(|distance| *distance <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["drain_timeout", "kill_timeout", "kmsg", "by", "sharing"];

    #[test]
    fn a_slip_of_the_finger_is_seen_through() {
        for (word, meant) in [
            ("sharin", "sharing"),
            ("shraing", "sharing"),
            ("kmgs", "kmsg"),
            ("drain_timeuot", "drain_timeout"),
            ("drain-timeout", "drain_timeout"),
        ] {
            assert_eq!(nearest(word, &KNOWN), [meant], "{word}");
        }
    }

    #[test]
    fn a_part_of_a_word_may_be_meant_for_each_that_has_it() {
        assert_eq!(nearest("timeout", &KNOWN), ["kill_timeout", "drain_timeout"]);
        assert_eq!(nearest("kmsg_path", &KNOWN), ["kmsg"]);
    }

    #[test]
    fn nothing_is_guessed_of_what_is_like_nothing() {
        for word in ["", "b", "byte", "domain", &*"x".repeat(1 << 20)] {
            assert_eq!(nearest(word, &KNOWN), Vec::<&str>::new());
        }
    }
}
