//! Every spelling, and the releases' answers to what they do not know.

mod local;

use super::*;

fn call(arguments: &str, personality: Personality) -> Invocation {
    parse(arguments.split_whitespace().map(OsString::from), personality)
}

fn daemon(arguments: &str) -> DaemonOptions {
    match call(arguments, Personality::V580) {
        Invocation::Daemon(options) => options,
        other @ (Invocation::Ui
        | Invocation::Command(_)
        | Invocation::Print(_)
        | Invocation::Local(_)
        | Invocation::CheckConfig(_)) => panic!("{arguments}: {other:?}"),
    }
}

fn printed(arguments: &str, personality: Personality) -> Print {
    match call(arguments, personality) {
        Invocation::Print(print) => print,
        other @ (Invocation::Ui
        | Invocation::Command(_)
        | Invocation::Daemon(_)
        | Invocation::Local(_)
        | Invocation::CheckConfig(_)) => panic!("{arguments}: {other:?}"),
    }
}

#[test]
fn the_daemon_is_asked_for_in_every_spelling_and_order() {
    let background = DaemonOptions::default();
    let foreground = DaemonOptions { foreground: true, ..background.clone() };
    let multiuser = DaemonOptions { multiuser: true, ..background.clone() };
    let partitioned = DaemonOptions { static_partitioning: true, ..background.clone() };
    for (arguments, want) in [
        ("-d", background.clone()),
        ("--daemon", background.clone()),
        ("-f", foreground.clone()),
        ("--foreground", foreground.clone()),
        ("--forground", foreground.clone()),
        ("-d -M", multiuser.clone()),
        ("-M -d", multiuser.clone()),
        ("-dm", multiuser.clone()),
        ("-d -multiuser-server", multiuser.clone()),
        ("--multiuser-server -f", DaemonOptions { multiuser: true, ..foreground.clone() }),
        ("-f -multiuser-server", DaemonOptions { multiuser: true, ..foreground.clone() }),
        ("-multiuser-server -d", multiuser.clone()),
        ("-d -S", partitioned.clone()),
        ("--static-partitioning --daemon", partitioned.clone()),
        ("-S", partitioned.clone()),
        ("-d -s -q", DaemonOptions { ready_devices: true, ..partitioned.clone() }),
        ("-d --ready-devices", DaemonOptions { ready_devices: true, ..background.clone() }),
        ("-d ignored words", background.clone()),
    ] {
        assert_eq!(daemon(arguments), want, "{arguments}");
    }
}

#[test]
fn a_daemon_is_told_its_protocol_in_every_spelling() {
    for arguments in ["-d -p 3", "-dp 3", "-dp3", "-p3 -d", "--protocol 3 --daemon", "-d --protocol=3", "-d -p 2 -p 3"]
    {
        let want = DaemonOptions { protocol: Some(Protocol::Three), ..DaemonOptions::default() };
        assert_eq!(daemon(arguments), want, "{arguments}");
    }
    assert_eq!(daemon("-f -p 2").protocol, Some(Protocol::Two));
    assert_eq!(daemon("-d").protocol, None);
    for arguments in
        ["-d -a servers.toml", "-aservers.toml -d", "-d --apply=servers.toml", "-p3 --apply servers.toml -f"]
    {
        assert_eq!(daemon(arguments).servers, Some(PathBuf::from("servers.toml")), "{arguments}");
    }
    for arguments in ["-a servers.toml", "-d -a", "-d --apply="] {
        let refused = printed(arguments, Personality::V580);
        assert!(refused.status == 2 && refused.stderr.starts_with("--apply: "), "{arguments}: {refused:?}");
    }
    // A command line follows the daemon that runs.
    assert_eq!(call("-p 3 server list", Personality::V580), Invocation::Command(b"server list".to_vec()));
    assert_eq!(call("-p 3", Personality::V580), Invocation::Ui);
    assert_eq!(call("-q -p 3", Personality::V580), Invocation::Command(b"quit".to_vec()));
    for (arguments, value) in [("-d -p 4", "4"), ("-d -p", ""), ("-pd", "d"), ("--protocol=", ""), ("-p3x -d", "3x")] {
        let refused = printed(arguments, Personality::V580);
        let says = format!("--protocol: {value:?} is no protocol, those are 2 and 3\n");
        assert_eq!((refused.stderr, refused.status), (says, 2), "{arguments}");
    }
}

