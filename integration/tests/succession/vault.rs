//! Memory that outlives its program, the daemon and the holder, and that nobody else can get at.

use crate::kept_memory::{OTHER, ROOT, TAKES_MEMORY_FILES, idle, start, start_armed};
use integration::lab::client::Client;
use integration::lab::escrow::{Shim, memory, region};
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use integration::lab::sudden_death::{AtRest, died, nothing_leaks};
use nix::sys::signal::{Signal, kill};
use remps_proto::shim::{Answer, Ask, Capabilities, Failure, FromShim, MAX_MESSAGE_BYTES, Rest, ServerState};
use std::os::fd::AsFd;

#[test]
fn memory_outlives_its_program_and_the_daemon_and_is_adopted_to_the_bit() {
    let baseline = idle();
    Stage::run(|stage| {
        start(stage);
        let mut first = Program::with_memory(stage, ROOT);
        for key in 1..=3 {
            first.does(&format!("escrow {key} weights"), "done 1");
        }
        first.does("escrow 9 -", "done 1");
        first.does("hand-back", "1 intact, 2 intact, 3 intact, 9 intact, done 4");
        first.kill_9();
        stage.kill_daemon();
        start(stage);
        let mut second = Program::with_memory(stage, ROOT);
        second.does("list", "1 orphaned, 2 orphaned, 3 orphaned, done 3");
        assert_eq!(stage.ask("vault list --wide\n").lines().count(), 4, "a heading and three regions");
        let metrics = stage.ask("metrics\n");
        assert!(metrics.contains("of=\"dead\"} 6291456"), "{metrics}");
        second.does("adopt weights", "1 intact, 2 intact, 3 intact, done 3");
        // Once more, as after a lost answer.
        second.does("adopt weights", "1 intact, 2 intact, 3 intact, done 3");
        second.does("release 2", "done 1");
        stage.kill_daemon();
        start(stage);
        second.does("hand-back", "1 intact, 3 intact, done 2");
        for key in [1, 3] {
            second.does(&format!("release {key}"), "done 1");
        }
        second.leave();
        nothing_leaks(stage, baseline, "everything released");
    });
}

#[test]
fn a_daemon_killed_at_any_step_of_an_escrow_keeps_the_region_or_is_asked_again() {
    let baseline = idle();
    for point in ["region-asked", "region-held", "region-safe"] {
        Stage::run(|stage| {
            start_armed(stage, point);
            let mut program = Program::with_memory(stage, ROOT);
            program.begins("escrow 1 weights");
            died(stage, point);
            start(stage);
            program.expect("done 1");
            program.does("list", "1 owned, done 1");
            program.kill_9();
            let mut next = Program::with_memory(stage, ROOT);
            next.does("adopt weights", "1 intact, done 1");
            next.does("release 1", "done 1");
            next.leave();
            nothing_leaks(stage, baseline, point);
        });
    }
}

#[test]
fn a_daemon_killed_at_any_step_of_an_adoption_leaves_all_of_a_name_or_nothing() {
    for point in ["adoption-known", "adoption-half-noted:4", "adoption-half-noted:5", "adoption-noted"] {
        Stage::run(|stage| {
            start_armed(stage, point);
            let mut first = Program::with_memory(stage, ROOT);
            for key in 1..=3 {
                first.does(&format!("escrow {key} weights"), "done 1");
            }
            // Its end is the first three notes.
            first.kill_9();
            let mut second = Program::with_memory(stage, ROOT);
            while_owner_lives(&mut second, "adopt weights");
            died(stage, point);
            start(stage);
            second.expect("1 intact, 2 intact, 3 intact, done 3");
            second.does("list", "1 owned, 2 owned, 3 owned, done 3");
        });
    }
}

/// Has a name adopted by a program whose predecessor's end the daemon may not have seen yet; the answer is not awaited.
fn while_owner_lives(program: &mut Program, line: &str) {
    // The end of the first is seen before its successor's request, or this would have to ask again.
    program.begins("list");
    let listed = program.line_within(integration::lab::LIMIT).expect("a list");
    if listed.contains("owned") {
        return while_owner_lives(program, line);
    }
    program.begins(line);
}

