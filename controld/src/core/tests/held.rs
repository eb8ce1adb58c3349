//! How much memory the dead hold, and whose hold is ended when it is too much.

use super::scene::*;
use super::*;
use world::key;

const MIB: u64 = 1 << 20;
/// What is in use that no process has, before anybody dies.
const BASE: u64 = 16 * MIB;
/// Longer than it takes until a death is looked at.
const A_WHILE: Duration = Duration::from_millis(200);

/// A scene whose GPU is looked at, and whose dead may hold this much.
fn watched(hold_memory: Option<u64>, hold_memory_per_user: Option<u64>) -> Scene {
    let funerals = FuneralPolicy { hold_memory, hold_memory_per_user, ..FuneralPolicy::default() };
    let mut policy = Policy { funerals, ..Policy::default() };
    policy.domains.default.group.max_clients = Some(2);
    let mut scene = Scene::new(policy);
    scene.core.faults.hold_is_watched(scene.now);
    seen(&mut scene, 0, false);
    scene
}

/// A look finds this much in use beyond what processes have and what there was before.
fn seen(scene: &mut Scene, held: u64, asked: bool) -> Vec<Effect> {
    let used = 5000 * MIB + BASE + held;
    let pids = scene.core.servers().filter_map(|server| server.pid).collect();
    let memory = Ok(vec![GpuMemory { total: 140 << 30, used, of_processes: Some(5000 * MIB), pids }]);
    scene.feed(Input::MemorySeen { memory, asked })
}

/// A client of this user dies on this server, as the holder tells a successor.
fn dies_on(scene: &mut Scene, server: ServerEpoch, pid: Pid, uid: Uid) -> Vec<Effect> {
    let left = Some(Duration::from_secs(1000));
    let mourned = Mourned { process: key(pid, 0), uid, server, descriptors: 2, left, endless: false, is_new: true };
    assert!(scene.core.restore_funeral(scene.now, mourned));
    scene.feed(Input::Tick)
}

/// Lets the look at a death come, which finds this much.
fn looked_at(scene: &mut Scene, held: u64) -> Vec<Effect> {
    let effects = scene.pass(A_WHILE);
    assert!(effects.contains(&Effect::LookAtMemory), "{effects:?}");
    seen(scene, held, true)
}

/// Lets the time pass until memory is free whose copies were closed, and a look find that.
fn given_back(scene: &mut Scene, held: u64) {
    if scene.pass(Duration::from_secs(2)).contains(&Effect::LookAtMemory) {
        seen(scene, held, true);
    }
}

/// Whose copies are closed.
fn released(effects: &[Effect]) -> Vec<Pid> {
    let one = |effect: &Effect| match effect {
        Effect::ReleaseCopies { process } => Some(process.pid),
        _ => None,
    };
    effects.iter().filter_map(one).collect()
}

fn known(scene: &Scene) -> Vec<Option<u64>> {
    scene.core.faults.funerals().values().map(|funeral| funeral.pinned).collect()
}

#[test]
fn what_a_dead_client_holds_is_what_no_process_has_beyond_what_there_was_before() {
    let mut scene = watched(Some(32 << 30), Some(16 << 30));
    let effects = scene.dies(VICTIM, End::Signaled(9));
    scene.answer_status(&effects, true);
    assert_eq!(known(&scene), [None], "not before it was looked at");
    let effects = looked_at(&mut scene, 613 * MIB);
    let (process, uid, domain, pinned_bytes) = (key(VICTIM.pid, 0), 1000, "user 1000".to_owned(), 613 * MIB);
    let told = JournalEvent::FuneralMeasured { process, uid, domain, pinned_bytes };
    assert!(effects.contains(&Effect::Record(Box::new(told))), "{effects:?}");
    // The next one holds what has come since, and of several of one user each an equal part.
    dies_on(&mut scene, ServerEpoch(1), 50, 1000);
    dies_on(&mut scene, ServerEpoch(1), 51, 1000);
    looked_at(&mut scene, 2613 * MIB);
    assert_eq!(known(&scene), [Some(613 * MIB), Some(1000 * MIB), Some(1000 * MIB)]);
    // A successor knows it, too.
    let saved = scene.core.saved();
    let (mut core, _) = Core::restored(scene.now, Policy::default(), &saved, &saved.servers);
    let left = Some(Duration::from_secs(9));
    let mourned = Mourned {
        process: key(VICTIM.pid, 0),
        uid: 1000,
        server: scene.server,
        descriptors: 2,
        left,
        endless: false,
        is_new: false,
    };
    assert!(core.restore_funeral(scene.now, mourned));
    assert_eq!(core.faults.funerals().values().next().and_then(|funeral| funeral.pinned), Some(613 * MIB));
    assert_eq!(core.saved().nobodys_memory, Some(BASE));
}

