//! Clients without a pid: a server names all of them by pid 0.

use super::*;
use crate::core::identity::{Elsewhere, HiddenId};
use crate::core::ids::first_stand_in;
use crate::core::saved::SavedServer;

const SERVER: Pid = 501;

/// What stands for the pid of one.
fn number(of: u64) -> Pid {
    first_stand_in(id(of).0)
}

fn id(of: u64) -> HiddenId {
    HiddenId([0, of])
}

impl Story {
    /// A connection of one, which is in this place; `None` is one that nobody tells apart.
    fn comes(&mut self, of: Option<u64>, rights: &Rights) -> Vec<Effect> {
        let connection = ConnectionId(self.number());
        let elsewhere = of.map(|of| Box::new(Elsewhere { id: id(of), seen_as: None }));
        let identity = Arc::new(Identity { elsewhere, place: rights.place.clone(), ..Identity::default() });
        let peer = Peer { pid: 0, ..USER };
        let mut effects = self.feed(Input::ClientArrived { connection, peer, identity, entrance: None });
        if spawned_any(&effects) {
            effects = self.serve(&effects, SERVER).1;
        }
        effects.extend(self.feed(Input::ClientDone { connection, status: Some(0) }));
        effects
    }

    /// One with a context, beside the process's own connection.
    fn works(&mut self, of: u64) {
        for _ in 0..2 {
            self.comes(Some(of), &from_pod(of));
        }
    }

    fn replied(&mut self, request: RequestId, reply: Reply) -> Vec<Effect> {
        self.feed(Input::Replied { request, reply: Ok(reply) })
    }

    /// The request by which the server's clients are looked up for this command.
    fn looked_up(&mut self, rights: Rights, line: &str) -> RequestId {
        let peer = if rights.privileged { ROOT } else { USER };
        let effects = self.command_from(peer, rights, line);
        asked(&effects, &Request::Clients).unwrap_or_else(|| panic!("{line}: {effects:?}"))
    }

    /// What is asked of the server that has this client, by a command of the owner's.
    fn ended(&mut self, of: u64) -> Vec<Effect> {
        let line = format!("terminate_client {SERVER} {}", number(of));
        let request = self.looked_up(Rights::beside_the_daemon(), &line);
        self.replied(request, Reply::Clients(vec![0]))
    }
}

fn spawned_any(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| spawned(effect).is_some())
}

fn is_refused(effects: &[Effect]) -> bool {
    let lines = answer(effects).unwrap_or_default();
    lines.first().is_some_and(|line| line.contains("can't be ended apart from others")) && lines[1..] == ["1"]
}

fn is_killed(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Signal { .. }))
}

#[test]
fn pid_0_is_ended_only_where_it_is_one_process_and_no_other() {
    let mut story = Story::new(Policy::default());
    story.works(1);
    let effects = story.ended(1);
    let request = asked(&effects, &Request::TerminateClient(0)).expect("there is no other");
    assert_eq!(answer(&story.replied(request, Reply::Terminated(0))), Some(vec!["0".to_owned()]));
    // Somebody who comes while it is looked up is not ended in its place.
    let line = format!("terminate_client {SERVER} {}", number(1));
    let lookup = story.looked_up(Rights::beside_the_daemon(), &line);
    story.works(2);
    let effects = story.replied(lookup, Reply::Clients(vec![0, 0]));
    assert!(is_refused(&effects) && !is_killed(&effects), "{effects:?}");
    assert!(is_refused(&story.ended(2)));
    // When it has ended the other one is the only one, and the dead one nobody.
    let dead = ProcessKey { pid: number(1), start_time: 0 };
    story.feed(Input::ProcessGone { process: dead, end: End::Exited(0) });
    assert_eq!(answer(&story.ended(1)), Some(vec![format!("Invalid process {}!", number(1)), "1".to_owned()]));
    assert!(asked(&story.ended(2), &Request::TerminateClient(0)).is_some());
    // Nor is anybody while somebody may be there whom nobody tells apart.
    story.comes(None, &Rights::default());
    assert!(is_refused(&story.ended(2)));
}

#[test]
fn a_server_that_refuses_is_ended_only_where_nobody_else_has_it() {
    for with_neighbour in [false, true] {
        let mut story = Story::new(Policy::default());
        story.works(1);
        if with_neighbour {
            story.arrive(USER);
        }
        let effects = story.ended(1);
        let request = asked(&effects, &Request::TerminateClient(0)).expect("it is the only one without a pid");
        let effects = story.replied(request, Reply::Terminated(201));
        assert_eq!((is_refused(&effects), is_killed(&effects)), (with_neighbour, !with_neighbour), "{effects:?}");
    }
    // One that is gone by the time of the answer needs nothing, and its server's next client is not harmed.
    let mut story = Story::new(Policy::default());
    story.works(1);
    let effects = story.ended(1);
    let request = asked(&effects, &Request::TerminateClient(0)).expect("it is the only one");
    let process = ProcessKey { pid: number(1), start_time: 0 };
    story.feed(Input::ProcessGone { process, end: End::Exited(0) });
    story.works(2);
    let effects = story.replied(request, Reply::Terminated(201));
    assert!(!is_killed(&effects), "{effects:?}");
    assert_eq!(answer(&effects).map(|lines| lines[1..].to_vec()), Some(vec!["1".to_owned()]));
}

