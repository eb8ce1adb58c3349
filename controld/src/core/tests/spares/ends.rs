//! Spare copies when something ends: the daemon, for a successor or for good, a server that is told to, the process.

use super::*;

#[test]
fn a_grant_and_its_mark_live_through_a_change_of_daemons() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    let (connection, _) = scene.spare_comes(VICTIM, TOKEN);
    scene.finish(connection);
    scene.feed(Input::SpareStands { process: key(VICTIM.pid, 0), token: TOKEN, standing: standing(true, 0) });
    let saved = scene.core.saved();
    let alive = saved.servers.clone();
    for is_home_alive in [true, false] {
        let alive: Vec<_> = alive.iter().filter(|server| is_home_alive || server.epoch == standby.0).cloned().collect();
        let (core, effects) = Core::restored(Duration::ZERO, Policy::default(), &saved, &alive);
        scene.core = core;
        let questions: Vec<(RequestId, ServerEpoch)> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Ask { id, server, request: Request::Clients } => Some((*id, *server)),
                _ => None,
            })
            .collect();
        for (request, server) in questions {
            let pids = if server == standby { vec![VICTIM.pid] } else { vec![CULPRIT.pid, VICTIM.pid] };
            assert_eq!(scene.place_of(VICTIM), Some((TOKEN, standby)), "until all have named their clients");
            scene.feed(Input::Replied { request, reply: Ok(Reply::Clients(pids)) });
        }
        if is_home_alive {
            assert_eq!(scene.place_of(VICTIM), Some((TOKEN, standby)));
            assert_eq!(scene.server_of(VICTIM), Some(scene.server));
            assert_eq!(scene.spare_of_picture(VICTIM).map(|spare| spare.ready), Some(true));
            let (connection, effects) = scene.spare_comes(VICTIM, TOKEN);
            assert!(effects.contains(&Effect::Dispatch { server: standby, connection }));
        } else {
            assert_eq!(scene.server_of(VICTIM), Some(standby), "its own server is gone");
            assert_eq!(scene.place_of(VICTIM), None);
            assert!(scene.core.spare_has_lived(key(VICTIM.pid, 0), TOKEN));
        }
    }
}

#[test]
fn what_lives_is_known_to_a_successor_too() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    scene.memory_fault();
    scene.feed(Input::SpareLives { process: key(VICTIM.pid, 0), token: TOKEN });
    let saved = scene.core.saved();
    let (core, _) = Core::restored(Duration::ZERO, Policy::default(), &saved, &saved.servers);
    assert!(core.spare_has_lived(key(VICTIM.pid, 0), TOKEN));
    assert_eq!(core.spare_of(key(VICTIM.pid, 0)), SparePlace::None);
}

#[test]
fn neither_quit_nor_an_ordered_end_waits_for_a_spare_copy() {
    for line in ["quit".to_owned(), format!("shutdown_server {STANDBY}")] {
        let mut scene = Scene::unsettled(Policy::default());
        let standby = scene.has_place(VICTIM, TOKEN);
        scene.spare_stands(VICTIM, TOKEN, standby);
        let effects = scene.command(&line);
        assert!(is_void(&effects, VICTIM, TOKEN), "{line}");
        let is_forced =
            |effects: &[Effect]| effects.contains(&Effect::Signal { server: standby, signal: ServerSignal::Interrupt });
        let mut effects = scene.pass(Duration::from_secs(4));
        assert!(!is_forced(&effects), "programs are given a moment: {line}");
        effects.extend(scene.pass(Duration::from_secs(1)));
        assert!(is_forced(&effects), "{line}");
        let own = Effect::Signal { server: scene.server, signal: ServerSignal::Interrupt };
        assert!(!effects.contains(&own), "its clients are waited for: {line}");
    }
}

#[test]
fn a_process_that_ends_leaves_nothing_of_its_spare_copy() {
    let mut scene = Scene::unsettled(Policy::default());
    let standby = scene.has_place(VICTIM, TOKEN);
    scene.spare_stands(VICTIM, TOKEN, standby);
    let effects = scene.dies(VICTIM, End::Exited(0));
    assert!(!is_void(&effects, VICTIM, TOKEN), "nobody is there to be told");
    assert!(scene.core.saved().spares.is_empty());
    assert!(scene.core.clients.guests().get(standby, VICTIM.pid).is_none());
}
