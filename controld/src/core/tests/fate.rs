//! Which server a former client was on, however its end and its server's came one after the other.

use super::scene::*;
use super::*;

#[test]
fn the_server_of_a_former_client_is_known_whichever_ends_first() {
    for is_server_first in [false, true] {
        let mut scene = Scene::new(Policy::default());
        let server_ends = Input::ServerExited { server: scene.server, cause: ExitCause::Exited(0) };
        assert_eq!(scene.core.server_of_ended(VICTIM.pid, VICTIM.uid), None, "it is a client");
        assert!(scene.core.is_client_of(VICTIM.pid, VICTIM.uid));
        assert!(!scene.core.is_client_of(VICTIM.pid, 1001), "another user is not told that it is anybody's client");
        if is_server_first {
            scene.feed(server_ends);
            scene.dies(VICTIM, End::Signaled(6));
        } else {
            scene.dies(VICTIM, End::Signaled(6));
            scene.feed(server_ends);
        }
        assert!(!scene.core.is_client_of(VICTIM.pid, VICTIM.uid));
        assert_eq!(scene.core.server_of_ended(VICTIM.pid, VICTIM.uid), Some(scene.server), "{is_server_first}");
        assert_eq!(scene.core.server_of_ended(VICTIM.pid, 1001), None, "another user is told nothing");
    }
}
