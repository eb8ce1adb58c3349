//! Faults, from the first sign to what becomes of everybody: sign, incident, verdict, and what follows.
//!
//! | part | decides |
//! |---|---|
//! | [`evidence`] | what witnesses can say |
//! | [`fault`] | which servers a fault has spoilt, and what replaces them |
//! | [`incident`], [`own_word`] | which signs belong together, and when a client's own word is one |
//! | [`blame`], [`verdict`] | who it was |
//! | [`sanctions`], [`quarantine`] | what becomes of culprits |
//! | [`reach`], [`spared`], [`recovered`] | whom a fault has left alone, and what becomes of their server |
//! | [`funeral`], [`held`] | what is done for a client that died in the middle of its work, and for how much of them |
//! | [`remains`] | whether anything is left of a client whose fault was isolated |

pub(super) mod blame;
pub(super) mod evidence;
pub(super) mod fault;
pub(super) mod funeral;
pub(super) mod held;
pub(super) mod incident;
pub(super) mod own_word;
pub(super) mod quarantine;
pub(super) mod reach;
pub(super) mod recovered;
pub(super) mod remains;
pub(super) mod sanctions;
pub(super) mod spared;
pub(super) mod verdict;
