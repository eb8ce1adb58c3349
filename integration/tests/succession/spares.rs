//! Spare copies of the driver as the daemon sees them: a process asks for a place, connects a second time, and goes on with
//! that when its server is lost; through the daemon's death, and whatever others do with its token.

use crate::kept_memory::start;
use integration::lab::client::Client;
use integration::lab::escrow::Shim;
use integration::lab::stage::Stage;
use nix::sys::signal::{Signal, kill};
use remps_proto::shim::{Answer, Ask, Capabilities, Failure, Recovered, ServerState, SpareTakes, Way};

/// How long a server of the simulation may take to stand by.
const WAIT_MS: u64 = 20_000;

fn door(stage: &Stage) -> Shim {
    let (shim, welcome) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
    assert!(welcome.capabilities.has(Capabilities::SPARES));
    shim
}

fn asks(shim: &mut Shim, ask: Ask) -> Answer {
    shim.ask(ask, None).expect("an answer").pop().expect("one").0
}

/// A place for a spare copy of this process: its token, and its server's number.
fn place(shim: &mut Shim) -> (u64, u64) {
    let answer = asks(shim, Ask::Spare { wait_ms: WAIT_MS });
    let Answer::Spare { token, server } = answer else { panic!("{answer:?}") };
    (token, server)
}

fn server_of(shim: &mut Shim) -> (u64, ServerState) {
    let answer = asks(shim, Ask::Where);
    let Answer::Epoch { server, state, .. } = answer else { panic!("{answer:?}") };
    (server, state)
}

const DONE: Answer = Answer::Done { regions: 0 };

#[test]
fn a_program_goes_on_with_its_spare_copy_when_its_server_dies() {
    Stage::run(|stage| {
        start(stage);
        let mut shim = door(stage);
        let refused = asks(&mut shim, Ask::Spare { wait_ms: WAIT_MS });
        assert_eq!(refused, Answer::Failed(Failure::NO_SPARE_SERVER), "it is no client");
        let _client = Client::attach(stage.pipe_dir()).expect("a server");
        let first = stage.servers();
        let (own, _) = server_of(&mut shim);
        let (token, server) = place(&mut shim);
        assert_ne!(server, own);
        assert_eq!(place(&mut shim), (token, server), "asked again, it is the same");
        let spare = Client::attach_spare(stage.pipe_dir(), token, 1).expect("the spare copy's server");
        assert_eq!(
            asks(&mut shim, Ask::SpareStands { token, is_ready: true, behind: 3, takes: SpareTakes::default() }),
            DONE
        );
        let (servers, status) = (stage.servers(), stage.ask("status\n"));
        assert_eq!(servers.len(), 2, "{status}");
        assert!(status.contains("ready, 3 behind"), "{status}");
        let standby = servers.into_iter().find(|pid| !first.contains(pid)).expect("another one");
        let listed = stage.ask(&format!("get_client_list {standby}\n"));
        assert_eq!(listed, format!("{}\n", std::process::id()), "its server has it");
        assert_eq!(server_of(&mut shim), (own, ServerState::HEALTHY));
        // A new daemon knows all of it, and hears how far the spare copy is.
        stage.kill_daemon();
        start(stage);
        let mut shim = door(stage);
        assert_eq!(
            asks(&mut shim, Ask::SpareStands { token, is_ready: true, behind: 0, takes: SpareTakes::default() }),
            DONE
        );
        assert_eq!(place(&mut shim), (token, server));
        stage.wait_for("its own server", || server_of(&mut door(stage)) == (own, ServerState::HEALTHY));
        kill(first[0], Signal::SIGKILL).expect("it is our server");
        stage.wait_for("the spare's server", || server_of(&mut door(stage)) == (server, ServerState::HEALTHY));
        // What it says late is known already, and its next context is an ordinary one that shows the name.
        assert_eq!(asks(&mut shim, Ask::SpareLives { token }), DONE);
        let more = Client::attach_spare(stage.pipe_dir(), token, 3).expect("its own server");
        assert_eq!(stage.ask(&format!("get_client_list {standby}\n")), format!("{}\n", std::process::id()));
        drop((spare, more));
    });
}

