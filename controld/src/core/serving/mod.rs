//! Which server each client gets, and when: what takes all of what is known of servers, clients and faults.
//!
//! | part | decides |
//! |---|---|
//! | [`admission`] | which server a client goes to, and who waits |
//! | [`spares`] | where programs' spare copies stand, until when, and when a program goes on with its own |
//! | [`guests`] | how processes leave the servers on which they had a spare copy |
//! | [`early_end`] | which servers that a fault has spoilt are ended before their clients have left |
//! | [`awaited_end`] | which servers are ended because a program's successor waits for it |
//! | [`burials`] | when one is buried whose clients recover |
//! | [`shares`] | who has a part of what its domain may have, and who comes in vain |
//! | [`settle`] | when a newcomer may join others: when the server is known to be sound |
//! | [`census`] | who is on which server that an earlier daemon had sent there |

mod admission;
mod awaited_end;
mod burials;
mod census;
mod early_end;
pub(super) mod guests;
mod settle;
mod shares;
mod spares;
