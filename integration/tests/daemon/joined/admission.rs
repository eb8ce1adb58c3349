//! Who may join as a thin daemon, and what becomes of whoever else comes to that socket.

use super::log_of_node;
use integration::lab::LIMIT;
use integration::lab::claim::Claim;
use integration::lab::client::Connection;
use integration::lab::place::{where_possible, within};
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{CLIENT, CONTROL, Stage};
use nix::sys::signal::Signal::SIGKILL;
use nix::sys::signal::kill;
use nix::unistd::geteuid;
use remps_proto::join::{SOCKET_NAME, ToNode, ToThin, VERSION};
use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;

/// PID and mount namespaces with a `/proc` of their own, as a container has them.
const CONTAINER: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc"];

#[test]
fn who_may_not_join_is_told_why() {
    Stage::run(|stage| {
        let claim = Claim::new(stage, "claim");
        // Nobody is there.
        let alone = claim.try_to_join(stage, &[]);
        assert_eq!((alone.code, alone.stdout_text().as_str()), (Some(1), ""));
        let expected = format!("no daemon can be joined at {}: ", stage.pipe_dir().display());
        assert!(alone.stderr_text().starts_with(&expected), "{}", alone.stderr_text());
        assert!(!claim.pipe.join("control_lock").exists(), "nothing stays behind");
        stage.start(&[]);
        let fails = |claim: &Claim, more: &[&str], why: &str| {
            let refused = claim.try_to_join(stage, more);
            assert_eq!((refused.code, refused.stdout_text().as_str()), (Some(1), ""), "{why}");
            assert!(refused.stderr_text().contains(why), "{}", refused.stderr_text());
        };
        fails(&claim, &["--join-name", "No-Name"], "1 to 64 lower-case letters");
        assert_eq!(stage.ask("server create mine\n"), "");
        fails(&claim, &["--join-name", "mine"], "nobody has joined as it");
        fails(&claim, &["--join-name", "uid_7"], "a user's own server");
        fails(&claim, &["--join-name", "control_join"], "the name of a file");
        // The name of one that lives, from elsewhere.
        let done = claim.try_to_join(stage, &["--join-name", "jobs"]);
        assert_eq!(done.code, Some(0), "{}", done.stderr_text());
        let other = Claim::new(stage, "other");
        fails(&other, &["--join-name", "jobs"], "another daemon has joined as jobs, and lives");
        kill(claim.pid(), SIGKILL).expect("it lives");
        claim.wait_gone(stage);
        // Its server is there to be taken up, also in another folder.
        stage.wait_for("the loss", || log_of_node(stage).contains("that has joined as jobs is gone"));
        assert_eq!(other.try_to_join(stage, &["--join-name", "jobs"]).code, Some(0));
        claim.waits(stage, "the old socket's end", || !claim.pipe.join("control").exists());
        other.client(stage).leave();
        // The options make no sense otherwise.
        for words in [["--join", "/tmp"], ["--join-name", "a"]] {
            assert_eq!(claim.run(stage, &words, "").code, Some(2), "{words:?}");
        }
    });
}

#[test]
fn another_user_can_neither_join_nor_rule_a_claim() {
    const USER: u32 = 1000;
    if !geteuid().is_root() {
        return eprintln!("Skipped(only root can be others)");
    }
    Stage::run(|stage| {
        stage.start(&[]);
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        let mut asks = claim.placed(stage.command_as(USER, CONTROL, &[]));
        let refused = stage.lab().finish(&mut asks, b"set_default_active_thread_percentage 5\n");
        assert_ne!(refused.stdout_text(), "5.0\n");
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "100.0\n");
        let mut quits = claim.placed(stage.command_as(USER, CONTROL, &[]));
        let refused = stage.lab().finish(&mut quits, b"quit\n");
        assert!(!refused.stdout.is_empty(), "it is told that it may not");
        assert_eq!(claim.servers(stage), Vec::<String>::new(), "it lives");
        // His own client's process is all that he sees, and nobody else's claim.
        let his = Program::started_as(claim.placed(stage.command_as(USER, CLIENT, &[])));
        his.expect("attached");
        let folder = stage.lab().dir().join("his");
        fs::create_dir(&folder).expect("our folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("our folder");
        let node = stage.pipe_dir().to_str().expect("a path of ours");
        let mut joins = stage.command_as(USER, CONTROL, &["--join", node, "-d"]);
        let pipe = folder.join("pipe");
        joins.env("CUDA_MPS_PIPE_DIRECTORY", &pipe).env("CUDA_MPS_LOG_DIRECTORY", &folder);
        let refused = stage.lab().finish(&mut joins, b"");
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr_text().contains("Permission denied"), "{}", refused.stderr_text());
        his.leave();
    });
}

