//! Many clients, commands and packets of garbage at once: nobody is refused, nobody is forgotten, nothing is kept.

mod commands;
mod connections;
mod garbage;
