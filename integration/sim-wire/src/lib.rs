//! What the simulated `nvidia-cuda-mps-server` and the simulated `libcuda.so.1` share.
//!
//! The control wire itself is `remps_proto::mps`; here are the sockets it travels over ([`seqpacket`]), the messages
//! that the two simulations exchange over their pipes once the real handshake is done ([`rpc`]; NVIDIA's are not
//! known), the hardware both pretend to have ([`hardware`]), the classes of fault ([`fault`]), the stand-ins for a
//! client's UVM descriptors ([`uvm`], of [`memory_file`]s) and the news of its faults ([`tools`]).

pub mod fault;
pub mod hardware;
pub mod memory_file;
pub mod rpc;
pub mod script;
pub mod seqpacket;
pub mod tools;
pub mod uvm;
