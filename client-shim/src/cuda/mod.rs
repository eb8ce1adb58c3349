//! The driver's interface, and nothing of ours: its types, its functions, and how a copy of it is found and called.
//!
//! | part | is about |
//! |---|---|
//! | [`functions`] | every function, described in one row |
//! | [`types`], [`result`] | what they take and answer |
//! | [`library`] | where the driver's own functions are found |
//! | [`call`] | how one is called, and why a call goes by us |

#[macro_use]
pub(crate) mod call;
#[macro_use]
pub(crate) mod functions;
pub(crate) mod library;
pub(crate) mod result;
pub(crate) mod types;
