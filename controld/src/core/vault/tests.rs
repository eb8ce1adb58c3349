mod offers;
mod random;
mod reach;

use super::*;
use crate::core::Namespace;
use proptest::prelude::*;
use remps_proto::shim::{Commit, Rest};

const TTL: Duration = Duration::from_secs(60);

fn caller(pid: u32, uid: Uid) -> Caller {
    Caller { process: ProcessKey { pid, start_time: 7 }, uid, cgroup: "/a".into(), place: at("/a") }
}

/// A place beside the daemon, in this container.
fn at(container: &str) -> Place {
    Place { user: Namespace::Own, pid: Namespace::Own, container: container.into(), ..Place::default() }
}

fn scope(caller: &Caller, name: &str) -> Scope {
    Scope::of(Reach::Container, caller, name)
}

fn region(key: u64, name: &str) -> Region {
    Region { key, name: name.into(), gpu: "GPU-1".into(), bytes: 10, ..Region::default() }
}

fn vault() -> Vault {
    Vault::new(VaultPolicy {
        user_bytes: Some(50),
        user_regions: 4,
        bytes: Some(70),
        regions: 6,
        ttl: TTL,
        ..VaultPolicy::default()
    })
}

#[test]
fn a_named_region_outlives_its_owner_for_a_while_and_a_nameless_one_does_not() {
    let mut vault = vault();
    let owner = caller(1, 1000);
    let named = vault.escrow(&owner, region(1, "weights")).unwrap();
    let nameless = vault.escrow(&owner, region(2, "")).unwrap();
    let (orphaned, closed) = vault.ended(Duration::from_secs(5), owner.process);
    assert_eq!(orphaned, [named]);
    assert_eq!(closed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [nameless]);
    assert_eq!(vault.next_deadline(), Some(Duration::from_secs(65)));
    assert_eq!(vault.expire(Duration::from_secs(64)), []);
    assert_eq!(vault.expire(Duration::from_secs(65)).len(), 1);
    assert_eq!(vault.usage(|_| true), Usage::default());
}

#[test]
fn a_later_process_of_the_same_user_adopts_all_of_a_name_and_nobody_else_anything() {
    let mut vault = vault();
    let (first, second, other) = (caller(1, 1000), caller(2, 1000), caller(3, 1001));
    let ids = [1, 2].map(|key| vault.escrow(&first, region(key, "weights")).unwrap());
    assert_eq!(vault.adopt(&second, "weights"), Err(Failure::OWNER_LIVES));
    vault.ended(Duration::ZERO, first.process);
    for stranger in [&other, &caller(4, 0)] {
        assert_eq!(vault.adopt(stranger, "weights"), Err(Failure::NOT_FOUND));
        assert_eq!(vault.discard(stranger, "weights"), Err(Failure::NOT_FOUND));
        assert_eq!(vault.release(stranger, 1).map(|(id, _)| id), Err(Failure::NOT_FOUND));
    }
    assert_eq!(vault.escrow(&second, region(9, "weights")), Err(Failure::NAME_IN_USE));
    assert_eq!(vault.adopt(&second, "weights"), Ok(ids.to_vec()));
    assert_eq!(vault.next_deadline(), None);
    assert_eq!(vault.adopt(&second, "weights"), Ok(ids.to_vec()), "asked again, as after a lost answer");
    assert_eq!(vault.release(&first, 1).map(|(id, _)| id), Err(Failure::NOT_FOUND));
    assert_eq!(vault.release(&second, 1).map(|(id, _)| id), Ok(ids[0]));
    // The same name of another user is another name.
    assert!(vault.escrow(&other, region(1, "weights")).is_ok());
}

#[test]
fn an_adoption_whose_keys_meet_others_changes_nothing() {
    let mut vault = vault();
    let (first, second) = (caller(1, 1000), caller(2, 1000));
    vault.escrow(&first, region(1, "weights")).unwrap();
    vault.escrow(&first, region(2, "weights")).unwrap();
    vault.ended(Duration::ZERO, first.process);
    vault.escrow(&second, region(2, "")).unwrap();
    assert_eq!(vault.adopt(&second, "weights"), Err(Failure::KEY_IN_USE));
    assert_eq!(vault.of_process(second.process).count(), 1);
    vault.release(&second, 2).unwrap();
    assert_eq!(vault.adopt(&second, "weights").map(|ids| ids.len()), Ok(2));
}

