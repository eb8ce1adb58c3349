//! Aligned tables that fit a terminal.
//!
//! A table of which all is wanted has columns as wide as their widest cell. One for a terminal takes three steps, each
//! only where the one before was not enough: columns of texts are cut to no less than [`LEAST`], and show where;
//! then the last columns go on a second line of each row, below the first and indented, with their names in a second
//! line of the heading; then on a third. Numbers are never cut.

use super::text::{WIDEST, shortened};
use remps_proto::admin::Form;

/// Blanks between two columns of a table.
const GAP: usize = 2;
/// Blanks before the further lines of a row.
const INDENT: usize = 4;
/// The headings of columns that may be cut: texts, and names that are told apart by their ends.
const MAY_BE_CUT: [&str; 9] = ["DOMAIN", "STATE", "COMMAND", "CGROUP", "GPU", "NAME", "KIND", "METRIC", "LABELS"];
/// How wide a column is at least that is cut.
const LEAST: usize = 12;

/// Rows under a heading, in columns two blanks apart.
pub(crate) fn aligned(heading: &[&str], rows: &[Vec<String>], form: Form) -> Vec<String> {
    let heading: Vec<String> = heading.iter().map(|&word| word.to_owned()).collect();
    let rows: Vec<&Vec<String>> = std::iter::once(&heading).chain(rows).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let mut widths: Vec<usize> = (0..heading.len()).map(|column| width(column).unwrap_or_default()).collect();
    let ends = if form == Form::Table { fitted(&heading, &mut widths) } else { vec![heading.len()] };
    rows.iter().flat_map(|row| lines(row, &widths, &ends)).collect()
}

/// The lines of a row, each with the columns up to the next end.
fn lines(row: &[String], widths: &[usize], ends: &[usize]) -> Vec<String> {
    let mut begin = 0;
    let line = |end: &usize| {
        let columns = std::mem::replace(&mut begin, *end)..*end;
        let indent = if columns.start == 0 { String::new() } else { " ".repeat(INDENT) };
        let cells = columns.filter_map(|column| row.get(column).zip(widths.get(column)));
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{:<width$}", shortened(cell, *width))).collect();
        (indent + &cells.join(&" ".repeat(GAP))).trim_end().to_owned()
    };
    ends.iter().map(line).collect()
}

/// Makes columns narrower until their lines fit, and says behind which columns a line ends.
fn fitted(heading: &[String], widths: &mut [usize]) -> Vec<usize> {
    let is_cut = |column: usize| MAY_BE_CUT.contains(&heading[column].as_str());
    let least = |column: usize, width: usize| if is_cut(column) { width.min(LEAST) } else { width };
    let mut ends = Vec::new();
    let (mut begin, mut used) = (0, 0);
    for (column, width) in widths.iter().enumerate() {
        let needed = GAP + least(column, *width);
        if column > begin && used + needed > WIDEST + GAP {
            ends.push(column);
            begin = column;
            used = INDENT;
        }
        used += needed;
    }
    ends.push(widths.len());
    let mut begin = 0;
    for end in &ends {
        let indent = if begin == 0 { 0 } else { INDENT };
        narrow(begin..*end, widths, WIDEST - indent, is_cut);
        begin = *end;
    }
    ends
}

/// Takes what the columns of one line have too much from the widest of those that may be cut.
fn narrow(columns: std::ops::Range<usize>, widths: &mut [usize], room: usize, is_cut: impl Fn(usize) -> bool) {
    let gaps = GAP * columns.len().saturating_sub(1);
    let excess = (widths[columns.clone()].iter().sum::<usize>() + gaps).saturating_sub(room);
    for _ in 0..excess {
        let may_be_cut = columns.clone().filter(|column| is_cut(*column) && widths[*column] > LEAST);
        let Some(widest) = may_be_cut.max_by_key(|column| widths[*column]) else {
            return;
        };
        widths[widest] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    #[test]
    fn texts_are_cut_before_columns_go_to_a_second_line() {
        let long = "x".repeat(100);
        let rows = [row(&["1", &long, "2"])];
        let lines = aligned(&["CLIENT", "COMMAND", "SERVER"], &rows, Form::Table);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].ends_with("x  2") && lines[1].chars().count() == 80 - "SERVER".len() + 1, "{}", lines[1]);
        assert!(aligned(&["CLIENT", "COMMAND"], &rows, Form::Wide)[1].contains(&long));
    }

    #[test]
    fn columns_that_do_not_fit_stand_below_with_their_names() {
        let number = "1".repeat(38);
        let rows = [row(&[&number, &number, "user 1000", "python train.py"])];
        let lines = aligned(&["A", "B", "DOMAIN", "COMMAND"], &rows, Form::Table);
        let blanks = " ".repeat(38 + 1);
        let first = format!("A{blanks}B");
        assert_eq!(
            lines,
            [
                first.as_str(),
                "    DOMAIN     COMMAND",
                &format!("{number}  {number}"),
                "    user 1000  python train.py"
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_line_is_longer_than_a_terminal_and_no_number_is_cut(
            rows in prop::collection::vec(prop::collection::vec("[0-9]{1,20}", 8), 0..4),
            texts in prop::collection::vec("\\PC{0,120}", 4),
        ) {
            let heading = ["FAULT", "TIME", "CULPRIT", "UID", "DOMAIN", "COMMAND", "VICTIMS", "GPU"];
            let mut rows = rows;
            for row in &mut rows {
                row[4].clone_from(&texts[0]);
                row[5].clone_from(&texts[1]);
                row[7].clone_from(&texts[2]);
            }
            let lines = aligned(&heading, &rows, Form::Table);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= WIDEST), "{lines:?}");
            let whole = lines.join("\n");
            for number in rows.iter().flat_map(|row| [&row[0], &row[1], &row[2], &row[3], &row[6]]) {
                prop_assert!(whole.contains(number.as_str()), "{number} in {whole}");
            }
        }
    }
}
