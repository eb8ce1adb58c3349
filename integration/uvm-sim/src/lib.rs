//! Stands in for the UVM kernel module in one process, which does not know: preloaded into the daemon or a program of
//! the lab, beside clients on the simulated driver.
//!
//! In that process, once `MPS_SIM_UVM_DIR` names a directory,
//! - `/proc/devices` lists `nvidia-uvm`;
//! - the stand-ins for clients' descriptors ([`sim_wire::uvm`]) have the device number of `/dev/nvidia-uvm`, and memory
//!   that the simulated driver has exported that of `/dev/nvidiactl`;
//! - `/dev/nvidia-uvm-tools` can be opened, and behaves as `uvm_tools.c` of NVIDIA's open kernel modules does: the same
//!   checks and answers, in the structure of the release that is asked for, a copy of the client's open file kept, and
//!   a queue that is filled with the faults that the simulated driver library tells of ([`sim_wire::tools`]).
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `MPS_SIM_UVM_DIR` | where faults are told | everything is as it is |
//! | `MPS_SIM_UVM_RELEASE` | branch of the driver: it decides over structures and ioctls | 580 |
//! | `MPS_SIM_UVM_TOOLS` | `missing`: there is no tools device; `forbidden`: it may not be opened | works |
//! | `MPS_SIM_UVM_MODULE` | a file; the module is loaded when it is there | is loaded |
//! | `MPS_SIM_UVM_INIT_MS` | how long the driver takes to begin a client's queue | 0 |
//! | `MPS_SIM_UVM_STAY_AGAIN` | set: who looks again at a client that is watched never gets an answer | answers |
//! | `MPS_SIM_UVM_TABLE_MS` | how long the driver takes to say which GPUs a client has | 0 |
//! | `MPS_SIM_DEVICES` | the GPUs, as for the server | one |
//!
//! | module | is |
//! |---|---|
//! | [`entry`] | the C library's functions that are put in front of the real ones |
//! | [`real`] | the real ones |
//! | [`release`] | the structures by release |
//! | [`device`] | the tools device: trackers, queues, events |
//! | [`stand_in`] | what is known of a descriptor |
#![expect(unsafe_code, reason = "functions with C names, and memory that the program gives as a kernel would take it")]

mod device;
mod entry;
mod real;
mod release;
mod stand_in;