#[test]
fn who_is_in_another_container_may_join_if_the_configuration_says_so_and_rules_there() {
    where_possible(&[CONTAINER], |stage| {
        let claim = Claim::new(stage, "claim");
        let node = stage.pipe_dir().to_str().expect("a path of ours").to_owned();
        let apart =
            |stage: &Stage| within(CONTAINER, &claim.placed(stage.command_as(0, CONTROL, &["-f", "--join", &node])));
        stage.start(&[]);
        let refused = stage.lab().finish(&mut apart(stage), b"");
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr_text().contains("[join] containers is false"), "{}", refused.stderr_text());
        assert_eq!(stage.ask("quit\n"), "");
        assert!(stage.take_daemon().ended_within(LIMIT));
        stage.config("[join]\ncontainers = true\n");
        stage.start(&[]);
        let thin = Process::start(&mut apart(stage));
        claim.waits(stage, "the joining", || thin.output().contains("Joined the daemon"));
        // Who is not in its container is user 0 of the machine or of a container of clients: not its owner.
        let set = "set_default_active_thread_percentage 42";
        assert_ne!(claim.run(stage, &[], set).stdout_text(), "42.0\n");
        assert_eq!(claim.ask(stage, "get_default_active_thread_percentage"), "100.0\n");
        let inside = ["nsenter", "--target", &claim.pid().to_string(), "--pid", "--mount"].map(str::to_owned);
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        let mut asks = within(&inside, &claim.placed(stage.command_as(0, CONTROL, &[])));
        assert_eq!(stage.lab().finish(&mut asks, set.as_bytes()).stdout_text(), "42.0\n");
        let mut client = claim.client(stage);
        client.ping();
        // The daemon that answers counts processes otherwise than the container of the thin one: a pid there is anybody's
        // here, and only whoever is named by his namespace is known.
        let stop = |words: &[&str]| {
            let stop = claim.placed(stage.command_as(0, CONTROL, &[&["stop-client"], words].concat()));
            stage.lab().finish(&mut within(&inside, &stop), b"")
        };
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "echo $$; read x"]);
        let bystander = Process::start_with_input(&mut within(&inside, &shell));
        claim.waits(stage, "its pid", || bystander.output().ends_with('\n'));
        let refused = stop(&[bystander.output().trim()]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr_text().contains("the daemon has other pids than this namespace"), "{refused:?}");
        let inner = Program::started_as(within(&inside, &claim.placed(stage.command_as(0, CLIENT, &[]))));
        inner.expect("attached");
        // That it is found is all: the server of this bench terminates nobody.
        let found = stop(&["--all-of", "self"]);
        assert!(found.stdout_text().contains(" (the daemon's pid): "), "{found:?}");
        assert!(!found.stderr_text().contains("other pids"), "{found:?}");
        inner.leave();
        assert_eq!(bystander.finish(LIMIT).expect("it ends with its input").signal, None, "nobody has ended it");
        client.ping();
        client.leave();
        let mut quits = within(&inside, &claim.placed(stage.command_as(0, CONTROL, &[])));
        // As the first process of its namespace it takes all others there along, who asks among them.
        drop(stage.lab().finish(&mut quits, b"quit"));
        assert!(thin.ended_within(LIMIT));
    });
}

