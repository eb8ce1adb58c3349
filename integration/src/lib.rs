//! The lab: peers, programs and tests that run the daemon as a black box.

pub mod bench;
pub mod demo;
pub mod fault_picture;
pub mod lab;
pub mod nvml;
pub mod programs;
pub mod server_sim;
pub mod shim;
pub mod sim;
pub mod under_test;
pub mod vendor;
pub mod vendor_sim;
