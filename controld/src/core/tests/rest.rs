//! When work is said to be at rest.

use super::scene::*;
use super::*;
use crate::core::Awaited;
use remps_proto::admin::Whose;

const ON_SERVER: Awaited = Awaited::Server { pid: Some(SERVER), unremembered: false };

impl Scene {
    /// What must end first, where nobody lives who is no client.
    fn awaited(&self, whose: Whose) -> Option<Vec<Awaited>> {
        self.core.rest_of(whose, |_| true, |_| false).map(|facts| facts.awaited)
    }
}

#[test]
fn a_dead_client_waits_for_its_server_and_for_nothing_else() {
    let mut scene = Scene::new(Policy::default());
    let culprit = Whose::Process(CULPRIT.pid);
    assert_eq!(scene.awaited(culprit), Some(vec![Awaited::Process { pid: CULPRIT.pid }]));
    scene.dies(CULPRIT, End::Signaled(9));
    assert_eq!(scene.awaited(culprit), Some(vec![ON_SERVER]));
    // Its server is gone, while another client of it lives on.
    scene.feed(Input::ServerExited { server: scene.server, cause: ExitCause::Signaled(9) });
    assert_eq!(scene.awaited(culprit), Some(vec![]));
    assert_eq!(scene.awaited(Whose::Server(SERVER)), Some(vec![]));
    let lives = |key: ProcessKey| key.pid == VICTIM.pid;
    let victim = scene.core.rest_of(Whose::Process(VICTIM.pid), |_| true, lives).expect("it was a client");
    assert_eq!(victim.awaited, [Awaited::Process { pid: VICTIM.pid }]);
}

#[test]
fn who_may_not_see_is_told_nothing() {
    let scene = Scene::new(Policy::default());
    for whose in [Whose::Process(CULPRIT.pid), Whose::User(CULPRIT.uid), Whose::Server(SERVER)] {
        assert_eq!(scene.core.rest_of(whose, |uid| uid != CULPRIT.uid, |_| true), None);
    }
    assert_eq!(scene.awaited(Whose::Process(NEWCOMER.pid)), None, "it was never there");
}
