//! Changes of servers and namespaces: who may make them, under which names, and that they are kept before they are made.

use super::*;

#[test]
fn a_namespace_with_clients_is_deleted_by_force_alone() {
    let mut story = Story::new();
    story.does("server create a");
    story.does("namespace create n --server=a");
    let entrance = story.entrance("a", "n");
    let (connection, effects) = story.comes(ALICE, Some(entrance));
    let (server, ..) = story.serve(&effects, 501);
    story.feed(Input::ServerGreeted { connection });
    story.feed(Input::ClientDone { connection, status: Some(0) });
    assert_eq!(
        story.fails("namespace delete n --server=a"),
        "Namespace n has clients: 1; --force deletes it all the same"
    );
    assert_eq!(story.fails("namespace delete default --server=a"), "The namespace default goes with its server");
    let effects = story.does("namespace delete n --server=a --force");
    let interrupted = Effect::Signal { server, signal: ServerSignal::Interrupt };
    assert!(effects.contains(&interrupted), "{effects:?}");
    assert_eq!(story.fails("namespace delete n --server=a"), "Namespace n of server a not found");
    story.does("namespace create n --server=a");
    assert_ne!(story.entrance("a", "n"), entrance, "one that is made anew has other clients");
}

#[test]
fn names_are_had_once_and_never_those_of_the_daemons_files() {
    let mut story = Story::new();
    story.does("server create a");
    assert_eq!(story.fails("server create a"), "Server a exists already");
    assert_eq!(story.fails("namespace create default --server=a"), "Namespace default of server a exists already");
    for name in ["control", "control_privileged", "control_lock", "log", "shim", "shim_defaults"] {
        assert!(story.fails(&format!("server create {name}")).contains("the name of a file of the daemon's"));
        assert!(story.fails(&format!("namespace create {name} --server=a")).contains("the name of a file"));
    }
    assert!(story.fails("server create uid_7").starts_with("uid_7 is the name of a user's own server"));
    assert!(story.fails("server create uid_7 --uid=8").starts_with("uid_7 is the name of a user's own server"));
    assert_eq!(story.fails("namespace create n --server=b"), "Server b not found");
    for number in story.core.entrances().len()..servers::named::MOST_NAMESPACES {
        story.does(&format!("namespace create n{number} --server=a"));
    }
    let full = "There are 256 namespaces already, the most that there may be";
    assert_eq!(story.fails("namespace create one_more --server=a"), full);
    assert_eq!(story.fails("server create b"), full);
}

#[test]
fn nobody_but_the_owner_changes_anything() {
    let mut story = Story::new();
    story.does("server create a");
    for line in ["server create b", "server delete a --force", "namespace create n --server=a", "server set a --uid=1"]
    {
        for (peer, rights) in [(ALICE, Rights::beside_the_daemon()), (ROOT, Rights::default())] {
            let (answer, effects) = story.said_by(peer, rights, line);
            assert!(answer.unwrap_err().starts_with("Insufficient privileges for UID"), "{line}");
            assert!(effects.iter().all(|effect| !matches!(effect, Effect::OpenEntrance(_) | Effect::Save)), "{line}");
        }
    }
    assert_eq!(story.core.entrances().len(), 1);
}

#[test]
fn what_cannot_be_made_is_not_there() {
    let mut story = Story::new();
    story.trouble = Some("cannot make a: no space left on device".to_owned());
    assert_eq!(story.fails("server create a"), "cannot make a: no space left on device");
    assert_eq!(story.core.entrances(), []);
    story.trouble = None;
    story.does("server create a");
}

#[test]
fn every_change_has_a_server_and_a_namespace() {
    let change = Change::SetNamespace { server: "a".into(), name: "n".into(), limits: Limits::default() };
    assert_eq!((change.server(), change.namespace(), change.is_of_namespace()), ("a", "n", true));
}

/// What is to be kept, by its number.
fn kept(effects: &[Effect]) -> Option<(u64, Vec<String>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::KeepServers { number, servers, .. } => {
            let spaces = servers.iter().flat_map(|server| &server.namespaces).map(|space| space.name.clone());
            Some((*number, spaces.collect()))
        }
        _ => None,
    })
}

fn is_answered(effects: &[Effect]) -> Option<bool> {
    effects.iter().find_map(|effect| match effect {
        Effect::Answer { .. } => Some(true),
        Effect::AnswerFailure { .. } => Some(false),
        _ => None,
    })
}

#[test]
fn a_change_is_made_when_it_is_kept_one_after_the_other_and_not_at_all_when_it_cannot_be() {
    let mut story = Story::new();
    story.does("server create training");
    story.core.keep_servers();
    let says = |story: &mut Story, line: &str| {
        let session = SessionId(story.number());
        let rights = Rights::beside_the_daemon();
        story.feed(Input::Command { session, peer: ROOT, rights, line: line.as_bytes().to_vec() })
    };
    let create = says(&mut story, "namespace create jobs --server=training");
    let (first, spaces) = kept(&create).expect("it is to be kept");
    assert_eq!((spaces.as_slice(), is_answered(&create)), (["default".to_owned(), "jobs".to_owned()].as_slice(), None));
    assert_eq!(story.core.saved().named[0].namespaces.len(), 1, "not before it is kept");
    let set = says(&mut story, "namespace set jobs --server=training --active-thread-percentage=10");
    assert_eq!((kept(&set), is_answered(&set)), (None, None), "it waits for its turn");
    let done = story.feed(Input::ServersKept { number: first, result: Ok(()) });
    assert_eq!(is_answered(&done), Some(true));
    assert_eq!(story.core.saved().named[0].namespaces.len(), 2);
    let (second, _) = kept(&done).expect("the next one's turn");
    let refused = story.feed(Input::ServersKept { number: second, result: Err("the disk is full".to_owned()) });
    assert_eq!(is_answered(&refused), Some(false));
    let limits = story.core.saved().named[0].namespaces[1].limits.clone().unwrap_or_default();
    assert_eq!(limits.percentage, None, "nothing is half done");
    // One whose socket was made and that can't be kept has none any more.
    let create = says(&mut story, "server create other");
    let (third, _) = kept(&create).expect("it is to be kept");
    let refused = story.feed(Input::ServersKept { number: third, result: Err("the disk is full".to_owned()) });
    assert!(refused.iter().any(|effect| matches!(effect, Effect::CloseEntrance(it) if it.server == "other")));
    // Somebody comes while the end of his namespace is being kept: it stays, and so does what is kept.
    let delete = says(&mut story, "namespace delete jobs --server=training");
    let (fourth, spaces) = kept(&delete).expect("it is to be kept");
    assert_eq!(spaces, ["default"]);
    let jobs = story.entrance("training", "jobs");
    story.comes(ALICE, Some(jobs));
    let refused = story.feed(Input::ServersKept { number: fourth, result: Ok(()) });
    assert_eq!(is_answered(&refused), Some(false));
    let (_, spaces) = kept(&refused).expect("what is so is kept again");
    assert_eq!(spaces, ["default", "jobs"]);
}