#[test]
fn what_is_no_thin_daemon_is_told_so_and_keeps_nobody_from_joining() {
    Stage::run(|stage| {
        stage.start(&[]);
        let socket = stage.pipe_dir().join(SOCKET_NAME);
        let says = |version: u32, name: &str, devices: &str, limits: &str, replay: &str| {
            let [name, devices, limits, replay] = [name, devices, limits, replay].map(str::to_owned);
            ToNode::Hello { version, name, devices, limits, replay }.encode()
        };
        let hello = |version: u32, name: &str, devices: &str| says(version, name, devices, "", "");
        // One that says nothing stays as long as it likes, and nobody waits for it.
        let silent: Vec<Connection> = (0..70).map(|_| Connection::open(&socket).expect("it listens")).collect();
        let file = fs::File::open("/dev/null").expect("it is there");
        let exposed = stage.lab().dir().join("exposed");
        fs::create_dir(&exposed).expect("our folder");
        fs::set_permissions(&exposed, Permissions::from_mode(0o777)).expect("our folder");
        let exposed = fs::File::open(&exposed).expect("our folder");
        let own = fs::File::open(stage.lab().dir()).expect("our folder");
        for (packet, descriptors, why) in [
            (hello(VERSION, "jobs", ""), vec![], "has not handed over a directory"),
            (hello(VERSION, "jobs", ""), vec![&own, &own], "has not handed over a directory"),
            (hello(VERSION, "jobs", ""), vec![&file], "is no directory"),
            (hello(VERSION, "jobs", ""), vec![&exposed], "other users can replace files"),
            (hello(VERSION + 1, "jobs", ""), vec![&own], "speaks version"),
            (hello(VERSION, "jobs", "0,1"), vec![&own], "is no GPU's UUID"),
            (hello(VERSION, "../jobs", ""), vec![&own], "lower-case letters"),
            (says(VERSION, "jobs", "", "threads=none", ""), vec![&own], "of limits is not understood"),
            (says(VERSION, "jobs", "", "", "memory spare"), vec![&own], "[replay] says is not understood"),
            (vec![1, 0], vec![&own], "is not understood"),
            (vec![9; 4000], vec![&own], "does not say who it is"),
            (ToNode::Leave.encode(), vec![&own], "does not say who it is"),
        ] {
            let peer = Connection::open(&socket).expect("it listens");
            let descriptors: Vec<_> = descriptors.iter().map(|file| file.as_fd()).collect();
            peer.send_with(&packet, &descriptors).expect("room");
            let answer = ToThin::decode(&peer.receive().expect("an answer").bytes);
            let Ok(ToThin::Refused(reason)) = answer else { panic!("{why}: {answer:?}") };
            assert!(reason.contains(why), "{reason}");
        }
        // One that has joined and hands over what is no command line, or breaks the rules.
        let place = stage.lab().dir().join("place");
        fs::create_dir(&place).expect("our folder");
        let peer = Connection::open(&socket).expect("it listens");
        peer.send_with(&hello(VERSION, "strange", ""), &[fs::File::open(&place).expect("our folder").as_fd()])
            .expect("room");
        let joined = ToThin::decode(&peer.receive().expect("an answer").bytes);
        assert_eq!(joined, Ok(ToThin::Joined { name: "strange".to_owned() }));
        let visitor = ToNode::Visitor { is_owner: true }.encode();
        peer.send_with(&visitor, &[file.as_fd()]).expect("room");
        peer.send(&visitor).expect("room");
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("descriptors");
        peer.send_with(&visitor, &[near.as_fd()]).expect("room");
        peer.send(&[200, 1, 2]).expect("room");
        peer.send(&[2]).expect("room");
        stage.wait_for("its end", || log_of_node(stage).contains("that has joined as strange is gone"));
        drop((silent, far));
        let claim = Claim::new(stage, "claim");
        claim.join(stage);
        claim.client(stage).leave();
    });
}
