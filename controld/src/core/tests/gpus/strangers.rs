//! Who has contexts on a GPU outside MPS: told, and ended where the operator wants it.

use super::*;

fn outsider(process: ProcessKey) -> Outsider {
    Outsider { process, uid: 1000, command: "a.out".into(), is_server: false, bytes: Some(1), instance: None }
}

#[test]
fn strangers_are_told_when_they_come_and_go_and_not_ended() {
    let mut story = Story::managing(&[]);
    story.sees(Mode::DEFAULT);
    let there = || gpu(Mode::DEFAULT, vec![outsider(STRANGER)]);
    assert_eq!(words(&story.sees_again(there())), ["stranger-found"]);
    for _ in 0..5 {
        let effects = story.sees_again(there());
        assert_eq!((words(&effects), lines(&effects)), (Vec::new(), Vec::new()));
    }
    assert_eq!(story.core.gpus.stranger_facts(story.now)[0].since, INTERVAL * 5);
    assert_eq!(words(&story.sees_again(gpu(Mode::DEFAULT, Vec::new()))), ["stranger-left"]);
}

#[test]
fn a_stranger_is_asked_at_the_second_look_and_killed_at_the_third_where_that_is_wanted() {
    let mut story = Story::new(
        GpuPolicy { compute_mode: ComputeModeAction::Manage, strangers: StrangerAction::End, ..GpuPolicy::default() },
        &[],
    );
    story.sees(Mode::DEFAULT);
    let other = ProcessKey { start_time: 8, ..STRANGER };
    let ends = |effects: &[Effect]| -> Vec<(ProcessKey, bool)> {
        let end = |effect: &Effect| {
            if let Effect::EndStranger { process, force } = effect { Some((*process, *force)) } else { None }
        };
        effects.iter().filter_map(end).collect()
    };
    let mut looks = Vec::new();
    for process in [STRANGER, other, other, other, other] {
        looks.push(ends(&story.sees_again(gpu(Mode::DEFAULT, vec![outsider(process)]))));
    }
    let nobody = Vec::new();
    assert_eq!(looks, [nobody.clone(), nobody.clone(), vec![(other, false)], vec![(other, true)], nobody.clone()]);
    // Servers of other daemons are told of, and that is all.
    let server = Outsider { is_server: true, ..outsider(STRANGER) };
    for _ in 0..4 {
        assert_eq!(ends(&story.sees_again(gpu(Mode::DEFAULT, vec![server.clone()]))), nobody);
    }
}

#[test]
fn clients_and_servers_are_no_strangers_whatever_a_look_says() {
    let gpus =
        GpuPolicy { compute_mode: ComputeModeAction::Manage, strangers: StrangerAction::End, ..GpuPolicy::default() };
    let mut scene = Scene::new(Policy { gpus, ..Policy::default() });
    scene.feed(Input::GpusWatched { modes: Vec::new(), may_end: true });
    for _ in 0..4 {
        let pids = [CULPRIT.pid, SERVER].map(|pid| outsider(ProcessKey { pid, start_time: 0 }));
        let effects = scene.feed(Input::GpusSeen(Ok(vec![gpu(Mode::DEFAULT, pids.to_vec())])));
        assert_eq!(words(&effects), Vec::<&str>::new());
        scene.pass(INTERVAL);
    }
}
