use super::super::limits::{DeviceKey, MemLimit, Percentage, Priority};
use super::super::report::Report;
use super::super::{Command, Personality};
use super::*;

fn parse(line: &str) -> Report {
    let Command::Report(report) = Command::parse(line.as_bytes(), Personality::V535) else {
        panic!("{line} is none of ours");
    };
    report
}

/// The questions of the manual's section "CLI Command Structure" (docs.nvidia.com, MPS 615, mpsv3-interface), and
/// `key=value` in the place of `--key=value`, as it says.
#[test]
fn the_manuals_questions_are_understood() {
    let csv = Format { csv: true, header: false };
    for (line, query) in [
        ("server list", Query::Servers { name: None, format: Format::TABLE }),
        ("server list --format=csv,noheader", Query::Servers { name: None, format: csv }),
        ("server list format=csv,noheader uid_0", Query::Servers { name: Some("uid_0".into()), format: csv }),
        (
            "server get training pipe-directory",
            Query::Server { name: "training".into(), field: ServerField::PipeDirectory },
        ),
        ("server list --format csv,noheader", Query::Servers { name: None, format: csv }),
        ("client list --all", Query::Clients { server: None, format: Format::TABLE }),
        (
            "client list --server=training --format=csv,noheader",
            Query::Clients { server: Some("training".into()), format: csv },
        ),
        ("client get 51023 cmd", Query::Client { pid: 51023, field: ClientField::Command }),
        ("server help", Query::Help(CommandName::Server)),
        ("client get help", Query::Help(CommandName::Client)),
    ] {
        assert_eq!(parse(line), Report::Module(query), "{line}");
    }
    for format in ["table", "table,noheader", "csv"] {
        assert!(matches!(parse(&format!("client list --format={format}")), Report::Module(_)), "{format}");
    }
}

#[test]
fn a_client_is_ended_by_its_pid_alone() {
    let command = Command::parse(b"client terminate 51023\n\0", Personality::V535);
    assert_eq!(command, Command::EndClient { client: 51023 });
    assert_eq!(command.name(), Some(CommandName::Client));
    assert_eq!(parse("client terminate help"), Report::Module(Query::Help(CommandName::Client)));
    for (line, named) in [
        ("client terminate", None),
        ("client terminate 0", Some("0")),
        ("client terminate -1", Some("-1")),
        ("client terminate 7x", Some("7x")),
        ("client terminate 7 8", Some("8")),
        ("client terminate 7 --server=a", Some("--server")),
        ("server terminate 7", Some("terminate")),
    ] {
        let Report::Misused { word, .. } = parse(line) else { panic!("{line} was understood") };
        assert_eq!(word.as_deref(), named, "{line}");
    }
}

