//! What is said of a fault that is known well, of one that nobody can know, and that the picture is whole.

use super::gather::Facts;
use super::timeline::Lane;
use super::{Explanation, page, svg};
use remps_proto::admin::{Form, Output};
use serde_json::{Value, json};

const UTC: Output = Output { form: Form::Table, utc: true };

fn verdict() -> Value {
    json!({
        "number": 3, "incident": 3, "server": 1490, "domain": "user 1000", "time": "2026-11-20T18:15:41.181627Z",
        "culprit": {"pid": 1529, "start_time": 81723, "uid": 1000, "cgroup": "/a", "container": null, "pod": null,
                    "command": "python train.py\u{1b}[2J"},
        "confidence": "certain", "kind": "memory fault",
        "fault": {"address": 16, "access": "write", "kind": "invalid PTE", "gpu": "GPU-3d6da830"},
        "isolated": false, "channel": null, "xid": 31, "victims": [1533, 1536, 1540], "gpus": ["GPU-3d6da830"],
        "spared": [], "witnesses": [
            {"witness": "uvm-event", "names": 1529, "after_ms": 0.0, "text": "write of 0x10"},
            {"witness": "server-log", "names": 1533, "after_ms": 80.5, "text": "forged\nline"}],
        "more_witnesses": 0, "named_by_log": [], "delay_ms": 0.4, "corrects": null,
    })
}

fn events() -> Vec<Value> {
    let at = |ms: u64, event: Value| {
        let mut event = event;
        let base = humantime::parse_rfc3339("2026-11-20T18:15:41.181227Z").unwrap();
        let time = base + std::time::Duration::from_millis(ms);
        event["time"] = humantime::format_rfc3339_micros(time).to_string().into();
        event
    };
    let process = |pid: u64| json!({"pid": pid, "start_time": 1});
    vec![
        at(0, json!({"event": "fault-sign", "incident": 3, "server": 1490, "witness": "uvm-event", "names": 1529})),
        at(0, json!({"event": "server-tainted", "incident": 3, "server": 1490})),
        at(1, json!({"event": "verdict", "verdict": verdict()})),
        at(40, json!({"event": "client-ended", "process": process(1529), "incident": 3, "end": {"exited": 1}})),
        at(
            9,
            json!({"event": "client-recovered", "process": process(1540), "server": 1550, "number": 1, "way": "spare",
                     "error": 700, "total_ms": 0.61, "steps_ms": {"wait": 0.2, "map": 0.03, "objects": 0.38},
                     "switch_ms": {"alive": 0.01, "memory": 0.02, "objects": 0.05, "lead": 0.33}}),
        ),
        at(210, json!({"event": "server-swapped", "incident": 3, "from": 1490, "to": 1551, "after_ms": 210.0})),
        at(540, json!({"event": "client-admitted", "process": process(1533), "server": 1551})),
        at(700, json!({"event": "client-admitted", "process": process(1600), "server": 1551})),
        at(30_000, json!({"event": "server-exited", "server": 1490, "end": {"signaled": 9}, "reason": "fault"})),
    ]
}

fn clients() -> Vec<Value> {
    let client = |pid: u64, phase: &str, server: Value, end: Value| {
        let identity = json!({"command": format!("job {pid}")});
        json!({"process": {"pid": pid, "start_time": 1}, "uid": 1000, "phase": phase, "server": server,
               "identity": identity, "end": end})
    };
    vec![
        client(1533, "live", 1551.into(), Value::Null),
        client(1536, "lost", 1490.into(), Value::Null),
        // Another process with the culprit's number.
        client(1529, "live", 1551.into(), Value::Null),
    ]
}

fn known_well() -> Explanation {
    Explanation::of(&Facts::of(&[verdict()], 3, Some(events()), clients()).expect("it is there"))
}

