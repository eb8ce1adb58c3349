//! The golden commands: ninety answers of four releases, by pure code and by a daemon.

use integration::lab::Lab;
use integration::lab::golden::{self, Row};
use integration::under_test::{self, Skipped, Subject};
use remps_proto::admin::defaults::{answer_before_server, answer_without_server};
use remps_proto::admin::{Command, Defaults, Personality};

const GOLDENS: [(Personality, &str); 4] = [
    (Personality::V535, include_str!("../../goldens/535.txt")),
    (Personality::V550, include_str!("../../goldens/550.txt")),
    (Personality::V555, include_str!("../../goldens/555.txt")),
    (Personality::V580, include_str!("../../goldens/580.txt")),
];
const IMPROVEMENTS: &str = include_str!("../../goldens/IMPROVEMENTS.md");

/// Our answer where it differs on purpose.
fn improvement(personality: Personality, command: &str) -> Option<Vec<u8>> {
    improvements().find_map(|(releases, known, ours)| {
        let meant = releases.split_whitespace().any(|release| release == personality.to_string());
        (meant && known == command.as_bytes()).then_some(ours)
    })
}

fn improvements() -> impl Iterator<Item = (&'static str, Vec<u8>, Vec<u8>)> {
    IMPROVEMENTS.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (releases, command, ours) = (cells.next()?, cells.next()?, cells.next()?);
        let literal =
            |cell: &str| Some(golden::literal(cell.strip_prefix('`').filter(|cell| cell.starts_with('\''))?).0);
        Some((releases, literal(command)?, literal(ours)?))
    })
}

/// Rows whose answer names the machine's GPU.
fn needs_a_gpu(row: &Row) -> bool {
    row.command.starts_with("device_query") && row.stdout.starts_with(b"Default")
}

#[test]
fn every_answer_that_needs_no_server_comes_from_pure_code() {
    for (personality, text) in GOLDENS {
        let mut defaults = Defaults::default();
        let mut compared = 0;
        for row in golden::rows(text).iter().take_while(|row| !row.command.starts_with("quit")) {
            let command = Command::parse(row.command.as_bytes(), personality);
            let answer = defaults
                .apply(&command)
                .map(|applied| applied.answer)
                .or_else(|| answer_before_server(&command, personality))
                .or_else(|| answer_without_server(&command));
            let Some(answer) = answer else {
                assert!(needs_a_gpu(row), "{personality}: no answer to {:?}", row.command);
                continue;
            };
            let printed: Vec<u8> = answer.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            let want = improvement(personality, &row.command).unwrap_or_else(|| row.stdout.clone());
            assert_eq!(
                String::from_utf8_lossy(&printed),
                String::from_utf8_lossy(&want),
                "{personality}: {:?}",
                row.command
            );
            compared += 1;
        }
        assert!(compared >= 85, "only {compared} rows of {personality} were compared");
    }
}

#[test]
fn every_improvement_is_one() {
    let mut count = 0;
    for (releases, command, ours) in improvements() {
        for (personality, text) in GOLDENS {
            if !releases.split_whitespace().any(|release| release == personality.to_string()) {
                continue;
            }
            let rows = golden::rows(text);
            let row = rows.iter().find(|row| row.command.as_bytes() == command).expect("a golden command");
            assert_ne!(row.stdout, ours, "{personality}: {:?} is no improvement", row.command);
            count += 1;
        }
    }
    assert!(count > 0, "no row of the table was understood");
}

/// Every release with a golden file, or the vendor's own.
fn golden_subjects() -> Result<Vec<Subject>, Skipped> {
    if under_test::theirs() {
        under_test::subjects()
    } else {
        Ok(GOLDENS.iter().map(|(personality, _)| Subject::ours(*personality)).collect())
    }
}

#[test]
fn ct_08_the_golden_commands_are_answered_to_the_byte() {
    under_test::for_each(golden_subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let (_, text) =
            GOLDENS.iter().find(|(personality, _)| *personality == subject.personality).expect("a golden file");
        let mut differences = Vec::new();
        for row in golden::rows(text) {
            if needs_a_gpu(&row) {
                continue;
            }
            let finished = lab.run(&[], format!("{}\n", row.command).as_bytes());
            let improved = if subject.ours { improvement(subject.personality, &row.command) } else { None };
            let want = improved.unwrap_or_else(|| row.stdout.clone());
            if (finished.code, &finished.stdout, &finished.stderr) != (Some(row.status), &want, &row.stderr) {
                differences.push(format!("{:?}: {finished:?}, golden {row:?}", row.command));
            }
        }
        assert!(differences.is_empty(), "{subject}:\n{}", differences.join("\n"));
    });
}

#[test]
fn several_commands_are_answered_in_order_whatever_ends_their_lines() {
    under_test::for_each(under_test::subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let two = "get_default_active_thread_percentage\nget_default_client_priority\n";
        assert_eq!(lab.ask(two), "100.0\n0\n", "{subject}");
        assert_eq!(lab.ask("get_default_active_thread_percentage"), "100.0\n", "{subject}");
        assert_eq!(lab.ask("get_default_active_thread_percentage\r\n"), "100.0\n", "{subject}");
        assert_eq!(lab.ask(""), "", "{subject}");
        assert_eq!(lab.ask("x\0y\nps\n"), "Unknown command \"x\"\nServer not found\n", "{subject}");
    });
}
