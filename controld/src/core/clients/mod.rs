//! The clients: their connections and their processes, from the moment at which one comes until nobody asks for it.
//!
//! | part | decides |
//! |---|---|
//! | [`admission`] | which server a client goes to, and who waits |
//! | [`handshakes`] | which clients are taken back from a server that they were on their way to |
//! | [`census`] | who is on which server that an earlier daemon had sent there |
//! | [`fate`] | what a process, or one that was a client, is told of its server |
//! | [`channels`] | which channel belongs to which client |
//! | [`place`] | whom a number stands for: where a process is, and what that lets its user do |

pub(super) mod admission;
pub(super) mod census;
pub(super) mod channels;
pub(super) mod fate;
pub(super) mod handshakes;
pub(super) mod place;
