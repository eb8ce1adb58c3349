//! The servers: which there are, what each is asked, and when one starts, drains, is forced and is given up.
//!
//! | part | decides |
//! |---|---|
//! | [`server`] | the states that one server goes through |
//! | [`domain`] | what a domain is, and how its servers start |
//! | [`start`], [`lifecycle`] | when a server starts, drains, is forced, is given up and started again |
//! | [`idle`] | which servers go for want of clients |
//! | [`questions`] | what servers are asked, and what an answer is for |
//! | [`health`], [`silence`] | whether one is sound, and what becomes of one that says nothing |
//! | [`replacement`] | what takes the place of one that is spoilt |

pub(super) mod backoff;
pub(super) mod domain;
pub(super) mod health;
pub(super) mod idle;
pub(super) mod lifecycle;
pub(super) mod questions;
pub(super) mod replacement;
pub(super) mod server;
pub(super) mod silence;
pub(super) mod start;
