//! What reports are told of clients.

use super::scene::*;
use super::*;
use crate::core::picture::DaemonFacts;

/// A daemon of which nothing matters.
pub(super) fn daemon() -> DaemonFacts {
    DaemonFacts {
        pid: 1,
        version: "",
        personality: String::new(),
        owner: 0,
        uptime: Duration::ZERO,
        quitting: false,
        obstacles: vec![],
        degraded: vec![],
        driver: None,
        pipe_directory: String::new(),
    }
}

fn contexts(scene: &Scene) -> Vec<(Pid, usize)> {
    let picture = scene.core.picture(scene.now, daemon(), vec![]);
    picture.clients.iter().map(|client| (client.process.pid, client.contexts)).collect()
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