#[test]
fn a_spare_copy_without_a_place_is_sent_away_and_told_when_it_loses_one() {
    Stage::run(|stage| {
        start(stage);
        let mut shim = door(stage);
        let _client = Client::attach(stage.pipe_dir()).expect("a server");
        let first = stage.servers();
        let (own, _) = server_of(&mut shim);
        assert!(Client::attach_spare(stage.pipe_dir(), 7, 1).is_err(), "nobody was given that");
        assert_eq!(
            asks(&mut shim, Ask::SpareStands { token: 7, is_ready: true, behind: 0, takes: SpareTakes::default() }),
            Answer::Failed(Failure::NOT_FOUND)
        );
        let (token, server) = place(&mut shim);
        let _spare = Client::attach_spare(stage.pipe_dir(), token, 2).expect("the spare copy's server");
        let standby = stage.servers().into_iter().find(|pid| !first.contains(pid)).expect("another one");
        kill(standby, Signal::SIGKILL).expect("it is our server");
        assert_eq!(shim.news().expect("news"), Answer::SpareVoid { token });
        assert!(Client::attach_spare(stage.pipe_dir(), token, 4).is_err(), "never to another server");
        assert_eq!(server_of(&mut shim), (own, ServerState::HEALTHY));
        let (next_token, next) = place(&mut shim);
        assert!(next_token != token && next != server && next != own, "{next_token:x} on {next}");
        assert_eq!(asks(&mut shim, Ask::SpareGone { token: next_token }), DONE);
        assert_eq!(asks(&mut shim, Ask::SpareLives { token: next_token }), Answer::Failed(Failure::NOT_FOUND));
    });
}

#[test]
fn who_says_that_its_spare_copy_is_gone_and_stays_is_listed_and_ended() {
    Stage::run(|stage| {
        start(stage);
        let mut shim = door(stage);
        let _client = Client::attach(stage.pipe_dir()).expect("a server");
        let first = stage.servers();
        let (token, server) = place(&mut shim);
        let spare = Client::attach_spare(stage.pipe_dir(), token, 1).expect("its own connection and a context's");
        assert!(Client::attach_spare(stage.pipe_dir(), token, 3).is_err(), "it has all that it needs");
        let standby = stage.servers().into_iter().find(|pid| !first.contains(pid)).expect("another one");
        assert_eq!(asks(&mut shim, Ask::SpareGone { token }), DONE);
        let status = stage.ask("status\n");
        assert!(status.contains("leaving"), "{status}");
        let listed = stage.ask(&format!("get_client_list {standby}\n"));
        assert_eq!(listed, format!("{}\n", std::process::id()), "the server has it");
        let early = asks(&mut shim, Ask::Spare { wait_ms: 100 });
        assert_eq!(early, Answer::Failed(Failure::NOT_YET), "not before it has left");
        // Its time is over, and the server has ended its work.
        let (next, other) = place(&mut shim);
        assert!(next != token && other == server, "{next:x} on {other}");
        drop(spare);
    });
}

#[test]
fn what_a_recovery_took_is_believed_of_who_says_it_alone_and_an_earlier_library_says_nothing() {
    Stage::run(|stage| {
        start(stage);
        let (mut shim, welcome) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        assert!(welcome.capabilities.has(Capabilities::RECOVERIES));
        let _client = Client::attach(stage.pipe_dir()).expect("a server");
        let own = |stage: &Stage| stage.ask(&format!("get_client_state {} --json\n", std::process::id()));
        let recovery =
            |stage: &Stage| serde_json::from_str::<serde_json::Value>(&own(stage)).expect("JSON")["recovery"].clone();
        assert!(recovery(stage).is_null(), "{}", own(stage));
        let said = |number: u64, total_us: u64| {
            let (way, steps_us, switch_us) = (Way::SPARE_FAILED, vec![7, 3], vec![2]);
            Ask::Recovered(Recovered { number, way, error: 700, total_us, steps_us, switch_us })
        };
        assert_eq!(asks(&mut shim, said(1, 1500)), DONE);
        assert_eq!(
            (&recovery(stage)["way"], &recovery(stage)["total_ms"]),
            (&"spare-failed".into(), &1.5.into()),
            "{}",
            own(stage)
        );
        // Said again after a lost connection, and by a process that forgets how many there were.
        assert_eq!(asks(&mut door(stage), said(1, 9999)), DONE);
        assert_eq!(recovery(stage)["total_ms"], 1.5);
        assert_eq!(asks(&mut shim, said(2, 2500)), DONE);
        assert_eq!(recovery(stage)["number"], 2);
        // Without end, it is written in bounds and counted.
        for number in 3..9_000 {
            assert_eq!(asks(&mut shim, said(number, 20)), DONE);
        }
        let count = "mps_client_recovery_seconds_count{way=\"spare_failed\"} 8999\n";
        let metrics = stage.ask("metrics\n");
        assert!(metrics.contains(count), "{metrics}");
        let journal = std::fs::read_to_string(stage.lab().log_dir().join("events.jsonl")).expect("it is there");
        let written = journal.matches("client-recovered").count();
        assert!(written < 8_000, "{written}");
        // A new daemon knows nothing of it, and is told of the next one.
        stage.kill_daemon();
        start(stage);
        assert_eq!(asks(&mut door(stage), said(9_000, 20)), DONE);
        // It learns from its server who its clients are.
        stage.wait_for("what it says", || own(stage).contains("\"number\":9000,"));
    });
}