#[test]
fn the_same_escrow_again_is_the_same_region_and_another_with_its_key_is_refused() {
    let mut vault = vault();
    let owner = caller(1, 1000);
    let id = vault.escrow(&owner, region(1, "a")).unwrap();
    assert_eq!(vault.escrow(&owner, region(1, "a")), Ok(id));
    assert_eq!(vault.escrow(&owner, region(1, "b")), Err(Failure::KEY_IN_USE));
    assert_eq!(vault.usage(|_| true).regions, 1);
}

#[test]
fn a_users_quota_and_that_of_all_are_kept_apart() {
    let mut vault = vault();
    for key in 0..4 {
        vault.escrow(&caller(1, 1000), region(key, "")).unwrap();
    }
    assert_eq!(vault.escrow(&caller(2, 1000), region(1, "")), Err(Failure::QUOTA));
    for key in 0..2 {
        vault.escrow(&caller(3, 1001), region(key, "")).unwrap();
    }
    assert_eq!(vault.escrow(&caller(4, 1002), region(1, "")), Err(Failure::QUOTA), "all together");
    let mut vault = self::vault();
    let huge = Region { bytes: u64::MAX, ..region(1, "") };
    assert_eq!(vault.escrow(&caller(1, 1000), huge), Err(Failure::QUOTA));
    vault.policy.enabled = false;
    assert_eq!(vault.escrow(&caller(1, 1000), region(1, "")), Err(Failure::SWITCHED_OFF));
}

#[test]
fn an_adoption_that_was_cut_short_is_finished() {
    let mut vault = vault();
    let (dead, alive) = (caller(1, 1000), caller(2, 1000));
    let orphan = |key| Kept {
        owner: dead.clone(),
        region: region(key, "weights"),
        until: Some(TTL),
        scope: scope(&dead, "weights"),
    };
    vault.restore(RegionId(5), orphan(1));
    vault.restore(RegionId(6), Kept { owner: alive.clone(), until: None, ..orphan(2) });
    assert_eq!(vault.finish_adoptions(), [RegionId(5)]);
    assert_eq!(vault.of_process(alive.process).count(), 2);
    assert_eq!(vault.next_deadline(), None);
    vault.restore(RegionId(4), Kept { region: region(9, ""), ..orphan(9) });
    assert_eq!(vault.remove_nameless_orphans(), [RegionId(4)]);
    // Numbers go on behind those that were there.
    assert_eq!(vault.escrow(&alive, region(3, "")), Ok(RegionId(7)));
}

fn commit(generation: u64) -> Commit {
    Commit { generation, data: vec![7], ranges: Vec::new() }
}

#[test]
fn a_commit_is_adopted_with_its_name_and_goes_with_it() {
    let mut vault = vault();
    let (first, second, other) = (caller(1, 1000), caller(2, 1000), caller(3, 1001));
    vault.escrow(&first, region(1, "llm")).unwrap();
    vault.note_server(&first, "llm", 5);
    let id = vault.commit(&first, "llm", commit(1)).unwrap();
    assert_eq!(vault.commit(&first, "llm", commit(2)), Ok(id));
    assert_eq!(vault.commit(&second, "llm", commit(9)), Err(Failure::NAME_IN_USE));
    assert!(vault.commit(&other, "llm", commit(9)).is_ok(), "another user's name");
    assert_eq!(vault.standing(&second, "llm"), Standing::Taken);
    vault.ended(Duration::ZERO, first.process);
    assert_eq!(vault.standing(&second, "llm"), Standing::Free(first.process));
    assert_eq!(vault.commit(&second, "llm", commit(9)), Err(Failure::NAME_IN_USE), "adopt or discard it first");
    assert_eq!(vault.adopt(&second, "llm").map(|ids| ids.len()), Ok(1));
    let predecessor = Predecessor { pid: 1, server: 5, rest: Rest::SERVER };
    vault.note_predecessor(&second, "llm", predecessor, 6);
    let entry = vault.entry(&second, "llm").unwrap().clone();
    assert_eq!((entry.commit, entry.predecessor), (Some(commit(2)), Some(predecessor)));
    assert_eq!((entry.owner, entry.server, entry.until), (second.clone(), 6, None));
    vault.discard(&second, "llm").unwrap();
    assert_eq!((vault.standing(&second, "llm"), vault.has(second.process)), (Standing::Nobody, false));
}

