//! What reports are told of clients.

use super::scene::*;
use super::*;
use crate::core::picture::{DaemonFacts, Snapshot};

fn picture(scene: &Scene) -> Snapshot {
    scene.core.picture(scene.now, DaemonFacts::blank(), vec![])
}

fn contexts(scene: &Scene) -> Vec<(Pid, usize)> {
    picture(scene).clients.iter().map(|client| (client.process.pid, client.contexts)).collect()
}

#[test]
fn a_clients_contexts_are_counted_without_its_processs_own_connection() {
    let mut scene = Scene::new(Policy::default());
    assert_eq!(contexts(&scene), [(CULPRIT.pid, 1), (VICTIM.pid, 1)], "as ps lists them");
    let (connection, _) = scene.comes(NEWCOMER);
    scene.finish(connection);
    assert_eq!(contexts(&scene).last(), Some(&(NEWCOMER.pid, 0)), "it has come and made none");
    scene.joins(VICTIM);
    assert_eq!(contexts(&scene)[1], (VICTIM.pid, 3));
}

#[test]
fn contexts_are_listed_by_their_number_in_their_process() {
    let mut scene = Scene::new(Policy::default());
    scene.joins(VICTIM);
    let listed = |scene: &Scene, pid| -> Vec<Option<u64>> {
        let channels = picture(scene).channels;
        channels.iter().filter(|channel| channel.process.pid == pid).map(|channel| channel.context).collect()
    };
    assert_eq!(listed(&scene, CULPRIT.pid), [None, Some(1)], "its own connection is no context");
    assert_eq!(listed(&scene, VICTIM.pid).last(), Some(&Some(contexts(&scene)[1].1 as u64)), "as many as are counted");
    assert_eq!(listed(&scene, VICTIM.pid)[..2], [None, Some(1)]);
}
