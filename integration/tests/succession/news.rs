//! What a program is told of its server at the vault's door, asked and unasked, and what its own word does.

use crate::kept_memory::{ROOT, start};
use integration::lab::client::Client;
use integration::lab::escrow::Shim;
use integration::lab::program::Program;
use integration::lab::stage::Stage;
use nix::sys::signal::{Signal, kill};
use remps_proto::shim::{Answer, Ask, Capabilities, Rest, ServerState};

/// The number and the state of this process's server, as the daemon says.
fn server_of(shim: &mut Shim) -> (u64, ServerState) {
    match shim.ask(Ask::Where, None).expect("an answer").pop() {
        Some((Answer::Epoch { server, state, .. }, None)) => (server, state),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_is_told_its_server_and_its_word_alone_harms_nobody() {
    Stage::run(|stage| {
        start(stage);
        let (mut shim, welcome) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        assert!(welcome.capabilities.has(Capabilities::REPORTS.and(Capabilities::EPOCHS)));
        assert_eq!(server_of(&mut shim), (0, ServerState::NONE), "it is no client yet");
        let _client = Client::attach(stage.pipe_dir()).expect("a server");
        let (server, healthy) = server_of(&mut shim);
        assert!(server > 0 && healthy == ServerState::HEALTHY, "{server}: {healthy}");

        let answers = shim.ask(Ask::Report { error: 700, own_work: true, server: 0 }, None).expect("an answer");
        assert!(matches!(answers[..], [(Answer::Done { regions: 0 }, None)]), "{answers:?}");
        // Anybody may say so: the server is asked, says that it is sound, and goes on to take clients.
        Program::visits(stage, ROOT);
        assert_eq!(server_of(&mut shim), (server, ServerState::HEALTHY));
    });
}

/// The number and the state of a server.
fn word(answer: &Answer) -> (u64, ServerState) {
    let Answer::Epoch { server, state, .. } = answer else { panic!("{answer:?}") };
    (*server, *state)
}

#[test]
fn news_comes_unasked_while_a_request_waits_and_an_earlier_library_is_answered_as_before() {
    Stage::run(|stage| {
        start(stage);
        let (mut shim, welcome) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        assert!(welcome.capabilities.has(Capabilities::NEWS.and(Capabilities::SUBSCRIPTIONS)));
        let answers = shim.ask(Ask::Subscribe { server: 0 }, None).expect("an answer");
        assert!(matches!(answers[..], [(Answer::Done { .. }, None)]), "{answers:?}");
        let none = (0, ServerState::NONE);
        assert_eq!(word(&shim.news().expect("how it is now")), none);
        // The connection of an earlier library, which is for that alone.
        let (mut watching, _) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        let watch = |(server, state), wait_ms| Ask::Watch { server, state, wait_ms };
        let watched = watching.begin(watch(none, 20_000), None).expect("it is asked");
        // And a request that is answered late.
        let wait =
            Ask::Succeed { name: "llm".into(), wait_ms: 20_000, even_if_nobody: true, least: Rest::NONE, offer: None };
        let late = shim.begin(wait, None).expect("it is asked");
        let _client = Client::attach(stage.pipe_dir()).expect("a server");
        let (server, state) = word(&shim.news().expect("news before the answer"));
        assert!(server > 0 && state == ServerState::HEALTHY, "{server}: {state}");
        assert_eq!(word(&watching.answers(watched).expect("an answer")[0].0), (server, state));
        let now = watching.ask(watch((server, state), 0), None).expect("an answer at once");
        assert_eq!(word(&now[0].0), (server, state));
        // A name that somebody has left is what the late one waits for.
        let mut owner = Program::with_memory(stage, ROOT);
        owner.does("escrow 1 llm", "done 1");
        owner.kill_9();
        assert!(!shim.answers(late).expect("an answer").is_empty());
        // A new daemon is asked with what the one before has told last, and tells how that ended.
        stage.kill_daemon();
        start(stage);
        let (mut shim, _) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        shim.ask(Ask::Subscribe { server: u64::MAX }, None).expect("an answer");
        assert_eq!(word(&shim.news().expect("news")), (u64::MAX, ServerState::GONE));
        assert_eq!(word(&shim.news().expect("news")), (server, state), "the successor has the server, too");
    });
}

#[test]
fn who_subscribes_after_its_server_has_ended_is_told_of_that_once() {
    Stage::run(|stage| {
        start(stage);
        let (mut early, _) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        early.ask(Ask::Subscribe { server: 0 }, None).expect("an answer");
        assert_eq!(word(&early.news().expect("how it is now")), (0, ServerState::NONE));
        let _client = Client::attach(stage.pipe_dir()).expect("a server");
        let (server, _) = word(&early.news().expect("it has one"));
        let [process] = stage.servers()[..] else { panic!("one server") };
        kill(process, Signal::SIGKILL).expect("it runs");
        let gone = (server, ServerState::GONE);
        while word(&early.news().expect("its end")) != gone {}
        let (mut late, _) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        late.ask(Ask::Subscribe { server: 0 }, None).expect("an answer");
        assert_eq!(word(&late.news().expect("what it has lost")), gone);
        assert_eq!(word(&late.news().expect("how it is now")), (0, ServerState::NONE));
        late.ask(Ask::Where, None).expect("an answer");
        assert!(!late.has_news(), "once is enough");
    });
}
