//! What outlives this daemon: what is told to the holder, and what a daemon finds there that comes after another one.
//!
//! | module | has |
//! |---|---|
//! | [`keys`] | under which key each thing is kept |
//! | [`notes`] | what is noted beside a connection: how far it has come |
//! | [`hold`] | how the holder is told, and how one that is gone gets a successor of its own |
//! | [`copies`] | copies of clients' UVM descriptors |
//! | [`restore`] | what a daemon finds that starts where the one before stopped |

pub(super) mod copies;
pub(super) mod hold;
pub(super) mod keys;
pub(super) mod notes;
pub(super) mod restore;
