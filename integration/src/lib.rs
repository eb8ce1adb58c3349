//! The lab: peers, programs and tests that run the daemon as a black box.

pub mod server_sim;
