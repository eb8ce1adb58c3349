//! Whatever happens to processes and their memory, the invariants hold.

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Commit { pid: u32, name: usize },
    Escrow { pid: u32, key: u64, name: usize },
    Release { pid: u32, key: u64 },
    Adopt { pid: u32, name: usize },
    Discard { pid: u32, name: usize },
    End { pid: u32 },
    Wait { seconds: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let (pid, key, name) = (0..6_u32, 0..4_u64, 0..3_usize);
    prop_oneof![
        4 => (pid.clone(), key.clone(), name.clone()).prop_map(|(pid, key, name)| Step::Escrow { pid, key, name }),
        1 => (pid.clone(), key).prop_map(|(pid, key)| Step::Release { pid, key }),
        1 => (pid.clone(), name.clone()).prop_map(|(pid, name)| Step::Commit { pid, name }),
        2 => (pid.clone(), name.clone()).prop_map(|(pid, name)| Step::Adopt { pid, name }),
        1 => (pid.clone(), name).prop_map(|(pid, name)| Step::Discard { pid, name }),
        2 => pid.prop_map(|pid| Step::End { pid }),
        1 => (0..90_u64).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

const NAMES: [&str; 3] = ["", "weights", "cache"];

/// Processes in virtual time: a slot's process is dead once ended, and the next step of the slot starts a new one.
#[derive(Default)]
struct World {
    lives: [u32; 6],
    now: Duration,
}

impl World {
    fn who(&self, slot: u32) -> Caller {
        let start = u64::from(self.lives[slot as usize]);
        let process = ProcessKey { pid: slot + 1, start_time: start };
        Caller { process, uid: 1000 + slot % 2, cgroup: String::new(), place: at(["/a", "/b"][slot as usize / 2 % 2]) }
    }

    fn is_alive(&self, process: ProcessKey) -> bool {
        u64::from(self.lives[process.pid as usize - 1]) == process.start_time
    }

    fn check(&self, vault: &Vault) {
        let mut owners: BTreeMap<(&Scope, &str), ProcessKey> = BTreeMap::new();
        for (id, kept) in vault.iter() {
            assert_eq!(kept.until.is_none(), self.is_alive(kept.owner.process), "an owner or a deadline: {kept:?}");
            assert!(kept.until.is_none_or(|until| until > self.now && until <= self.now + TTL));
            assert_eq!(vault.by_key.get(&(kept.owner.process, kept.region.key)), Some(&id));
            if !kept.region.name.is_empty() {
                let owner = owners.entry((&kept.scope, &kept.region.name)).or_insert(kept.owner.process);
                assert_eq!(*owner, kept.owner.process, "a name has one owner");
                assert!(vault.by_name[&(kept.scope.clone(), kept.region.name.clone())].contains(&id));
            } else {
                assert_eq!(kept.until, None, "what nobody can adopt is not kept");
            }
        }
        for (_, name, entry) in vault.entries() {
            assert_eq!(entry.until.is_none(), self.is_alive(entry.owner.process), "an owner or a deadline: {entry:?}");
            let owner = owners.get(&(&entry.scope, name));
            assert!(owner.is_none_or(|owner| *owner == entry.owner.process), "a name has one owner");
        }
        assert_eq!(vault.by_key.len(), vault.kept.len());
        let policy = vault.policy;
        assert!(!vault.usage(|_| true).exceeds(policy.regions, policy.bytes));
        for uid in [1000, 1001] {
            assert!(!vault.usage(|kept| kept.owner.uid == uid).exceeds(policy.user_regions, policy.user_bytes));
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_every_region_has_an_owner_or_a_deadline(steps in proptest::collection::vec(any_step(), 1..80)) {
        let (mut vault, mut world) = (vault(), World::default());
        for step in steps {
            match step {
                Step::Escrow { pid, key, name } => {
                    let (who, before) = (world.who(pid), vault.usage(|_| true));
                    let result = vault.escrow(&who, region(key, NAMES[name]));
                    if result.is_err() {
                        prop_assert_eq!(vault.usage(|_| true), before);
                    }
                }
                Step::Release { pid, key } => drop(vault.release(&world.who(pid), key)),
                Step::Commit { pid, name } if NAMES[name].is_empty() => drop(world.who(pid)),
                Step::Commit { pid, name } => drop(vault.commit(&world.who(pid), NAMES[name], commit(1))),
                Step::Adopt { pid, name } => {
                    let who = world.who(pid);
                    for id in vault.adopt(&who, NAMES[name]).unwrap_or_default() {
                        let kept = vault.get(id).unwrap();
                        prop_assert_eq!(&kept.owner, &who);
                        prop_assert_eq!(&kept.scope, &scope(&who, NAMES[name]), "nothing of another container");
                    }
                }
                Step::Discard { pid, name } => drop(vault.discard(&world.who(pid), NAMES[name])),
                Step::End { pid } => {
                    let process = world.who(pid).process;
                    vault.ended(world.now, process);
                    world.lives[pid as usize] += 1;
                }
                Step::Wait { seconds } => {
                    world.now += Duration::from_secs(seconds);
                    vault.expire(world.now);
                }
            }
            world.check(&vault);
        }
        world.now += TTL;
        vault.expire(world.now);
        prop_assert_eq!(vault.next_deadline(), None);
    }
}
