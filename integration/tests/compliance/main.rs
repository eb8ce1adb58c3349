//! What users of NVIDIA's control program rely on, CT-01 to CT-29: claims that the vendor's program passes too.
//!
//! `MPS_UNDER_TEST=theirs cargo test -p integration --test compliance` runs them against NVIDIA's.

mod cli;
mod goldens;
mod lifetime;
mod limits;
mod log;
mod man;
mod orchestrators;
mod partitions;
mod peers;
mod users;
