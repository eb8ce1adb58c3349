//! Among whom a name means one thing: whose memory somebody finds under it.
//!
//! A name is looked for among processes of its user, of one user namespace and of one container or pod, as the setting
//! `vault.scope` says. Who wants to share beyond that says so in the name itself, which both sides choose: the first
//! part of `user:weights` or `pod:weights`. So nobody reaches memory whose owner has not named it so.

use super::{Caller, Kept, Key, Vault};
use crate::core::ids::Uid;
use crate::core::place::Namespace;
use serde::{Deserialize, Serialize};

/// How far a name without a first part reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// To all processes of its user in the user namespace.
    User,
    /// As far as the container; where cgroups tell none apart, as far as [`User`](Self::User).
    #[default]
    Container,
    /// As far as the pod, whose containers come and go; where there is none, as far as the container.
    Pod,
}

/// The first part of a name that reaches every process of its user, wherever it is.
const FOR_USER: &str = "user:";
/// The first part of a name that reaches the pod.
const FOR_POD: &str = "pod:";
/// Stands where a container's path stands, and is none: those begin with a slash.
const EVERYWHERE: &str = "*";

/// Among whom a name means one thing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    pub uid: Uid,
    /// The user namespace. Unknown only in what a release kept that did not note it: then it is whichever asks first.
    pub namespace: Namespace,
    /// The container or pod; empty where that makes no difference.
    pub within: String,
}

impl Scope {
    /// Where a name of the caller's is looked for.
    #[must_use]
    pub fn of(reach: Reach, caller: &Caller, name: &str) -> Self {
        let (uid, place) = (caller.uid, &caller.place);
        if name.starts_with(FOR_USER) {
            return Self { uid, namespace: Namespace::Own, within: EVERYWHERE.to_owned() };
        }
        let reach = if name.starts_with(FOR_POD) { Reach::Pod } else { reach };
        let or = |first: &String, second: &String| if first.is_empty() { second.clone() } else { first.clone() };
        let within = match reach {
            Reach::User => String::new(),
            Reach::Container => or(&place.container, &place.pod),
            Reach::Pod => or(&place.pod, &place.container),
        };
        Self { uid, namespace: place.user.clone(), within }
    }

    /// The same with an unknown namespace.
    #[must_use]
    pub fn of_any_namespace(&self) -> Self {
        Self { namespace: Namespace::Unknown, ..self.clone() }
    }
}

impl Vault {
    /// Whether the caller may know of a region: it is his own, or he could find it under its name.
    pub(crate) fn may_see(&self, caller: &Caller, kept: &Kept) -> bool {
        kept.owner.process == caller.process && kept.owner.uid == caller.uid
            || self.key(caller, &kept.region.name).0 == kept.scope
    }

    /// Where a name of the caller's is looked for. What an earlier release kept and nobody has adopted since is found
    /// from every namespace, as it was then.
    pub(super) fn key(&self, caller: &Caller, name: &str) -> Key {
        let key = (Scope::of(self.policy.scope, caller, name), name.to_owned());
        let before = (key.0.of_any_namespace(), key.1.clone());
        if !self.is_known(&key) && self.is_known(&before) { before } else { key }
    }

    fn is_known(&self, key: &Key) -> bool {
        self.by_name.contains_key(key) || self.entry_of(key).is_some()
    }

    /// From now on a name that an earlier release kept is the caller's namespace's alone.
    pub(super) fn settle(&mut self, caller: &Caller, name: &str) {
        let old = self.key(caller, name);
        if old.0.namespace != Namespace::Unknown {
            return;
        }
        let new = (Scope::of(self.policy.scope, caller, name), name.to_owned());
        self.offers.void(&old);
        if let Some(ids) = self.by_name.remove(&old) {
            for id in &ids {
                if let Some(kept) = self.kept.get_mut(id) {
                    kept.scope = new.0.clone();
                }
            }
            self.by_name.insert(new.clone(), ids);
        }
        self.move_entry(&old, new);
    }
}