#[test]
fn only_those_end_a_client_without_a_pid_who_could_end_it_with_one() {
    let mut story = Story::new(Policy::default());
    story.works(4);
    let line = format!("terminate_client {SERVER} {}", number(4));
    let unknown = Rights::default();
    for (peer, rights) in [(USER, from_pod(5)), (ROOT, from_pod(5)), (USER, unknown.clone()), (OTHER, from_pod(4))] {
        let lines = answer(&story.command_from(peer, rights.clone(), &line)).expect("at once");
        assert!(lines[0].contains("Insufficient privileges"), "{peer:?} {rights:?}: {lines:?}");
        let lines =
            answer(&story.command_from(peer, rights, &format!("shutdown_server {SERVER} -f"))).expect("at once");
        assert!(lines[0].contains("Insufficient privileges"), "{lines:?}");
    }
    for (peer, rights) in [(USER, from_pod(4)), (ROOT, from_pod(4)), (ROOT, Rights::beside_the_daemon())] {
        let effects = story.command_from(peer, rights, &line);
        assert!(asked(&effects, &Request::Clients).is_some(), "{peer:?}: {effects:?}");
    }
    // Where one may be whom nobody tells apart the server is nobody's own who is not beside the daemon.
    let shutdown = format!("shutdown_server {SERVER} -f");
    story.comes(None, &unknown);
    let lines = answer(&story.command_from(USER, from_pod(4), &shutdown)).expect("at once");
    assert!(lines[0].contains("Insufficient privileges"), "{lines:?}");
}

#[test]
fn lists_have_numbers_in_place_of_pid_0_and_keep_it_for_those_that_nobody_knows() {
    let mut story = Story::new(Policy::default());
    story.works(1);
    // One that has no context yet is in no server's list.
    story.comes(Some(2), &from_pod(2));
    let list = format!("get_client_list {SERVER}");
    let request = story.looked_up(Rights::beside_the_daemon(), &list);
    let own = number(1).to_string();
    assert_eq!(answer(&story.replied(request, Reply::Clients(vec![77, 0]))), Some(vec!["77".to_owned(), own.clone()]));
    story.comes(None, &Rights::default());
    let request = story.looked_up(Rights::beside_the_daemon(), &list);
    let shown = answer(&story.replied(request, Reply::Clients(vec![0])));
    assert_eq!(shown, Some(vec![own, "0".to_owned()]));
    // By that number nobody is ended.
    let lines = answer(&story.command(ROOT, &format!("terminate_client {SERVER} 0")));
    assert_eq!(lines, Some(vec!["Invalid process 0!".to_owned(), "1".to_owned()]));
}

#[test]
fn a_successor_knows_again_who_was_noted_and_ends_nobody_where_an_earlier_daemon_told_none_apart() {
    for tells_apart in [true, false] {
        let mut story = Story::new(Policy::default());
        story.works(1);
        let saved = story.core.saved();
        let alive: Vec<SavedServer> =
            saved.servers.iter().map(|server| SavedServer { tells_apart, ..server.clone() }).collect();
        assert!(saved.servers[0].tells_apart);
        let (core, effects) = Core::restored(story.now, Policy::default(), &saved, &alive);
        story.core = core;
        let census = asked(&effects, &Request::Clients).expect("it is asked whom it has");
        let elsewhere = Some(Box::new(Elsewhere { id: id(1), seen_as: None }));
        let identity = Arc::new(Identity { elsewhere, ..Identity::default() });
        let peer = Peer { pid: number(1), ..USER };
        let server = ServerEpoch(saved.servers[0].epoch);
        let watched = story.core.restore_hidden(story.now, server, peer, Arc::clone(&identity));
        assert_eq!(watched, Some(Effect::WatchProcess { pid: number(1), connection: None }));
        assert_eq!(
            story.core.restore_hidden(story.now, ServerEpoch(99), peer, identity),
            None,
            "a server that is gone"
        );
        let effects = story.replied(census, Reply::Clients(vec![0]));
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::WatchProcess { .. })), "pid 0 is nobody");
        // Its next context goes to the same server, by the same number.
        story.comes(Some(1), &from_pod(1));
        assert_eq!(story.core.client_processes().len(), 1);
        let effects = story.ended(1);
        assert_eq!(asked(&effects, &Request::TerminateClient(0)).is_some(), tells_apart, "{effects:?}");
        assert_eq!(is_refused(&effects), !tells_apart);
    }
}

#[test]
fn two_processes_whose_numbers_meet_have_two_numbers_and_keep_them() {
    let mut story = Story::new(Policy::default());
    // As far apart as there are numbers.
    let far = (1 << 31) - ((1 << 22) + 1);
    assert_eq!(number(1), number(1 + far));
    story.works(1);
    story.works(1 + far);
    let pids = |story: &Story| story.core.client_processes().iter().map(|key| key.pid).collect::<Vec<_>>();
    assert_eq!(pids(&story), [number(1), number(1) + 1]);
    let dead = ProcessKey { pid: number(1), start_time: 0 };
    story.feed(Input::ProcessGone { process: dead, end: End::Exited(0) });
    story.comes(Some(1 + far), &from_pod(1 + far));
    assert_eq!(pids(&story), [number(1) + 1], "it is the process that it was");
}
