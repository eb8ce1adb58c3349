//! JSON in lines that pass the wire whole.
//!
//! The wire carries an answer in packets of at most 4,096 bytes of text, and the program at the other end makes a line
//! of each. A longer JSON object would come apart there. So one that is too long is made shorter: first long texts are
//! cut, then long lists, harder and harder until it fits. What was cut shows: texts end in `…`, and the object has
//! `"cut":true`.

use remps_proto::admin::reply::MAX_TEXT;
use serde::Serialize;
use serde_json::Value;

/// The longest line, in bytes.
pub(crate) const LINE_LIMIT: usize = MAX_TEXT;

/// How long texts (in characters) and lists may be, in the order in which it is tried.
const MEASURES: [(usize, usize); 6] = [(1024, 256), (256, 256), (128, 64), (64, 32), (16, 8), (4, 2)];

/// Something as one line of JSON of at most [`LINE_LIMIT`] bytes.
pub(crate) fn fitted(value: &impl Serialize) -> String {
    fitted_within(value, LINE_LIMIT)
}

/// Something as one line of JSON of at most `limit` bytes.
pub(crate) fn fitted_within(value: &impl Serialize, limit: usize) -> String {
    // Our own types have string keys and no number that JSON can't say.
    let line = serde_json::to_string(value).unwrap_or_default();
    if line.len() <= limit {
        return line;
    }
    let whole = serde_json::to_value(value).unwrap_or_default();
    for (text, list) in MEASURES {
        let mut shorter = whole.clone();
        cut(&mut shorter, text, list);
        if let Value::Object(map) = &mut shorter {
            map.insert("cut".to_owned(), Value::Bool(true));
        }
        let line = shorter.to_string();
        if line.len() <= limit {
            return line;
        }
    }
    // Not even its numbers fit, which no type of ours has so many of.
    "{\"cut\":true}".to_owned()
}

fn cut(value: &mut Value, text: usize, list: usize) {
    match value {
        Value::String(string) => {
            if let Some((at, _)) = string.char_indices().nth(text) {
                string.truncate(at);
                string.push('…');
            }
        }
        Value::Array(values) => {
            values.truncate(list);
            values.iter_mut().for_each(|value| cut(value, text, list));
        }
        Value::Object(map) => map.values_mut().for_each(|value| cut(value, text, list)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_fits_is_left_alone() {
        assert_eq!(fitted(&json!({"b": 1, "a": "x"})), r#"{"a":"x","b":1}"#);
    }

    #[test]
    fn the_longest_texts_are_cut_first_and_say_so() {
        let line = fitted(&json!({"pid": 42, "kind": "memory fault", "command": "x".repeat(9000)}));
        let value: Value = serde_json::from_str(&line).expect("whole JSON");
        assert_eq!((&value["pid"], &value["kind"], &value["cut"]), (&json!(42), &json!("memory fault"), &json!(true)));
        assert!(value["command"].as_str().expect("text").ends_with('…'));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_line_is_short_enough_and_whole(
            texts in prop::collection::vec("\\PC{0,800}|[\\x00-\\x1f]{0,1200}", 0..8),
            numbers in prop::collection::vec(any::<u64>(), 0..2000),
        ) {
            let line = fitted(&json!({"texts": texts, "numbers": numbers, "kept": 7}));
            prop_assert!(line.len() <= LINE_LIMIT);
            let value: Value = serde_json::from_str(&line).expect("whole JSON");
            prop_assert_eq!(&value["kept"], &json!(7));
        }
    }
}
