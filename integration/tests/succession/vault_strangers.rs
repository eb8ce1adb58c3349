//! Who is not the owner gets nothing out of the vault: another user, a hostile peer, a crowd, a forked child.

use crate::kept_memory::{OTHER, ROOT, idle, start};
use integration::lab::escrow::{Shim, memory, region};
use integration::lab::program::Program;
use integration::lab::stage::Stage;
use integration::lab::sudden_death::nothing_leaks;
use remps_proto::shim::{Answer, Ask, Failure, FromShim, MAX_MESSAGE_BYTES};
use std::os::fd::AsFd;

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
