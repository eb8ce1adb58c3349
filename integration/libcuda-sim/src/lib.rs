//! A simulated CUDA driver library that speaks the real MPS wire.
//!
//! It is a `libcuda.so.1` with enough of the driver API for a small program, for machines without a GPU. Device memory
//! is host memory, VMM allocations are memory files (so memory survives exactly as long as a descriptor is open),
//! kernels are host functions found by the name of the `.entry` in the module's PTX text ([`kernel`]). Whether it runs
//! under MPS, what the handshake looks like ([`mps`]), who gets which error after a fault and which of them can be
//! cured is as measured on an H200 with driver 580.159.04. It is a stand-in for hardware, never for logic under test.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `CUDA_MPS_PIPE_DIRECTORY` | where the daemon's `control` socket is | `/tmp/nvidia-mps` |
//! | `MPS_SIM_DEVICES` | number or comma-separated names of the GPUs | one `NVIDIA H200` |
//! | `MPS_SIM_OWN_FAULT_MS` | from a fault to the culprit's own error, but for memory faults | 5; of a trap, if the server has not told it by then, 60000 under MPS |
//! | `MPS_SIM_OWN_MEMORY_FAULT_MS` | from a memory fault to its culprit's own error, if the server has not told it by then | 60000 under MPS, else 15 |
//! | `MPS_SIM_CALLS_BACK` | a function that asks first, by the public name, which context is current, as a profiler does that has the driver call it; it answers 999 where that fails | none |
//! | `MPS_SIM_COPY_MS` | how long a copy takes before it touches memory | 0 |
//! | `MPS_SIM_FAULT_GATE` | a FIFO: a kernel does wrong when somebody has opened it for writing | at once |
//! | `MPS_SIM_UVM_DIR` | where tools devices listen for memory faults | nobody is told |
//! | `MPS_SIM_UVM_EVENT_US` | from a memory fault to their event, in microseconds | 300 |
//! | `MPS_SIM_END_AT` | `COPY:FUNCTION[:CALL]`: the process is killed when that copy of the library is called so | |
//! | `MPS_SIM_FAIL_AT` | the same, and the function answers 999, or this: `COPY:FUNCTION:CALL:CODE`; one that makes a context closes descriptor 0 | |
//! | `MPS_SIM_STAY_AT` | the same, and the function never returns, or after so many milliseconds: `COPY:FUNCTION:CALL:TIME` | |
//! | `MPS_SIM_FIRST_TEXTURE` | `COPY:VALUE`: in that copy the values of texture objects count from there | 1 |
//! | `MPS_SIM_ARRAY_ALIGNMENT` | what arrays without memory are said to begin at multiples of; of 0 nothing is said | 65536 |
//! | `MPS_SIM_MOST_DEFERRED` | so many arrays without memory there can be | any |
//! | `MPS_SIM_SLOW_WRITE` | `VALUE:NUMBER:TIME`: the so-manieth write of that value by a stream (`cuStreamWriteValue64`) takes so many milliseconds | |
//! | `MPS_SIM_WISHED_MIB` | from which size on a range of addresses is reserved where it is wished | 4 |
//! | `MPS_SIM_SAYS_END` | set: each copy says on standard error when it does what it has asked for at the end of the process | |
//! | `MPS_SIM_WOKEN` | set: a thread of each copy opens pipes without end from when the copy's descriptors are exchanged, as one does that was woken just then | |
//! | `MPS_SIM_ENDING_THREAD` | set: a thread that ends with a default stream of its own in a copy that has failed ends the process by signal 11 | |
//! | `MPS_SIM_TEAR_AT` | the same for `cuGraphLaunch`: its context dies when the first node of the graph is done | |
//!
//! What it does not have: pools that are shared with other processes, graphs with conditions or allocations, managed memory, texture references that do anything, graphs with arrays, peer access, IPC handles of its own memory, compiled images
//! (cubin), kernels other than those of [`kernel`]; each is refused with the error that a driver has for it.

mod abi;
mod allocations;
mod arrays;
mod codes;
mod context;
mod contexts;
mod copies;
mod device;
mod driver;
mod endings;
mod entry;
mod graphs;
mod kernel;
mod mps;
mod pools;
mod ptx;
mod stream;
mod tables;
mod used;
mod uvm;
mod variables;
mod vmm;
mod wakers;