#[test]
fn a_daemon_killed_while_it_lets_go_loses_count_of_nothing() {
    let baseline = idle();
    for point in ["region-released", "owner-end-seen", "owner-end-noted", "vault-restored"] {
        Stage::run(|stage| {
            stage.config("[vault]\nttl = 0.3\n");
            if point == "vault-restored" {
                start(stage);
            } else {
                start_armed(stage, point);
            }
            let mut program = Program::with_memory(stage, ROOT);
            program.does("escrow 1 weights", "done 1");
            program.does("escrow 2 -", "done 1");
            if point == "region-released" {
                program.begins("release 1");
            } else if point == "vault-restored" {
                stage.kill_daemon();
                stage.launch(&[], &[TAKES_MEMORY_FILES, ("MPS_TEST_KILL_AT", point)]);
            }
            if point != "region-released" {
                program.kill_9();
            }
            died(stage, point);
            start(stage);
            nothing_leaks_but_a_program(stage, baseline, point);
        });
    }
}

/// The program of the released region still has another one without a name, and a connection.
fn nothing_leaks_but_a_program(stage: &Stage, mut baseline: AtRest, point: &str) {
    if point == "region-released" {
        baseline = [baseline[0] + 8, baseline[1] + 1];
    }
    nothing_leaks(stage, baseline, point);
}

#[test]
fn what_nobody_adopts_in_time_is_freed() {
    let baseline = idle();
    Stage::run(|stage| {
        stage.config("[vault]\nttl = 0.3\n");
        start(stage);
        let mut first = Program::with_memory(stage, ROOT);
        first.does("escrow 1 weights", "done 1");
        first.kill_9();
        stage.wait_for("an empty vault", || stage.ask("vault list --json\n").is_empty());
        nothing_leaks(stage, baseline, "the time is over");
        Program::with_memory(stage, ROOT).does("adopt weights", "failed NOT_FOUND");
    });
}

#[test]
fn a_signal_hands_the_vault_over_and_a_killed_holder_gets_it_again() {
    Stage::run(|stage| {
        start(stage);
        let mut program = Program::with_memory(stage, ROOT);
        program.does("escrow 1 weights", "done 1");
        let old = stage.only(Part::Holder);
        kill(old, Signal::SIGKILL).expect("it is ours");
        stage.wait_for("another holder", || {
            let holders = stage.pids(Part::Holder);
            !holders.is_empty() && !holders.contains(&old)
        });
        program.does("escrow 2 weights", "done 1");
        stage.daemon().signal(Signal::SIGUSR1);
        assert!(stage.take_daemon().ended_within(integration::lab::LIMIT));
        start(stage);
        program.does("hand-back", "1 intact, 2 intact, done 2");
    });
}

#[test]
fn another_user_gets_nothing_and_learns_nothing() {
    Stage::run(|stage| {
        start(stage);
        let mut owner = Program::with_memory(stage, OTHER);
        owner.does("escrow 1 weights", "done 1");
        owner.kill_9();
        for user in [ROOT, OTHER + 1] {
            let mut other = Program::with_memory(stage, user);
            other.does("list", "done 0");
            other.does("adopt weights", "failed NOT_FOUND");
            other.does("discard weights", "failed NOT_FOUND");
            other.does("release 1", "failed NOT_FOUND");
            other.does("hand-back", "done 0");
            // The same name is another one.
            other.does("escrow 1 weights", "done 1");
        }
        Program::with_memory(stage, OTHER).does("adopt weights", "1 intact, done 1");
        assert_eq!(stage.ask_as(OTHER, "vault list --json\n").lines().count(), 1);
        assert_eq!(stage.ask_as(OTHER + 2, "vault list --json\n"), "");
        let events = stage.ask("events --json\n");
        for event in ["region-escrowed", "regions-adopted"] {
            assert!(events.contains(event), "{event}: {events}");
        }
    });
}