#[test]
fn a_word_that_is_not_understood_is_named_and_nothing_is_passed_over() {
    let long = format!("server list {}", "a".repeat(65));
    for (line, named) in [
        ("server", None),
        ("server get training", None),
        ("client get 7", None),
        ("server list --format", None),
        ("server start", Some("start")),
        ("server create", None),
        ("server list a b", Some("b")),
        ("server list Training", Some("Training")),
        ("server list --server=a", Some("--server")),
        ("server list --all", Some("--all")),
        ("server list --format=xml", Some("xml")),
        ("server list --format=csv,header", Some("csv,header")),
        ("server list --format=csv --format=csv", Some("--format=csv")),
        ("server list --formt=csv", Some("--formt=csv")),
        ("server list colour=red", Some("colour=red")),
        ("server get training context-ids", Some("context-ids")),
        ("client list 7", Some("7")),
        ("client list --all --server=a", Some("--all")),
        ("client list --server=", Some("")),
        ("client list --server=../a", Some("../a")),
        ("client get 0 cmd", Some("0")),
        ("client get seven cmd", Some("seven")),
        ("client get 7 namespace", Some("namespace")),
        (long.as_str(), Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…")),
    ] {
        let Report::Misused { word, .. } = parse(line) else { panic!("{line} was understood") };
        assert_eq!(word.as_deref(), named, "{line}");
    }
}

fn change(line: &str) -> Change {
    let Command::Change(change) = Command::parse(line.as_bytes(), Personality::V535) else {
        panic!("{line} changes nothing");
    };
    change
}

/// The forms of `mpsv3-interface`'s table of modules; the examples are made up.
#[test]
fn what_changes_servers_and_namespaces_is_understood() {
    let (training, jobs) = ("training".to_owned(), "jobs_1".to_owned());
    let create = |name: &str, uid, devices| Change::CreateServer { name: name.to_owned(), uid, devices };
    let uuid = DeviceKey::Uuid("GPU-74d43ed3".to_owned());
    let limits = Limits {
        memory: Some(MemLimit(3 << 30)),
        percentage: Some(Percentage::new(33.5).unwrap()),
        priority: Some(Priority::BelowNormal),
    };
    let share = Limits { percentage: Some(Percentage::new(30.0).unwrap()), ..Limits::default() };
    for (line, wanted) in [
        ("server create training", create("training", None, vec![])),
        ("server create training --uid=1000", create("training", Some(1000), vec![])),
        ("server create --uid=1000", create("uid_1000", Some(1000), vec![])),
        (
            "server create training --allowed-devices=0,GPU-74d43ed3 --locality-domains=false",
            create("training", None, vec![DeviceKey::Ordinal(0), uuid]),
        ),
        ("server delete training", Change::DeleteServer { name: training.clone(), force: false }),
        ("server delete training --force", Change::DeleteServer { name: training.clone(), force: true }),
        (
            "server set training pinned-memory-limit=3G active-thread-percentage=33.5 --client-priority=1",
            Change::SetServer { name: training.clone(), uid: None, limits },
        ),
        (
            "server set training --uid=0",
            Change::SetServer { name: training.clone(), uid: Some(0), limits: Limits::default() },
        ),
        (
            "namespace create jobs_1 --server=training",
            Change::CreateNamespace { server: training.clone(), name: jobs.clone() },
        ),
        (
            "namespace delete jobs_1 --server training --force",
            Change::DeleteNamespace { server: training.clone(), name: jobs.clone(), force: true },
        ),
        (
            "namespace set jobs_1 --server=training --active-thread-percentage=30",
            Change::SetNamespace { server: training, name: jobs, limits: share },
        ),
    ] {
        assert_eq!(change(line), wanted, "{line}");
        let module = if line.starts_with("server") { CommandName::Server } else { CommandName::Namespace };
        assert_eq!(Command::parse(line.as_bytes(), Personality::V595).name(), Some(module), "{line}");
    }
}

#[test]
fn a_change_that_is_not_understood_is_no_change() {
    let many = (0..33).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let many = format!("server create a --allowed-devices={many}");
    for (line, named) in [
        ("server create A", Some("A")),
        ("server create a/b", Some("a/b")),
        ("server create ..", Some("..")),
        ("server create a b", Some("b")),
        ("server create a --uid=-1", Some("-1")),
        ("server create a --uid=4294967295", Some("4294967295")),
        ("server create a --uid=", Some("")),
        ("server create a --allowed-devices=", Some("")),
        ("server create a --allowed-devices=0,0", Some("0,0")),
        ("server create a --allowed-devices=0,x", Some("0,x")),
        ("server create a --locality-domains=yes", Some("yes")),
        ("server create a --pinned-memory-limit=1G", Some("--pinned-memory-limit")),
        ("server create a --force", Some("--force")),
        ("server delete", None),
        ("server delete a --all", Some("--all")),
        ("server set a", None),
        ("server set a --pinned-memory-limit=10", Some("10")),
        ("server set a --pinned-memory-limit=1.5G", Some("1.5G")),
        ("server set a --pinned-memory-limit=G", Some("G")),
        ("server set a --pinned-memory-limit=99999999999G", Some("99999999999G")),
        ("server set a --active-thread-percentage=0", Some("0")),
        ("server set a --active-thread-percentage=0.5", Some("0.5")),
        ("server set a --active-thread-percentage=101", Some("101")),
        ("server set a --active-thread-percentage=1e1", Some("1e1")),
        ("server set a --client-priority=2", Some("2")),
        ("namespace create a", None),
        ("namespace create --server=b", None),
        ("namespace set a --server=b", None),
        ("namespace set a --server=b --uid=1", Some("--uid")),
        ("namespace start a --server=b", Some("start")),
        ("device list 0", Some("0")),
        ("feature enable memact", Some("memact")),
        ("context-share list", Some("list")),
        ("sm-partition create large --server=a --device=0", None),
        ("sm-partition create large --server=a --device=0 --chunks=0", Some("0")),
        (many.as_str(), Some("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16…")),
    ] {
        let Report::Misused { word, .. } = parse(line) else { panic!("{line} was understood") };
        let word = word
            .map(|word| if word.len() > 40 { "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16…".to_owned() } else { word });
        assert_eq!(word.as_deref(), named, "{line}");
    }
}

#[test]
fn what_takes_a_later_driver_says_which() {
    for (line, what, since) in [
        ("feature enable memacct", "feature memacct", 615),
        ("feature disable context-share", "feature context-share", 615),
        ("memacct set audit_log=true", "memacct set", 615),
        ("memacct describe", "memacct describe", 615),
        ("sm-partition create large --server=a --device=0 --chunks=4", "sm-partition create", 595),
        ("sm-partition delete large --server=a --device=GPU-74d43ed3", "sm-partition delete", 595),
        ("server create a --locality-domains=true", "--locality-domains=true", 595),
    ] {
        let Report::Module(Query::Needs(need)) = parse(line) else { panic!("{line} needs nothing") };
        assert_eq!((need.what, need.since), (what, since), "{line}");
    }
    let need = LOCALITY_DOMAINS;
    assert_eq!(need.refusal(Some(580)), "--locality-domains=true needs driver >= 595, this one is 580");
    assert!(need.refusal(Some(595)).ends_with("how a driver >= 595 does this is not known to this daemon"));
}

#[test]
fn a_namespace_has_what_its_server_has_and_never_more() {
    let limits = |memory: Option<u64>, percentage: Option<f64>, priority| Limits {
        memory: memory.map(MemLimit),
        percentage: percentage.map(|value| Percentage::new(value).unwrap()),
        priority,
    };
    let server = limits(Some(8), Some(50.0), Some(Priority::BelowNormal));
    assert_eq!(Limits::default().within(server), server);
    assert_eq!(server.within(Limits::default()), server);
    assert_eq!(limits(Some(9), Some(60.0), Some(Priority::Normal)).within(server), server);
    let less = limits(Some(7), Some(40.0), Some(Priority::BelowNormal));
    assert_eq!(less.within(server), less);
    // A limit that is taken away is not one of none.
    assert_eq!(limits(Some(0), None, None).within(server), server);
    assert_eq!(limits(Some(0), None, None).within(Limits::default()), Limits::default());
}

#[test]
fn memory_is_shown_as_it_can_be_typed() {
    for (text, shown) in [("4G", "4G"), ("1044M", "1044M"), ("10K", "10K"), ("2048K", "2M"), ("0", "0"), ("1g", "1G")] {
        let limit = change::memory(text.as_bytes()).unwrap();
        assert_eq!(change::shown_memory(limit), shown, "{text}");
        assert_eq!(change::memory(shown.as_bytes()), Some(limit));
    }
}
