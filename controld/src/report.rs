//! What ReMPS's own commands are answered, as text and as JSON, from a picture of the daemon ([`Snapshot`]).
//!
//! | part | is |
//! |---|---|
//! | [`status`], [`client_state`], [`channel_list`] | `status`, `get_client_state`, `get_channel_list` |
//! | [`FaultLedger`] | the latest verdicts, and `get_fault_list` |
//! | [`vault_list`] | `vault list` |
//! | [`rest()`] | `at-rest` |
//! | [`module()`] | `server` and `client` of the third interface |
//! | [`event_line`] | an event for a reader |
//! | [`sample_list`] | `metrics` as a table or JSON |
//! | [`lanes`] | what happened when, as a picture |
//! | [`table`], [`text`] | what fits 80 columns, and text from outside made harmless |
//! | [`fitted`] | JSON in lines that pass the wire to the command line whole |
//!
//! # Who sees what
//! Root and the daemon's owner see everything ([`Viewer`]). Everybody else sees his own domains, servers and clients,
//! and the faults that hit them; of other users' culprits only pid and user. A process of somebody else is answered
//! exactly as one that does not exist. Text from outside (command lines, cgroups, log records) never brings control
//! characters into a terminal or a line end into a table.

mod channels;
mod client;
mod faults;
mod fit;
pub(crate) mod lanes;
mod line;
mod module;
mod rest;
mod samples;
mod status;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod vault;

pub(crate) use channels::channel_list;
pub(crate) use client::client_state;
pub(crate) use faults::{Fault, FaultLedger};
pub(crate) use fit::{LINE_LIMIT, fitted, fitted_within};
pub(crate) use line::event_line;
pub(crate) use module::{listed, module};
pub(crate) use rest::{nobody, rest};
pub(crate) use samples::sample_list;
pub(crate) use status::status;
pub(crate) use vault::vault_list;

use crate::core::picture::Snapshot;
use crate::core::{EntranceId, Uid};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Viewer {
    pub uid: Uid,
    /// Whether he is root or the daemon's owner, and so may see everything.
    pub privileged: bool,
    /// The entrance of the claim in whose directory he asks: there is nothing else for him.
    pub within: Option<EntranceId>,
}

impl Viewer {
    /// Whether what belongs to a user is shown.
    pub(crate) fn may_see(self, uid: Uid) -> bool {
        self.privileged || self.uid == uid
    }
}

impl Snapshot {
    /// The part of it that somebody may see.
    #[must_use]
    pub(crate) fn seen_by(mut self, viewer: Viewer) -> Self {
        if !viewer.privileged {
            self.domains.retain(|domain| viewer.may_see(domain.uid));
            self.servers.retain(|server| viewer.may_see(server.uid));
            self.named.retain(|named| named.uid.is_none_or(|uid| viewer.may_see(uid)));
            self.clients.retain(|client| viewer.may_see(client.uid));
            self.channels.retain(|channel| viewer.may_see(channel.uid));
            self.funerals.retain(|funeral| viewer.may_see(funeral.uid));
            self.strangers.retain(|stranger| viewer.may_see(stranger.uid));
            self.regions.retain(|region| viewer.may_see(region.uid));
        }
        self
    }
}