#[test]
fn wrong_descriptors_and_wrong_messages_are_refused_and_harm_nobody() {
    let baseline = idle();
    Stage::run(|stage| {
        start(stage);
        let mut good = Program::with_memory(stage, ROOT);
        good.does("escrow 1 weights", "done 1");
        let pipe_dir = stage.pipe_dir();
        let memory = memory(7);

        let mut silent = Shim::silent(pipe_dir).expect("the door is open");
        assert_eq!(silent.refused(Ask::HandBack, None), Failure::NOT_GREETED);

        let (mut shim, welcome) = Shim::greeted(pipe_dir).expect("a welcome");
        // Fewer where few files may be open.
        assert!((1..=4096).contains(&welcome.most_regions), "{}", welcome.most_regions);
        let (pipe, _other_end) = std::io::pipe().expect("a pipe");
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let file = std::fs::File::create(stage.lab().dir().join("nvidiactl")).expect("our folder");
        let null = std::fs::File::open("/dev/null").expect("the null device");
        for wrong in [pipe.as_fd(), socket.as_fd(), file.as_fd(), null.as_fd(), silent.connection().as_fd()] {
            let escrow = Ask::Escrow(region(1, "weights"));
            assert_eq!(shim.refused(escrow, Some(wrong)), Failure::WRONG_DESCRIPTOR);
        }
        assert_eq!(shim.refused(Ask::Escrow(region(1, "weights")), None), Failure::DESCRIPTORS);
        assert_eq!(shim.refused(Ask::HandBack, Some(memory.as_fd())), Failure::DESCRIPTORS);

        // Many descriptors, more than any buffer for them has room for.
        let escrow = FromShim { request: 77, ask: Ask::Escrow(region(5, "many")) }.encode().expect("a message");
        for count in [2, 9, 100] {
            shim.connection().send_with(&escrow, &vec![memory.as_fd(); count]).expect("it is sent");
            let answers = shim.answers(77).expect("an answer");
            assert!(matches!(answers[..], [(Answer::Failed(Failure::DESCRIPTORS), None)]), "{count}: {answers:?}");
        }
        // Half a message, no message, and one that is too long.
        for packet in [&escrow[..escrow.len() / 2], b"\xff\xff", &[0; 4 * MAX_MESSAGE_BYTES], b""] {
            shim.connection().send(packet).expect("it is sent");
            let expected = if packet.is_empty() { Failure::UNKNOWN_REQUEST } else { Failure::MALFORMED };
            let answers = shim.answers(0).expect("an answer");
            assert!(matches!(&answers[..], [(Answer::Failed(failure), None)] if *failure == expected), "{answers:?}");
        }
        drop((shim, silent));
        good.does("hand-back", "1 intact, done 1");
        good.does("release 1", "done 1");
        good.leave();
        nothing_leaks(stage, baseline, "a hostile peer");
    });
}

#[test]
fn a_crowd_at_the_door_keeps_out_its_own_user_alone() {
    let baseline = idle();
    Stage::run(|stage| {
        start(stage);
        let crowd: Vec<Shim> = (0..128).map(|_| Shim::greeted(stage.pipe_dir()).expect("a place").0).collect();
        let mut turned_away = Shim::silent(stage.pipe_dir()).expect("the door is open");
        let answers = turned_away.answers(0).expect("an answer");
        assert!(matches!(answers[..], [(Answer::Failed(Failure::TOO_MANY_CONNECTIONS), None)]), "{answers:?}");
        let mut other = Program::with_memory(stage, OTHER);
        other.does("escrow 1 weights", "done 1");
        // Floods, each on its own connection; nobody reads the answers.
        let list = FromShim { request: 1, ask: Ask::List { name: String::new() } }.encode().expect("a message");
        for shim in &crowd {
            for _ in 0..20 {
                shim.connection().send(&list).expect("it is sent");
            }
        }
        other.does("hand-back", "1 intact, done 1");
        drop(crowd);
        other.does("release 1", "done 1");
        other.leave();
        nothing_leaks(stage, baseline, "a crowd");
    });
}

#[test]
fn a_forked_child_or_a_friend_does_not_speak_for_its_parent() {
    Stage::run(|stage| {
        start(stage);
        let (mut shim, _) = Shim::greeted(stage.pipe_dir()).expect("a welcome");
        // Another process that has the connection: it copies what it is given to where it is told.
        let packet = FromShim { request: 5, ask: Ask::HandBack }.encode().expect("a message");
        let file = stage.lab().dir().join("packet");
        std::fs::write(&file, packet).expect("our folder");
        let connection = shim.connection().as_fd().try_clone_to_owned().expect("a descriptor");
        let status = std::process::Command::new("/bin/cat")
            .arg(&file)
            .stdout(std::process::Stdio::from(connection))
            .status()
            .expect("cat runs");
        assert!(status.success());
        let answers = shim.answers(5).expect("an answer");
        assert!(matches!(answers[..], [(Answer::Failed(Failure::IDENTITY), None)]), "{answers:?}");
    });
}

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

#[test]
fn a_vault_that_is_switched_off_has_no_door_and_lets_go_of_what_it_had() {
    let baseline = idle();
    Stage::run(|stage| {
        start(stage);
        let mut program = Program::with_memory(stage, ROOT);
        program.does("escrow 1 weights", "done 1");
        stage.kill_daemon();
        stage.config("[vault]\nenabled = false\n");
        start(stage);
        // The door of the daemon before is closed beside everything else that a start does.
        stage.wait_for("no door", || Shim::silent(stage.pipe_dir()).is_err());
        nothing_leaks(stage, baseline, "switched off");
    });
}