#[test]
fn a_page_says_who_it_was_what_became_of_whom_and_what_to_do() {
    let explanation = known_well();
    let page = page::text(&explanation, UTC);
    assert!(page.starts_with("Fault 3, 2026-11-20 18:15:41.181627Z\n\nWhat happened\n"), "{page}");
    let plain = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Client 1529 of user 1000 made a memory fault (write of 0x10, invalid PTE) on GPU-3d6da830 at server 1490 of \
         domain \"user 1000\"; 3 other clients were lost with it.",
        "certain: a witness that can't be wrong",
        "+1.0 ms verdict 3: client 1529, certain",
        "+9.0 ms 1540 says it has recovered with its spare copy in 0.61 ms: lead 0.33, objects 0.05, memory 0.02",
        "+210.0 ms server 1551 takes the place of 1490",
        "+540.0 ms 1533 is served again by server 1551",
        "+700.0 ms newcomer 1600 is served by server 1551",
        "+30.00 s server 1490 was killed by signal 9",
        "uvm-event (proof) names 1529",
        "server-log (anybody can write it) names 1533, +80.5 ms: forged\\u{a}line",
        "culprit 1529 1000 ended with status 1 python train.py\\u{1b}[2J",
        "victim 1533 1000 goes on, now at server 1551 job 1533",
        "victim 1536 1000 holds on to lost server 1490 job 1536",
        "victim 1540 - unknown -",
        "compute-sanitizer --tool memcheck",
        "1 of its clients still hold on to the lost server; stop-client ends them",
    ] {
        assert!(plain.contains(part), "{part}\nin\n{page}");
    }
    let json = serde_json::to_value(&explanation).expect("it can be written");
    let steps = json!({"wait": 0.2, "map": 0.03, "objects": 0.38});
    let switch = json!({"alive": 0.01, "memory": 0.02, "objects": 0.05, "lead": 0.33});
    let recovery = json!({"pid": 1540, "way": "spare", "total_ms": 0.61, "steps_ms": steps, "switch_ms": switch});
    assert_eq!(json["recoveries"], json!([recovery]));
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(page.lines().count() <= 66, "it is one page: {page}");
}

#[test]
fn a_server_that_was_ended_early_is_said_to_have_been_and_why() {
    for (reason, words) in
        [("all-have-spares", "all its clients have spare copies"), ("always", "the configuration wants that")]
    {
        let time = "2026-11-20T18:15:41.200000Z";
        let ended =
            json!({"event": "server-ended-early", "incident": 3, "server": 1490, "reason": reason, "time": time});
        let events = [events(), vec![ended]].concat();
        let facts = Facts::of(&[verdict()], 3, Some(events), clients()).expect("it is there");
        let timeline = Explanation::of(&facts).timeline;
        let wanted = format!("server 1490 is ended at once: {words}");
        assert!(timeline.iter().any(|moment| moment.what == wanted), "{timeline:?}");
    }
}

#[test]
fn why_a_victim_was_not_recovered_is_said_in_its_words() {
    for (is_final, words) in [(true, "for good"), (false, "for now")] {
        let time = "2026-11-20T18:15:41.200000Z";
        let refused = json!({"event": "client-unrecovered", "process": {"pid": 1540, "start_time": 1}, "server": 1490,
            "number": 1, "error": 719, "reason": "cuMemMap answers 2", "final": is_final, "time": time});
        let events = [events(), vec![refused]].concat();
        let facts = Facts::of(&[verdict()], 3, Some(events), clients()).expect("it is there");
        let timeline = Explanation::of(&facts).timeline;
        let wanted = format!("1540 says it is not recovered {words}: cuMemMap answers 2");
        assert!(timeline.iter().any(|moment| moment.what == wanted), "{timeline:?}");
    }
}

#[test]
fn how_long_a_burial_was_held_back_is_said_and_for_whom() {
    let time = "2026-11-20T18:15:41.200000Z";
    let held = json!({"event": "burial-held", "incident": 3, "server": 1490, "clients": 3, "back": 2, "held_ms": 210.4,
        "reason": "over", "time": time});
    let events = [events(), vec![held]].concat();
    let facts = Facts::of(&[verdict()], 3, Some(events), clients()).expect("it is there");
    let timeline = Explanation::of(&facts).timeline;
    let wanted = "server 1490 is buried, held back for 210 ms: 2 of 3 have contexts again";
    assert!(timeline.iter().any(|moment| moment.what == wanted), "{timeline:?}");
}

