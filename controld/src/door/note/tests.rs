//! What a daemon notes of kept memory for its successor, read again by that one's clock.

use super::*;

fn kept(process: ProcessKey, until: Option<Duration>) -> Kept {
    let region = Region { key: 7, name: "weights".into(), gpu: "GPU-1".into(), bytes: 2 << 20, ..Region::default() };
    Kept { owner: owner(process, 1000, "/a".into()), region, until, scope: sandbox() }
}

fn sandbox() -> Scope {
    Scope { uid: 1000, namespace: Namespace::Other(4_026_531_900), within: "/docker/a".into() }
}

fn policy(ttl: Duration) -> VaultPolicy {
    VaultPolicy { ttl, ..VaultPolicy::default() }
}

#[test]
fn a_successor_reads_what_was_noted_by_its_own_clock() {
    let own = std::process::id();
    let started = start_time(nix::unistd::Pid::this()).unwrap();
    let alive = kept(ProcessKey { pid: own, start_time: started }, None);
    let (then, now) = (Duration::from_secs(1000), Duration::from_secs(5));
    assert_eq!(RegionNote::read(&RegionNote::of(&alive, then), now, &policy(Duration::ZERO)), Some(alive.clone()));
    let orphan = Kept { until: Some(then + Duration::from_secs(60)), ..alive };
    let until = RegionNote::read(&RegionNote::of(&orphan, then), now, &policy(Duration::ZERO)).unwrap().until.unwrap();
    assert!(until <= now + Duration::from_secs(60) && until > now + Duration::from_secs(50), "{until:?}");
    assert_eq!(RegionNote::read(b"\xff", now, &policy(Duration::ZERO)), None);
}

#[test]
fn an_entry_of_a_name_is_read_as_it_was_noted() {
    let own = std::process::id();
    let started = start_time(nix::unistd::Pid::this()).unwrap();
    let process = ProcessKey { pid: own, start_time: started };
    let range = Range { label: "kv".into(), address: 1 << 40, bytes: 9, flags: 1 };
    let entry = NameEntry {
        owner: owner(process, 1000, "/a".into()),
        scope: sandbox(),
        until: None,
        server: 7,
        predecessor: Some(Predecessor { pid: 5, server: 6, rest: Rest::SERVER }),
        commit: Some(Commit { generation: 3, data: vec![1, 2], ranges: vec![range] }),
    };
    let (now, ttl) = (Duration::from_secs(5), Duration::from_secs(60));
    let policy = policy(ttl);
    assert_eq!(
        NameNote::read(&NameNote::of("llm", &entry, now), now, &policy),
        Some(("llm".to_owned(), entry.clone()))
    );
    let gone = NameEntry {
        owner: Caller { process: ProcessKey { start_time: 1, ..process }, ..entry.owner.clone() },
        ..entry
    };
    assert_eq!(NameNote::read(&NameNote::of("llm", &gone, now), now, &policy).unwrap().1.until, Some(now + ttl));
    assert_eq!(NameNote::read(b"\xff", now, &policy), None);
}

#[test]
fn every_scope_is_read_as_it_was_noted() {
    let namespaces = [Namespace::Own, Namespace::Other(7), Namespace::Alike("0 1000 1".into()), Namespace::Unknown];
    for namespace in namespaces {
        let scope = Scope { namespace, ..sandbox() };
        assert_eq!(ScopeNote::of(&scope).read(1000), scope);
    }
}

#[test]
fn what_an_earlier_release_kept_is_of_its_container_and_of_no_namespace_that_is_known() {
    let process = ProcessKey { pid: std::process::id(), start_time: 1 };
    let container = format!("/docker/{}", "a".repeat(64));
    let older =
        |bytes: Vec<u8>| RegionNote { scope: None, cgroup: container.clone(), ..RegionNote::decode(&*bytes).unwrap() };
    let note = older(RegionNote::of(&kept(process, None), Duration::ZERO)).encode_to_vec();
    let policy = policy(Duration::from_secs(60));
    let read = RegionNote::read(&note, Duration::ZERO, &policy).unwrap();
    assert_eq!(read.scope, Scope { uid: 1000, namespace: Namespace::Unknown, within: container.clone() });
    // And an earlier release reads what this one notes.
    assert_eq!(older(RegionNote::of(&read, Duration::ZERO)).region.name, "weights");
}

#[test]
fn an_owner_that_ended_unnoticed_has_its_whole_time_left() {
    // Another process had the pid before.
    let gone = kept(ProcessKey { pid: std::process::id(), start_time: 1 }, None);
    let (now, ttl) = (Duration::from_secs(5), Duration::from_secs(60));
    assert_eq!(
        RegionNote::read(&RegionNote::of(&gone, Duration::ZERO), now, &policy(ttl)).unwrap().until,
        Some(now + ttl)
    );
}
