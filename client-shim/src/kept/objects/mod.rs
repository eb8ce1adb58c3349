//! Objects of the driver's besides memory: contexts, streams, events, and how everything is made again.

pub(crate) mod contexts;
pub(crate) mod current;
pub(crate) mod primary;
pub(crate) mod recipes;
pub(crate) mod record;
