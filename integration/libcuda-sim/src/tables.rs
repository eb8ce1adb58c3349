//! The tables in which the driver finds what a program names.
//!
//! Their hashes are the same in every process, where those of the standard library begin with a random number: one key in
//! a hundred or so then met another one that looks the same at first, and a call ran some ninety instructions more than in
//! the process beside it. What a library in front of the driver adds to a call is found by comparing two processes.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Values by key.
pub(crate) type Table<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
/// Keys alone.
pub(crate) type Keys<K> = HashSet<K, BuildHasherDefault<DefaultHasher>>;

#[cfg(test)]
mod tests {
    use super::{Keys, Table};
    use std::hash::BuildHasher;

    #[test]
    fn two_tables_have_the_same_hashes() {
        let [one, other] = [Table::<u64, ()>::default(), Table::default()];
        let hashes = |table: &Table<u64, ()>| [1_u64, 2, 1 << 40].map(|key| table.hasher().hash_one(key));
        assert_eq!(hashes(&one), hashes(&other));
        assert_eq!(hashes(&one)[0], Keys::<u64>::default().hasher().hash_one(1_u64));
    }
}
