//! How far a name reaches.

use super::*;

#[test]
fn the_same_number_in_another_container_or_namespace_finds_adopts_and_discards_nothing() {
    let first = caller(1, 1000);
    let elsewhere = [
        at("/b"),
        at(""),
        Place { user: Namespace::Other(7), ..at("/a") },
        Place { user: Namespace::Alike("0 1000 1".into()), ..at("/a") },
    ];
    for place in elsewhere {
        let mut vault = vault();
        vault.escrow(&first, region(1, "weights")).unwrap();
        vault.commit(&first, "weights", commit(1)).unwrap();
        let stranger = moved(&caller(2, 1000), place);
        assert_eq!(vault.standing(&stranger, "weights"), Standing::Nobody, "not even that somebody has it");
        vault.ended(Duration::ZERO, first.process);
        assert_eq!(vault.standing(&stranger, "weights"), Standing::Nobody);
        assert_eq!(vault.adopt(&stranger, "weights"), Err(Failure::NOT_FOUND));
        assert_eq!(vault.discard(&stranger, "weights"), Err(Failure::NOT_FOUND));
        assert_eq!(vault.entry(&stranger, "weights"), None);
        assert!(vault.iter().all(|(_, kept)| !vault.may_see(&stranger, kept)));
        // Its own of that name is another one.
        vault.escrow(&stranger, region(1, "weights")).unwrap();
        let next = caller(3, 1000);
        assert_eq!(vault.adopt(&next, "weights").map(|ids| ids.len()), Ok(1));
        assert_eq!(vault.entry(&next, "weights").and_then(|entry| entry.commit.clone()), Some(commit(1)));
        assert_eq!(vault.iter().filter(|(_, kept)| vault.may_see(&next, kept)).count(), 1);
    }
}

#[test]
fn a_name_reaches_as_far_as_the_setting_says() {
    let place = |container: &str, pod: &str| Place { container: container.into(), pod: pod.into(), ..at("") };
    let (first, restarted) = (place("/p/1", "/p"), place("/p/2", "/p"));
    let (other_pod, host) = (place("/q/1", "/q"), place("", ""));
    for (reach, found) in [
        (Reach::Container, [true, false, false, false]),
        (Reach::Pod, [true, true, false, false]),
        (Reach::User, [true; 4]),
    ] {
        let mut vault = vault();
        vault.policy.scope = reach;
        let owner = moved(&caller(1, 1000), first.clone());
        vault.escrow(&owner, region(1, "weights")).unwrap();
        vault.ended(Duration::ZERO, owner.process);
        for (place, is_found) in [&first, &restarted, &other_pod, &host].into_iter().zip(found) {
            let standing = vault.standing(&moved(&caller(2, 1000), place.clone()), "weights");
            assert_eq!(standing == Standing::Free(owner.process), is_found, "{reach:?} from {place:?}");
        }
        let sandbox = Place { user: Namespace::Other(9), ..first.clone() };
        assert_eq!(vault.standing(&moved(&caller(3, 1000), sandbox), "weights"), Standing::Nobody, "{reach:?}");
    }
}

#[test]
fn a_name_is_shared_further_only_where_its_owner_calls_it_so() {
    let mut vault = vault();
    let owner = moved(&caller(1, 1000), Place { pod: "/p".into(), ..at("/p/1") });
    for (key, name) in [(1, "user:weights"), (2, "pod:weights"), (3, "weights")] {
        vault.escrow(&owner, region(key, name)).unwrap();
    }
    vault.ended(Duration::ZERO, owner.process);
    let restarted = moved(&caller(2, 1000), Place { pod: "/p".into(), ..at("/p/2") });
    let elsewhere = moved(&caller(3, 1000), Place { user: Namespace::Other(4), ..at("/b") });
    let other_user = moved(&caller(4, 1001), owner.place.clone());
    for name in ["user:weights", "pod:weights", "weights"] {
        assert_eq!(vault.adopt(&other_user, name), Err(Failure::NOT_FOUND), "{name}: never to another user");
    }
    assert_eq!(vault.adopt(&elsewhere, "pod:weights"), Err(Failure::NOT_FOUND));
    assert_eq!(vault.adopt(&elsewhere, "weights"), Err(Failure::NOT_FOUND));
    assert_eq!(vault.adopt(&restarted, "weights"), Err(Failure::NOT_FOUND));
    assert_eq!(vault.adopt(&restarted, "pod:weights").map(|ids| ids.len()), Ok(1));
    assert_eq!(vault.adopt(&elsewhere, "user:weights").map(|ids| ids.len()), Ok(1));
}

#[test]
fn what_an_earlier_release_kept_goes_to_its_container_from_any_namespace_and_is_that_ones_then() {
    let mut vault = vault();
    let dead = caller(1, 1000);
    let older = scope(&dead, "llm").of_any_namespace();
    let kept = Kept { owner: dead.clone(), region: region(1, "llm"), until: Some(TTL), scope: older.clone() };
    vault.restore(RegionId(5), kept);
    let (owner, commit) = (dead.clone(), Some(commit(3)));
    let entry = NameEntry { owner, until: Some(TTL), server: 0, predecessor: None, commit, scope: older };
    vault.restore_entry(NameId(4), "llm".into(), entry);
    let (other_container, other_user) = (moved(&caller(2, 1000), at("/b")), caller(2, 1001));
    for stranger in [other_container, other_user] {
        assert_eq!(vault.adopt(&stranger, "llm"), Err(Failure::NOT_FOUND));
    }
    let next = moved(&caller(3, 1000), Place { user: Namespace::Other(7), ..at("/a") });
    assert_eq!(vault.escrow(&next, region(9, "llm")), Err(Failure::NAME_IN_USE), "not beside it");
    assert_eq!(vault.adopt(&next, "llm"), Ok(vec![RegionId(5)]));
    let entry = vault.entry(&next, "llm").expect("its entry came along");
    assert_eq!((&entry.scope, &entry.owner), (&scope(&next, "llm"), &next));
    vault.ended(Duration::ZERO, next.process);
    assert_eq!(vault.standing(&dead, "llm"), Standing::Nobody, "from now on it is that namespace's");
    assert_eq!(vault.discard(&moved(&caller(4, 1000), next.place), "llm").map(|gone| gone.len()), Ok(1));
    assert_eq!(vault.next_deadline(), None);
}