#[test]
fn what_the_daemon_does_not_know_is_said_to_be_unknown() {
    let verdict = json!({
        "number": 1, "incident": 1, "server": 7, "domain": "user 0", "time": "2026-11-20T18:15:41.181627Z",
        "culprit": null, "confidence": "unknown", "kind": "fault", "fault": null, "isolated": false, "victims": [],
        "gpus": [], "witnesses": [], "named_by_log": [43], "delay_ms": 100.0, "corrects": null,
    });
    let facts = Facts::of(&[verdict], 1, None, Vec::new()).expect("it is there");
    let explanation = Explanation::of(&facts);
    let told = explanation.timeline.iter().map(|moment| (moment.after_ms.round(), moment.what.as_str()));
    assert_eq!(told.collect::<Vec<_>>(), [(0.0, "first sign of the fault"), (100.0, "verdict 1: nobody can be named")]);
    assert_eq!(explanation.unknown.len(), 3, "{:?}", explanation.unknown);
    let page = page::text(&explanation, UTC);
    let plain = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "nobody can be named as its cause",
        "which anybody can write, names 43",
        "who caused it",
        "on which GPU it was",
    ] {
        assert!(plain.contains(part), "{part}\nin\n{page}");
    }
    assert!(!page.contains("whose program it was"), "{page}");
}

#[test]
fn a_fault_is_found_by_its_number_and_a_correction_is_told() {
    let mut corrected = verdict();
    corrected["number"] = 4.into();
    corrected["corrects"] = 3.into();
    let facts = Facts::of(&[verdict(), verdict(), corrected], 3, None, Vec::new()).expect("it is there");
    assert_eq!((facts.corrected_by, facts.earlier), (Some(4), 0), "one incident is one fault");
    let page = page::text(&Explanation::of(&facts), UTC);
    assert!(page.contains("Read explain 4 instead"), "{page}");
    assert_eq!(Facts::of(&[verdict()], 5, None, Vec::new()), None);
    let another = |incident: u64| {
        let mut verdict = verdict();
        verdict["incident"] = incident.into();
        verdict
    };
    let repeated = Facts::of(&[another(1), another(2), verdict()], 3, None, Vec::new()).expect("it is there");
    assert_eq!(repeated.earlier, 2);
    assert!(page::text(&Explanation::of(&repeated), UTC).contains("quarantine_after"));
}

#[test]
fn the_picture_is_xml_with_every_moment_in_it() {
    let mut explanation = known_well();
    explanation.timeline[0].what = "a <b> & \"c\" \u{1b}\u{ffff}".to_owned();
    let svg = svg::draw(&explanation);
    let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    let root = document.root_element();
    assert_eq!((root.tag_name().name(), root.tag_name().namespace()), ("svg", Some("http://www.w3.org/2000/svg")));
    let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    for moment in &explanation.timeline[1..] {
        assert!(texts.iter().any(|text| text.ends_with(&moment.what)), "{}: {texts:?}", moment.what);
    }
    assert!(texts.iter().any(|text| text.ends_with("a <b> & \"c\" ")), "{texts:?}");
    let dots: Vec<f64> = document
        .descendants()
        .filter(|node| node.has_tag_name("circle"))
        .map(|node| node.attribute("cx").expect("it has a place").parse().expect("a number"))
        .collect();
    assert_eq!(dots.len(), explanation.timeline.len());
    assert!(dots.iter().all(|x| (0.0..=800.0).contains(x)), "{dots:?}");
    let x_of = |lane: Lane| {
        let mut of_lane = explanation.timeline.iter().filter(|moment| moment.lane == lane);
        of_lane.next().expect("there is one").after_ms
    };
    assert!(x_of(Lane::Newcomers) > x_of(Lane::Culprit), "the picture has them in the order of time");
}

/// Where the document has the page.
const BEGIN: &str = "<!-- explain -->\n";
const END: &str = "<!-- end of explain -->";

#[test]
fn the_screen_in_the_documents_is_the_page_as_it_is() {
    let mut fault = verdict();
    fault["culprit"]["command"] = "python train.py".into();
    fault["witnesses"][1]["text"] = "Client 1533 worker is in reset".into();
    let facts = Facts::of(&[fault], 3, Some(events()), clients()).expect("it is there");
    let page = page::text(&Explanation::of(&facts), UTC);
    let lines = std::iter::once("$ nvidia-cuda-mps-control explain 3 --utc").chain(page.lines());
    let screen: String = lines.map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operators.md");
    let text = std::fs::read_to_string(path).expect("the document is there");
    let (before, rest) = text.split_once(BEGIN).expect("it has a place for the page");
    let (shown, after) = rest.split_once(END).expect("the place has an end");
    let wanted = format!("\n{screen}\n");
    if shown != wanted && std::env::var_os("REMPS_WRITE").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{wanted}{END}{after}")).expect("it can be written");
        return;
    }
    assert_eq!(shown, wanted, "REMPS_WRITE=1 writes it");
}
