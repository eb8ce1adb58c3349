//! Thin daemons in the world: they join, die without a word, leave, are spoken to, and join again.

use super::*;

/// As what they join; the last is a name that root gives servers, too.
pub(in crate::core::tests) const CLAIMS: [&str; 3] = ["claim_a", "claim_b", "a"];
/// What is typed in their directories.
pub(in crate::core::tests) const SAID: [&str; 5] = [
    "set_default_active_thread_percentage 20",
    "set_default_device_pinned_mem_limit 0 1G",
    "get_server_list",
    "ps",
    "quit",
];

impl World {
    /// A thin daemon wants to join, perhaps in the place of one that nobody has seen die.
    pub(super) fn joins(&mut self, claim: usize, is_same_place: bool) {
        let join = JoinId(self.number());
        let name = CLAIMS[claim].to_owned();
        let (devices, limits, listed) = (Vec::new(), None, Ok(Vec::new()));
        self.feed(Input::JoinWanted { join, name, devices, limits, listed, is_same_place });
    }

    fn thin(&self, index: usize) -> Option<JoinId> {
        self.thin.keys().nth(index).copied()
    }

    pub(super) fn thin_dies(&mut self, index: usize) {
        if let Some(join) = self.thin(index) {
            self.thin.remove(&join);
            self.feed(Input::JoinGone { join });
        }
    }

    pub(super) fn thin_leaves(&mut self, index: usize) {
        if let Some(join) = self.thin(index) {
            self.feed(Input::JoinLeaves { join });
            assert!(!self.thin.contains_key(&join), "who leaves is let go at once");
        }
    }

    /// A claim's owner types something in its directory.
    pub(super) fn thin_is_told(&mut self, index: usize, line: usize) {
        let within = self.thin(index).and_then(|join| self.core.entrance_of_join(join));
        let Some(within) = within else { return };
        let session = SessionId(self.number());
        if SAID[line] == "quit" {
            self.quits.insert(session)
        } else {
            self.unanswered.insert(session)
        };
        let (peer, line) = (Peer { pid: 9999, uid: 0, gid: 0 }, SAID[line].as_bytes().to_vec());
        let rights = Rights { within: Some(within), ..Rights::beside_the_daemon() };
        self.feed(Input::Command { session, peer, rights, line });
    }

    pub(super) fn bind_joined(&mut self, join: JoinId, entrance: Entrance) {
        let result = if self.opening_works { Ok(()) } else { Err("the disk is full".to_owned()) };
        let id = entrance.id;
        if result.is_ok() {
            self.open.insert(id, entrance);
        }
        let effects = self.core.handle(self.now, Input::JoinBound { join, entrance: id, result });
        effects.into_iter().for_each(|effect| self.perform(effect));
    }

    pub(super) fn accepts_join(&mut self, join: JoinId, name: String) {
        // One whose server was told to quit stands for nothing, and waits for its last clients.
        let stands = |(other, its): (&JoinId, &String)| *its == name && self.core.entrance_of_join(*other).is_some();
        assert!(!self.thin.iter().any(stands), "one daemon stands for a server at a time");
        self.thin.insert(join, name);
    }

    /// The end of a conversation, on whoever's word.
    pub(super) fn parts_from(&mut self, join: JoinId) {
        self.thin.remove(&join);
        let effects = self.core.handle(self.now, Input::JoinGone { join });
        effects.into_iter().for_each(|effect| self.perform(effect));
    }

    /// Whoever has joined has a server with a socket, of his name.
    pub(super) fn check_joins(&self) {
        for (join, name) in &self.thin {
            let Some(entrance) = self.core.entrance_of_join(*join) else { continue };
            let open = self.open.get(&entrance).map(|entrance| entrance.server.as_str());
            assert_eq!(open, Some(name.as_str()), "a claim's clients reach it");
        }
    }
}
