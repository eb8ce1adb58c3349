//! What the simulated `nvidia-cuda-mps-server` and the simulated `libcuda.so.1` share.
//!
//! The control wire itself is `remps_proto::mps`; here are the sockets it travels over ([`seqpacket`]), the messages
//! that the two simulations exchange over their pipes once the real handshake is done ([`rpc`]; NVIDIA's are not
//! known), the hardware both pretend to have ([`hardware`]), the classes of fault ([`fault`]) and the stand-in for a
//! client's UVM descriptor ([`uvm`]).

pub mod fault;
pub mod hardware;
pub mod rpc;
pub mod script;
pub mod seqpacket;
pub mod uvm;
