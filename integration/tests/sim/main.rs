//! Servers, faults and newcomers on the simulated driver: who is blamed, who goes on, who is let in.

mod blame;
mod claims;
mod cluster;
mod faults;
mod forged;
mod funerals;
mod gpus;
mod handed_over;
mod handles;
mod handshake;
mod hidden;
mod hostile;
mod kept;
mod kept_defaults;
mod module;
mod named;
mod newcomers;
mod recovery;
mod server;
mod two_copies;
mod uvm;
