//! Commands that this program carries out itself: what their words mean, and that none of them is the daemon's.

use super::*;
use remps_proto::admin::{Form, Output};
use std::time::Duration;

#[test]
fn commands_of_ours_are_not_sent_to_the_daemon() {
    let local = |arguments: &str| match call(arguments, Personality::V580) {
        Invocation::Local(command) => command,
        other @ (Invocation::Ui
        | Invocation::Command(_)
        | Invocation::Daemon(_)
        | Invocation::Print(_)
        | Invocation::CheckConfig(_)) => panic!("{arguments}: {other:?}"),
    };
    let stop = |whom| StopRequest {
        whom,
        timeout: Duration::from_secs(10),
        grace: Duration::ZERO,
        signals: true,
        form: Form::Table,
    };
    for (words, form) in [
        ("doctor", Form::Table),
        ("doctor --json", Form::Json),
        ("doctor -o json --utc", Form::Json),
        ("doctor -o json --json", Form::Json),
        ("doctor -owide", Form::Wide),
    ] {
        assert_eq!(local(words), LocalCommand::Doctor { form }, "{words}");
    }
    let explain = |svg: Option<&str>, form, utc| {
        let (svg, output) = (svg.map(PathBuf::from), Output { form, utc });
        LocalCommand::Explain(ExplainRequest { fault: 7, svg, output })
    };
    assert_eq!(local("explain 7"), explain(None, Form::Table, false));
    assert_eq!(local("explain --svg /x.svg 7 --utc"), explain(Some("/x.svg"), Form::Table, true));
    assert_eq!(local("explain -o json 7"), explain(None, Form::Json, false));
    assert_eq!(local("stop-client 7 8"), LocalCommand::StopClient(stop(Whom::Pids(vec![7, 8]))));
    assert_eq!(
        local("stop-client --timeout 2.5 --grace 1 7"),
        LocalCommand::StopClient(StopRequest {
            timeout: Duration::from_millis(2500),
            grace: Duration::from_secs(1),
            ..stop(Whom::Pids(vec![7]))
        })
    );
    assert_eq!(
        local("stop-client --no-signal 7"),
        LocalCommand::StopClient(StopRequest { signals: false, ..stop(Whom::Pids(vec![7])) })
    );
    assert_eq!(
        local("stop-client -o json 7"),
        LocalCommand::StopClient(StopRequest { form: Form::Json, ..stop(Whom::Pids(vec![7])) })
    );
    assert_eq!(local("stop-client --cgroup /a"), LocalCommand::StopClient(stop(Whom::Cgroup("/a".into()))));
    assert_eq!(local("stop-client --all-of self"), LocalCommand::StopClient(stop(Whom::NamespaceOf(None))));
    assert_eq!(local("stop-client --all-of 9"), LocalCommand::StopClient(stop(Whom::NamespaceOf(Some(9)))));
}

#[test]
fn a_command_of_ours_that_makes_no_sense_says_how_it_is_written() {
    for (arguments, says) in [
        ("doctor --jason", "--jason"),
        ("doctor -o", "needs table, wide or json"),
        ("doctor -o yaml", "-o yaml is not table, wide or json"),
        ("doctor -o wide --json", "two forms"),
        ("explain", "names no fault"),
        ("explain 0", "0 is no number"),
        ("explain 1 2", "one fault at a time"),
        ("explain 1 --svg", "--svg needs a file"),
        ("explain 1 --sgv x", "--sgv is not understood"),
        ("explain 1 -o svg", "-o svg is not"),
        ("stop-client", "names no process"),
        ("stop-client 0", "0 is no pid"),
        ("stop-client -- 7", "-- is not"),
        ("stop-client 7x", "7x is no pid"),
        ("stop-client 4294967295", "is no pid"),
        ("stop-client --timeout", "needs a value"),
        ("stop-client --timeout -1 7", "-1 is no number of seconds"),
        ("stop-client --timeout nan 7", "nan is no number of seconds"),
        ("stop-client --grace 1 --no-signal 7", "forbids"),
        ("stop-client --cgroup /a 7", "exclude each other"),
        ("stop-client --cgroup /a --all-of self", "exclude each other"),
    ] {
        let print = printed(arguments, Personality::V580);
        assert_eq!((print.status, print.stdout.as_str()), (2, ""), "{arguments}");
        let (what, usage) = print.stderr.split_once('\n').unwrap();
        assert!(what.contains(says), "{arguments}: {what}");
        assert!(usage.starts_with("Usage: "), "{arguments}: {usage}");
    }
}

#[test]
fn no_command_of_ours_takes_one_away_from_the_daemon() {
    // The modules of the third protocol, of which the daemon of release 615 is asked by word.
    const MODULES: [&str; 8] =
        ["server", "namespace", "client", "device", "sm-partition", "feature", "memacct", "context-share"];
    for spec in LOCAL_COMMANDS {
        let name = spec.name.as_bytes();
        assert!(!remps_proto::admin::CommandName::ALL.iter().any(|command| command.spelling().as_bytes() == name));
        assert!(!MODULES.contains(&spec.name));
    }
}

#[test]
fn a_screen_has_one_form_and_an_interval_of_sense() {
    let parsed = |text: &str| parse(text.split(' ').map(OsString::from), Personality::V580);
    let top = |form, seconds, utc| {
        let interval = Duration::from_secs_f64(seconds);
        Invocation::Local(LocalCommand::Top(TopRequest { form, interval, utc }))
    };
    assert_eq!(parsed("top"), top(TopForm::Screen, 2.0, false));
    assert_eq!(parsed("top --interval 0.5 --utc"), top(TopForm::Screen, 0.5, true));
    assert_eq!(parsed("top --once --once"), top(TopForm::Once, 2.0, false));
    assert_eq!(parsed("top --json"), top(TopForm::Json, 2.0, false));
    for (line, what) in [
        ("top --once --json", "two forms"),
        ("top --interval", "needs a number"),
        ("top --interval 0.01", "from 0.1 to 3600"),
        ("top --interval 3601", "from 0.1 to 3600"),
        ("top --interval x", "no number of seconds"),
        ("top --json --interval 1", "look once"),
        ("top 7", "7 is not understood"),
    ] {
        let Invocation::Print(Print { stderr, status, .. }) = parsed(line) else { panic!("{line}") };
        assert!(stderr.contains(what) && status == text::USAGE, "{line}: {stderr}");
    }
}

#[test]
fn a_program_to_run_follows_its_options() {
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    let parsed = |text: &str| parse(words(text), Personality::V580);
    let run = RunRequest {
        name: Some("llm".into()),
        restart: false,
        standby: true,
        limit: 3,
        library: None,
        command: words("serve --name x"),
    };
    assert_eq!(
        parsed("run --name llm --restart never --standby --limit 3 -- serve --name x"),
        Invocation::Local(LocalCommand::Run(run))
    );
    for (line, what) in [
        ("run", "names no command"),
        ("run --name a", "names no command"),
        ("run serve", "serve is not understood"),
        ("run --standby -- serve", "needs the --name"),
        ("run --restart always -- serve", "on-fault or never"),
        ("run --limit x -- serve", "needs a number"),
        ("run --name zwölf -- serve", "printable"),
    ] {
        let Invocation::Print(Print { stderr, status, .. }) = parsed(line) else { panic!("{line}") };
        assert!(stderr.contains(what) && status == text::USAGE, "{line}: {stderr}");
    }
}