#[test]
fn words_are_one_command_however_they_are_quoted() {
    for words in [&["get_client_list 7"][..], &["get_client_list", "7"][..], &["--", "get_client_list", "7"][..]] {
        let sent = parse(words.iter().map(OsString::from), Personality::V550);
        assert_eq!(sent, Invocation::Command(b"get_client_list 7".to_vec()), "{words:?}");
    }
    let start = call("start_server -uid 0", Personality::V580);
    assert_eq!(start, Invocation::Command(b"start_server -uid 0".to_vec()));
    assert_eq!(call("shutdown_server 7 -f", Personality::V580), Invocation::Command(b"shutdown_server 7 -f".to_vec()));
}

#[test]
fn q_alone_quits_and_nothing_at_all_reads_standard_input() {
    assert_eq!(call("-q", Personality::V580), Invocation::Command(b"quit".to_vec()));
    assert_eq!(call("--quit", Personality::V580), Invocation::Command(b"quit".to_vec()));
    assert_eq!(call("", Personality::V580), Invocation::Ui);
    assert_eq!(call("--ready-devices", Personality::V580), Invocation::Ui);
}

#[test]
fn the_version_is_found_by_the_words_before_it() {
    for (personality, want) in [(Personality::V580, 13000), (Personality::V595, 13020)] {
        let print = printed("-v", personality);
        let (_, after) = print.stdout.split_once("Binary version: ").unwrap();
        assert_eq!(after.lines().next().unwrap().parse::<u32>().unwrap(), want);
        assert_eq!((print.stderr.as_str(), print.status), ("", 0));
    }
    assert!(!printed("--version", Personality::V550).stdout.contains("Binary version"));
}

#[test]
fn the_help_text_lists_what_the_release_has() {
    for personality in Personality::ALL {
        let print = printed("-h", personality);
        assert_eq!((print.stderr.as_str(), print.status), ("", 0));
        for name in remps_proto::admin::CommandName::ALL {
            let listed = print.stdout.lines().any(|line| line.trim().split(' ').next() == Some(name.spelling()));
            assert_eq!(listed, personality.knows(*name), "{name} in the help of {personality}");
        }
    }
    assert!(printed("--help", Personality::V580).stdout.starts_with("CUDA MPS Control for Linux/Unix/QNX.\n"));
    assert!(printed("-h", Personality::V555).stdout.starts_with("CUDA MPS Control for Linux/Unix.\n"));
}

#[test]
fn an_unknown_option_does_what_it_does_in_each_release() {
    assert_eq!(call("-V", Personality::V535), Invocation::Ui);
    assert_eq!(call("-d --bogus", Personality::V550), Invocation::Ui);
    let usage = printed("-x", Personality::V555);
    assert_eq!((usage.stdout.lines().next(), usage.status), (Some("CUDA MPS Control for Linux/Unix."), 1));
    let help = printed("-dx", Personality::V580);
    assert!(
        help.stdout.starts_with("Unrecognized option  \nCUDA MPS Control for Linux/Unix/QNX.\n"),
        "{}",
        help.stdout
    );
    assert_eq!((help.stderr.as_str(), help.status), ("Unrecognized option  -dx\n", 0));
    let bytes = parse([std::os::unix::ffi::OsStringExt::from_vec(b"-\xff".to_vec())], Personality::V595);
    assert!(matches!(bytes, Invocation::Print(Print { status: 0, .. })));
}

#[test]
fn only_root_serves_all_users() {
    let options = daemon("-d -M");
    assert_eq!(options.check_user(0), Ok(()));
    let refused = options.check_user(1000).unwrap_err();
    assert_eq!((refused.stdout.as_str(), refused.status), ("Only root user may enable -multiuser-server!\n", 1));
    assert_eq!(daemon("-d").check_user(1000), Ok(()));
}

#[test]
fn no_spelling_is_used_twice() {
    let mut spellings: Vec<String> = OPTIONS
        .iter()
        .flat_map(|spec| {
            let letters = spec.letters.iter().map(|letter| format!("-{letter}"));
            letters.chain(spec.words.iter().map(|word| (*word).to_owned()))
        })
        .collect();
    let all = spellings.len();
    spellings.sort();
    spellings.dedup();
    assert_eq!(spellings.len(), all);
}

#[test]
fn the_configuration_is_checked_without_being_the_daemon() {
    for personality in Personality::ALL {
        assert_eq!(call("--check-config", personality), Invocation::CheckConfig(None));
        let file = Some(PathBuf::from("/x.toml"));
        assert_eq!(call("--check-config /x.toml", personality), Invocation::CheckConfig(file.clone()));
        assert_eq!(call("-d --check-config /x.toml", personality), Invocation::CheckConfig(file));
        assert_eq!(printed("--check-config a b", personality).status, 2);
    }
}
