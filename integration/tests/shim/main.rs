//! The preloaded library around programs on the simulated driver: what it keeps, commits, replays and brings back.

mod announced;
mod arrays;
mod burial;
mod burial_hold;
mod checker;
mod contexts;
mod cost;
mod defaults;
mod early_end;
mod events;
mod gpu;
mod ipc;
mod memory;
mod no_context;
mod one_fault;
mod private;
mod python_state;
mod recoveries;
mod replay;
mod scenes;
mod spare;
mod standby;
mod steps;
mod survivor;
mod vault;
mod without_end;
