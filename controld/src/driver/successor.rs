//! What outlives this daemon: what is told to the holder, and what a daemon finds there that comes after another one.
//!
//! | module | has |
//! |---|---|
//! | [`keys`] | under which key each thing is kept |
//! | [`hold`] | how the holder is told, and how one that is gone gets a successor of its own |
//! | [`copies`] | copies of clients' UVM descriptors |
//! | [`restore`] | the start of a daemon, fresh or where the one before stopped |

pub(super) mod copies;
pub(super) mod hold;
pub(super) mod keys;
pub(super) mod restore;
