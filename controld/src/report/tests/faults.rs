//! The list of faults: which it has, how much of each fits a line, and who may see what.

use super::*;

#[test]
fn the_fault_list_has_the_newest_oldest_first() {
    let ledger = ledger((1..=300).map(|number| verdict(number, Some((42, 1000)), vec![43])));
    let lines = ledger.list(OWNER, Some(2), WIDE);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("FAULT  TIME"));
    assert!(lines[1].starts_with("299    2026-11-20T12:00:00.123Z  42       1000  certain  memory fault  0x7f001000"));
    assert!(lines[2].starts_with("300 ") && !lines[2].contains('\n'), "{}", lines[2]);
    assert_eq!(ledger.list(OWNER, None, WIDE).len(), 256 + 1, "what is remembered is bounded");
    assert_eq!(ledger.against(42, 77).len(), 256);
    assert!(ledger.against(42, 78).is_empty(), "a later process with the same pid is another one");
}

#[test]
fn the_fault_list_fits_a_terminal_unless_all_of_it_is_asked_for() {
    let mut long = verdict(1, Some((42, 1000)), vec![43]);
    long.domain = format!("user 1000, cgroup /kubepods.slice/{}", "x".repeat(80));
    let ledger = ledger([long.clone()]);
    let lines = ledger.list(OWNER, None, TABLE);
    let heading: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(heading, ["FAULT", "TIME", "CULPRIT", "SURE", "VICTIMS", "DOMAIN"]);
    assert_eq!(lines[1], "    KIND          COMMAND");
    let begins = "1      2026-11-20T12:00:00Z  42       certain  1        user 1000, cgro…xxxxxxxx";
    assert!(lines[2].starts_with(begins), "{}", lines[2]);
    assert_eq!(lines[3], "    memory fault  python train.py\\u{1b}[2J\\u{a}0");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    let utc = ledger.list(OWNER, None, Output { utc: true, ..TABLE });
    assert!(utc[2].starts_with("1      2026-11-20 12:00:00Z  42"), "{}", utc[2]);
    let wide = ledger.list(OWNER, None, WIDE);
    assert!(wide[1].contains(&long.domain) && !wide[1].contains('…'), "{}", wide[1]);
}

#[test]
fn verdicts_with_much_to_say_are_fewer_in_memory() {
    let wordy = |number| {
        let mut verdict = verdict(number, Some((42, 1000)), vec![43]);
        let testimony = Testimony { text: "x".repeat(256), ..verdict.witnesses[0].clone() };
        verdict.witnesses = vec![testimony; 64];
        verdict
    };
    let ledger = ledger((1..=300).map(wordy));
    let lines = ledger.list(OWNER, None, WIDE);
    assert!((5..20).contains(&lines.len()), "{}", lines.len());
    assert!(lines.last().is_some_and(|newest| newest.starts_with("300 ")), "{lines:?}");
}

#[test]
fn a_fault_is_shown_to_those_it_hit_without_what_is_private() {
    let ledger = ledger([verdict(1, Some((42, 1000)), vec![43])]);
    let shown = |uid| ledger.list(Viewer { uid, privileged: false, within: None }, None, JSON).join("\n");
    assert!(shown(1000).contains("train.py"));
    assert!(shown(1001).contains("\"pid\":42") && !shown(1001).contains("train.py") && !shown(1001).contains("secret"));
    assert_eq!(shown(1002), "");
    let value: Value = serde_json::from_str(&shown(1001)).expect("one object");
    assert_eq!(value["time"], "2026-11-20T12:00:00.123Z");
}

#[test]
fn an_earlier_daemons_faults_are_shown_as_its_own_to_the_owner_alone() {
    let own = ledger([verdict(1, Some((42, 1000)), vec![43])]);
    let mut earlier = FaultLedger::default();
    let verdict = serde_json::to_string(&verdict(1, Some((42, 1000)), vec![43])).expect("serialises");
    earlier.push(Fault::Earlier { time: "2026-11-20T12:00:00.123Z".to_owned(), verdict });
    assert_eq!(earlier.list(OWNER, None, WIDE), own.list(OWNER, None, WIDE));
    assert_eq!(earlier.list(OWNER, None, JSON), own.list(OWNER, None, JSON));
    assert_eq!(earlier.list(ALICE, None, JSON), Vec::<String>::new());
    let mut nonsense = FaultLedger::default();
    nonsense.push(Fault::Earlier { time: "\x1b[2J".to_owned(), verdict: "[1, {\"culprit\": 7}]".to_owned() });
    assert_eq!(nonsense.list(OWNER, None, WIDE).len(), 2);
}
