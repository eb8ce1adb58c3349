//! How far a fault reaches: who carries it from one GPU to the other.

use super::*;

/// Whether its server lists both contexts of it, or has named one so far: then all GPUs that it sees count.
#[test]
fn a_program_with_contexts_on_both_gpus_carries_a_fault_from_the_one_to_the_other() {
    for (first, is_whole) in [(0, true), (1, true), (0, false), (1, false)] {
        let (faulty, mut scene) = (0, default_scene());
        third(&mut scene, 2);
        let mut listed =
            vec![(CULPRIT.pid, 1, 0), (VICTIM.pid, 1, 1), (NEWCOMER.pid, 1, first), (NEWCOMER.pid, 2, 1 - first)];
        listed.truncate(if is_whole { 4 } else { 3 });
        look(&mut scene, &listed);
        sees(&mut scene, &[0, 1]);
        let effects = memory_fault_on(&mut scene, faulty);
        assert_eq!(told(&scene), (vec![VICTIM.pid, NEWCOMER.pid], vec![]), "its first context is on {first}");
        assert_eq!(scene.verdict().gpus, gpus(&[faulty]).into_iter().collect::<Vec<_>>(), "where the fault was");
        assert!(is_told_to_end(&effects, scene.server));
        assert_eq!(scene.core.fate_of(key(VICTIM.pid, 0)), Some((scene.server, Fate::Tainted)));
    }
}

#[test]
fn a_culprit_on_both_gpus_carries_its_fault_to_the_other() {
    let mut scene = scene(Policy::default(), &[0, 1], &[1]);
    memory_fault_on(&mut scene, 0);
    assert_eq!(told(&scene), (vec![VICTIM.pid], vec![]));
}

#[test]
fn one_context_carries_a_fault_nowhere_wherever_it_may_be_and_several_anywhere() {
    for (contexts, expected) in
        [(1, (vec![NEWCOMER.pid], vec![VICTIM.pid])), (2, (vec![VICTIM.pid, NEWCOMER.pid], vec![]))]
    {
        let mut scene = default_scene();
        third(&mut scene, contexts);
        memory_fault_on(&mut scene, 0);
        assert_eq!(told(&scene), expected, "{contexts}");
    }
}

#[test]
fn who_has_given_up_its_context_on_the_one_gpu_or_sees_the_other_only_carries_nothing() {
    for has_given_up in [true, false] {
        let mut scene = default_scene();
        third(&mut scene, 2);
        let on = |number, gpu| [(CULPRIT.pid, 1, 0), (VICTIM.pid, 1, 1), (NEWCOMER.pid, number, gpu)];
        if has_given_up {
            let effects = scene.pass(Duration::from_millis(50));
            let request = asked(&effects, &Request::DeviceClients).expect("it is looked at");
            scene.feed(Input::Replied { request, reply: Ok(listing(&on(1, 0))) });
            let effects = scene.pass(LOOKED_AT);
            let request = asked(&effects, &Request::DeviceClients).expect("once more");
            scene.feed(Input::Replied { request, reply: Ok(listing(&on(2, 1))) });
        } else {
            look(&mut scene, &on(1, 1));
        }
        sees(&mut scene, if has_given_up { &[0, 1] } else { &[1] });
        memory_fault_on(&mut scene, 0);
        assert_eq!(told(&scene), (vec![], vec![VICTIM.pid, NEWCOMER.pid]), "{has_given_up}");
    }
}

#[test]
fn who_has_died_of_a_fault_before_anybody_knew_has_carried_it_all_the_same() {
    for (end, victims) in [(End::Exited(1), vec![VICTIM.pid]), (End::Exited(0), vec![])] {
        let mut scene = default_scene();
        third(&mut scene, 2);
        look(&mut scene, &[(CULPRIT.pid, 1, 0), (VICTIM.pid, 1, 1), (NEWCOMER.pid, 1, 1)]);
        sees(&mut scene, &[0, 1]);
        scene.dies(NEWCOMER, end);
        memory_fault_on(&mut scene, 0);
        assert_eq!(scene.verdict().victims, victims, "{end:?}");
    }
}
