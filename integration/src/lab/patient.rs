//! Settings of a daemon under test whose default a machine that stands still would run into.
//!
//! A server that does nothing for `silence` gets no newcomers. Where a test is not about that, the time is so long that
//! it can't be what decides: whether a process of the machine runs within a second is not for a test to say.

/// The table that has it.
const TABLE: &str = "[faults]\n";
/// Longer than any test.
const SILENCE: &str = "silence = 3600\n";

/// A configuration with what a test wants and with patience in all that it does not speak of.
#[must_use]
pub fn patient(wanted: &str) -> String {
    if wanted.contains("silence") {
        wanted.to_owned()
    } else if wanted.contains(TABLE) {
        wanted.replacen(TABLE, &format!("{TABLE}{SILENCE}"), 1)
    } else {
        format!("{wanted}\n{TABLE}{SILENCE}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_says_itself_is_left_as_it_is() {
        assert_eq!(patient("[faults]\nsilence = 1\n"), "[faults]\nsilence = 1\n");
        assert_eq!(patient("[faults]\nvictims_timeout = 1\n"), "[faults]\nsilence = 3600\nvictims_timeout = 1\n");
        assert_eq!(patient("kill_timeout = 1\n"), "kill_timeout = 1\n\n[faults]\nsilence = 3600\n");
    }
}
