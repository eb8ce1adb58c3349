//! What outlives a daemon: clients, commands, the holder's descriptors and the vault, from one daemon to the next.

mod clients;
mod commands;
mod holder;
mod inheritance;
mod kept_memory;
mod large_state;
mod news;
mod spares;
mod vault;
mod vault_scope;
mod vault_strangers;
mod vault_succession;
