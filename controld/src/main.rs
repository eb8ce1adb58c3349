//! The daemon and its command line, one binary.

fn main() {}
