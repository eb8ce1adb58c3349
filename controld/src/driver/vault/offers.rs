//! What is offered of a name before it is given.
//!
//! Who waits and says that it can is offered the memory as soon as the owner is known to end ([`Sign`]), to map it meanwhile:
//! the owner's process is past doing anything or reaped, or has lost its contexts and does not go on after that. The name is
//! given with the same proof as without. It is told to the core whose end is waited for, which ends a server that nobody else
//! is on at once then ([`EndAwaited`](crate::core::Input::EndAwaited)).

use super::keeper::Keeper;
use super::names::Claim;
use super::new_number;
use crate::core::vault::Sign;
use crate::core::{Core, End, ProcessKey, ServerEpoch};
use crate::driver::turn::Turn;
use crate::failpoint::reached;
use remps_proto::shim::{Answer, Rest};

/// Whether a fault has cost a process its work, and it does not say that it goes on after one.
pub(super) fn is_lost(core: &Core, process: ProcessKey) -> bool {
    core.has_lost(process) && !core.may_go_on(process)
}

impl Keeper {
    /// A process has closed its connection, and is past doing anything but end so.
    pub(super) fn owner_ends(&mut self, process: ProcessKey, end: End) {
        if self.rules.has(process) && self.watched.contains_key(&process) {
            reached("owner-ends-seen");
            self.rules.ends(process);
            self.claims.ending.insert(process, end);
        }
    }

    /// The server whose end is waited for, and how a client of it ends, unless the core knows.
    pub(super) fn awaits_end(
        &self,
        core: &Core,
        claim: &Claim,
        sign: Option<Sign>,
    ) -> Option<(ServerEpoch, Option<(ProcessKey, End)>)> {
        let (rules, caller) = (&self.rules, &claim.client.caller);
        sign.filter(|sign| *sign == Sign::Ends && claim.least > Rest::NONE)?;
        let server = ServerEpoch(rules.entry(caller, &claim.name)?.server);
        core.fate_of_server(server)?;
        let owner = rules.owner_of_name(caller, &claim.name)?;
        let ending = self.claims.ending.get(&owner).map(|end| (owner, *end));
        let known = self.claims.awaited.get(&server);
        let is_known = known.is_some_and(|known| ending.is_none() || *known == ending.map(|(process, _)| process));
        (!is_known).then_some((server, ending))
    }

    pub(super) fn offer(&mut self, turn: &Turn<'_>, claim: Claim, sign: Sign) {
        let Claim { client, name, .. } = &claim;
        let offered = new_number().and_then(|number| {
            let ids = self.rules.offer(turn.now, &client.caller, name, sign, number)?;
            Some((number, ids))
        });
        let Some((offer, ids)) = offered else {
            // It waits as one that maps nothing before.
            return self.claims.open.push(claim.maps_nothing_before());
        };
        reached("offer-made");
        let regions = self.told(&ids, true, turn.now);
        claim.reply.answer(std::iter::once((Answer::Offered { offer }, None)).chain(regions).collect());
    }
}
