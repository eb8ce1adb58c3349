//! Every case is a whole program, and stays one when it is written and read.

use super::super::plan::Plan;
use super::*;

#[test]
fn nothing_of_a_case_is_left_out() {
    for case in all() {
        let left_out: Vec<usize> = Plan::new(&case.program, 2)
            .steps
            .iter()
            .enumerate()
            .filter(|(_, step)| step.is_none())
            .map(|(at, _)| at)
            .collect();
        assert!(left_out.is_empty(), "{}: {left_out:?}\n{}", case.name, case.program);
    }
}

#[test]
fn the_gpu_suite_names_a_case() {
    let suite = include_str!("../../../../gpu/checker.py");
    let named = suite.lines().find_map(|line| line.strip_prefix("CASE_BESIDE = ")).expect("it names one");
    assert!(all().iter().any(|case| named == format!("{:?}", case.name)), "{named}");
}

/// A recovery of the second device in the middle takes nothing from what the first one has done by then.
#[test]
fn reading_all_proves_device_by_device() {
    let mut ops = two_blocks(0);
    let copy = What::Copy {
        to: all_of(0),
        from: all_of(1),
        cells: CELLS,
        on: Queue::Null(0),
        is_async: true,
        is_generic: false,
    };
    let at = ops.len();
    ops.extend([(0, copy), (0, What::ReadAll)]);
    let plan = Plan::new(&program(ops), 2);
    let step = plan.steps.last().and_then(Option::as_ref).expect("it is let in");
    let stages: Vec<bool> = step.stages.iter().map(|proven| proven.contains(at)).collect();
    assert_eq!(stages, [true, false]);
}

#[test]
fn a_program_is_the_same_after_it_was_written_and_read() {
    for case in all() {
        let text = serde_json::to_string(&case.program).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Program>(&text).expect("its own words"), case.program);
    }
}
