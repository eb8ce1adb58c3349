//! `metrics` for people and for programs that read JSON: the samples of Prometheus' text format one by one.

use super::fitted;
use super::table::aligned;
use super::text::{NOTHING, harmless};
use remps_proto::admin::Form;
use serde_json::{Map, Value};

const HEADING: [&str; 3] = ["METRIC", "VALUE", "LABELS"];

/// A sample's name, its labels by name, and its value.
type Sample<'a> = (&'a str, Vec<(String, String)>, &'a str);

/// The samples of a text in Prometheus' format, in a table or as one JSON object a line: `{"metric":…,"labels":{…},
/// "value":…}`. A value that JSON has no number for, as `NaN`, is a string.
pub(crate) fn sample_list(prometheus: &str, form: Form) -> Vec<String> {
    let samples = prometheus.lines().filter(|line| !line.starts_with('#')).filter_map(sample);
    if form == Form::Json {
        let object = |(name, labels, value): Sample<'_>| {
            let number = value.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number);
            let labels: Map<String, Value> = labels.into_iter().map(|(key, value)| (key, value.into())).collect();
            fitted(&serde_json::json!({
                "metric": name, "labels": labels, "value": number.unwrap_or_else(|| value.into()),
            }))
        };
        return samples.map(object).collect();
    }
    let row = |(name, labels, value): Sample<'_>| {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={}", harmless(value))).collect();
        let labels = if labels.is_empty() { NOTHING.to_owned() } else { labels.join(" ") };
        vec![name.to_owned(), value.to_owned(), labels]
    };
    aligned(&HEADING, &samples.map(row).collect::<Vec<_>>(), form)
}

/// A sample's name, labels and value; `None` where the line is none.
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while let Some((key, after)) = rest.split_once("=\"") {
            let (value, after) = quoted(after)?;
            labels.push((key.to_owned(), value));
            rest = match after.strip_prefix(',') {
                Some(more) => more,
                None => after,
            };
            if rest.starts_with('}') {
                break;
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    Some((name, labels, rest.split_whitespace().next()?))
}

/// A label's value up to its closing quote, with its escapes undone, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = "# HELP remps_up x\n# TYPE remps_up gauge\nremps_up 1\n\
                        remps_clients{uid=\"7\",domain=\"a \\\"b\\\", {c}\\n\"} 2.5\nremps_odd{} NaN\n";

    #[test]
    fn every_sample_is_told_with_its_labels() {
        let objects: Vec<Value> =
            sample_list(TEXT, Form::Json).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let clients =
            json!({"metric": "remps_clients", "labels": {"uid": "7", "domain": "a \"b\", {c}\n"}, "value": 2.5});
        let odd = json!({"metric": "remps_odd", "labels": {}, "value": "NaN"});
        assert_eq!(objects, [json!({"metric": "remps_up", "labels": {}, "value": 1.0}), clients, odd]);
        let table = sample_list(TEXT, Form::Table);
        assert_eq!(table[0], "METRIC         VALUE  LABELS");
        assert_eq!(table[1], "remps_up       1      -");
        assert_eq!(table[2], "remps_clients  2.5    uid=7 domain=a \"b\", {c}\\u{a}");
    }
}