#[test]
fn a_name_without_regions_lasts_as_long_as_its_commit_is_worth_keeping() {
    let mut vault = vault();
    let owner = caller(1, 1000);
    vault.escrow(&owner, region(1, "a")).unwrap();
    vault.note_server(&owner, "a", 5);
    vault.release(&owner, 1).unwrap();
    assert_eq!(vault.standing(&owner, "a"), Standing::Nobody, "nothing is left of it");
    vault.commit(&owner, "a", commit(1)).unwrap();
    vault.ended(Duration::ZERO, owner.process);
    assert_eq!(vault.next_deadline(), Some(TTL));
    vault.expire(TTL);
    assert_eq!((vault.standing(&owner, "a"), vault.next_deadline()), (Standing::Nobody, None));
    let told = vault.take_changed_entries();
    assert_eq!(told.iter().filter(|(_, entry)| entry.is_none()).count(), 2, "the holder is told of each: {told:?}");
}

#[test]
fn one_user_has_so_many_names_and_no_more() {
    let mut vault = vault();
    for number in 0..256 {
        vault.commit(&caller(1, 1000), &number.to_string(), commit(1)).unwrap();
    }
    assert_eq!(vault.commit(&caller(2, 1000), "one-more", commit(1)), Err(Failure::QUOTA));
    assert!(vault.commit(&caller(3, 1001), "one-more", commit(1)).is_ok());
}

#[test]
fn an_adoption_that_was_cut_short_after_the_entry_is_finished() {
    let mut vault = vault();
    let (dead, alive) = (caller(1, 1000), caller(2, 1000));
    let scope = scope(&dead, "llm");
    let kept = Kept { owner: dead, region: region(1, "llm"), until: Some(TTL), scope: scope.clone() };
    vault.restore(RegionId(5), kept);
    let (owner, commit_3) = (alive.clone(), Some(commit(3)));
    let entry = NameEntry { owner, until: None, server: 0, predecessor: None, commit: commit_3, scope };
    vault.restore_entry(NameId(4), "llm".into(), entry);
    assert_eq!(vault.finish_adoptions(), [RegionId(5)]);
    assert_eq!(vault.standing(&alive, "llm"), Standing::Own);
    assert_eq!(vault.commit(&alive, "other", commit(1)), Ok(NameId(5)));
}

/// The same process in another place.
fn moved(caller: &Caller, place: Place) -> Caller {
    Caller { place, ..caller.clone() }
}

#[test]
fn regions_never_take_more_than_half_of_the_files_that_may_be_open() {
    let policy = VaultPolicy::default();
    assert_eq!(policy.within(1 << 20), policy, "there is room for all");
    let small = policy.within(1024);
    assert_eq!((small.regions, small.user_regions), (256, 128));
    assert_eq!(VaultPolicy { user_regions: 7, ..policy }.within(1024).user_regions, 7, "fewer are fewer");
    let mut vault = Vault::new(VaultPolicy::default().within(16));
    let (one, other) = (caller(1, 1000), caller(2, 1001));
    for key in 0..2 {
        assert!(vault.escrow(&one, region(key, "")).is_ok());
    }
    assert_eq!(vault.escrow(&one, region(2, "")), Err(Failure::QUOTA), "half is for others");
    assert!(vault.escrow(&other, region(1, "")).is_ok());
}