#[test]
fn of_several_users_it_is_not_known_whose_it_is_and_nobody_is_charged_with_anothers() {
    let mut scene = watched(None, Some(8 << 30));
    dies_on(&mut scene, ServerEpoch(1), 50, 1000);
    dies_on(&mut scene, ServerEpoch(1), 51, 1001);
    let effects = looked_at(&mut scene, 60 << 30);
    assert_eq!((known(&scene), released(&effects)), (vec![None, None], vec![]));
    dies_on(&mut scene, ServerEpoch(1), 52, 1001);
    let effects = looked_at(&mut scene, (60 << 30) + 700 * MIB);
    assert_eq!((known(&scene), released(&effects)), (vec![None, None, Some(700 * MIB)], vec![]));
}

#[test]
fn one_users_crashes_end_his_own_holds_and_nobody_elses() {
    let mut scene = watched(Some(16 << 30), Some(10 << 30));
    dies_on(&mut scene, ServerEpoch(1), 50, 1000);
    looked_at(&mut scene, 613 * MIB);
    let mut held = 613 * MIB;
    for pid in 60..70 {
        let mut ended = released(&dies_on(&mut scene, ServerEpoch(1), pid, 1001));
        held += 4 << 30;
        ended.extend(released(&looked_at(&mut scene, held)));
        // Two of 4 GiB fit, and the third makes the oldest go.
        let expected = if pid < 62 { vec![] } else { vec![pid - 2] };
        assert_eq!(ended, expected, "{pid}");
        held -= ended.len() as u64 * (4 << 30);
        given_back(&mut scene, held);
    }
    assert!(scene.core.faults.funerals().contains_key(&key(50, 0)), "the other one's is held");
    // All together have less room than two such users would take.
    let mut scene = watched(Some(5 << 30), Some(4 << 30));
    for (pid, uid) in [(50, 1000), (60, 1001), (61, 1001), (62, 1001), (63, 1001), (64, 1001), (65, 1001)] {
        assert!(released(&dies_on(&mut scene, ServerEpoch(1), pid, uid)).is_empty());
    }
    assert!(released(&dies_on(&mut scene, ServerEpoch(1), 51, 1000)).is_empty());
    assert_eq!(released(&dies_on(&mut scene, ServerEpoch(1), 52, 1000)), [60], "the oldest of who has the most");
}

#[test]
fn where_memory_is_not_known_the_dead_are_bounded_by_their_number_and_it_is_said_once() {
    let mut scene = watched(None, Some(2 << 30));
    let mut lines = 0;
    for pid in 50..60 {
        let ended = released(&dies_on(&mut scene, ServerEpoch(1), pid, 1000));
        assert_eq!(ended, if pid < 53 { vec![] } else { vec![pid - 3] }, "three of 613 MiB fit");
        let mut effects = scene.pass(A_WHILE);
        if effects.contains(&Effect::LookAtMemory) {
            let memory = Err("there is no library".to_owned());
            effects = scene.feed(Input::MemorySeen { memory, asked: true });
        }
        let is_told = |effect: &&Effect| matches!(effect, Effect::Log(line) if line.contains("is not known"));
        lines += effects.iter().filter(is_told).count();
        scene.pass(Duration::from_secs(2));
    }
    assert_eq!(lines, 1);
    assert!(known(&scene).iter().all(Option::is_none));
}

#[test]
fn a_hold_that_harms_nobody_is_ended_before_an_older_one_beside_others() {
    let mut scene = watched(None, Some(3 << 30));
    dies_on(&mut scene, ServerEpoch(1), 50, 1000);
    looked_at(&mut scene, 2 << 30);
    // Another part of the domain, whose only client dies.
    let (newcomer, effects) = scene.arrive(NEWCOMER);
    assert!(is_dispatched(&scene.serve(&effects, SERVER + 1), newcomer));
    scene.finish(newcomer);
    let (context, _) = scene.arrive(NEWCOMER);
    scene.finish(context);
    scene.feed(Input::CopiesHeld { process: key(NEWCOMER.pid, 0), descriptors: 2 });
    scene.dies(NEWCOMER, End::Signaled(9));
    assert_eq!(scene.core.faults.funerals().len(), 2);
    let effects = looked_at(&mut scene, 4 << 30);
    assert_eq!(released(&effects), [NEWCOMER.pid]);
}

#[test]
fn what_is_still_in_use_when_nothing_is_held_any_more_is_told() {
    let mut scene = watched(None, None);
    let effects = scene.dies(VICTIM, End::Signaled(9));
    scene.answer_status(&effects, true);
    looked_at(&mut scene, 613 * MIB);
    let effects = scene.feed(Input::AddressSpaceGone { va_space: 1, process: Some(key(VICTIM.pid, 0)) });
    assert_eq!(released(&effects), [VICTIM.pid], "the patched module says that nothing is left of it");
    let effects = scene.pass(Duration::from_secs(1));
    assert!(effects.contains(&Effect::LookAtMemory), "whether it was given back");
    let effects = seen(&mut scene, 500 * MIB, true);
    let told = |effect: &Effect| matches!(effect, Effect::Log(line) if line.starts_with("500 MiB of GPU memory"));
    assert!(effects.iter().any(told), "{effects:?}");
    let effects = scene.pass(Duration::from_secs(3600));
    assert!(!effects.contains(&Effect::LookAtMemory), "and then nobody looks for nothing");
}
