//! Events against a server that plays Kubernetes' API, over TLS, and one that plays NVSentinel's, over its socket.
//!
//! The certificates beside this file are of no cluster: the key of whoever has signed them was thrown away.

mod fakes;
mod nodes;
mod told;

use super::*;
use crate::core::{Confidence, Gpu, MemoryFault, PodNames, ProcessKey, ServerEpoch, Suspect, SuspectIdentity, Verdict};
use fakes::{Api, ApiAnswer, Sentinel, wait_for};
use remps_proto::sentinel::RecommendedAction;

const UUID: &str = "GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca";
const NODE: &str = "gpu-node-7";
/// For peers of a test.
const HASTY: Patience = Patience { deadline: Duration::from_secs(60), first_pause: Duration::from_millis(1) };

fn config_of(api: &Api) -> Config {
    let (token, ca) = (api.token(), fakes::file("ca.pem"));
    let api = ApiServer { host: "127.0.0.1".to_owned(), port: api.port(), token, ca };
    Config { node: NODE.to_owned(), api: Some(api), sentinel: None }
}

fn config_of_sentinel(sentinel: &Sentinel) -> Config {
    Config { node: NODE.to_owned(), api: None, sentinel: Some(sentinel.socket()) }
}

fn suspect(pid: u32, pod: Option<&str>) -> Suspect {
    let names = pod.map(|name| {
        Box::new(PodNames {
            namespace: "research".to_owned(),
            pod_name: name.to_owned(),
            container_name: "main".to_owned(),
        })
    });
    let command = "/usr/bin/python3 train.py --token=secret".to_owned();
    let identity =
        SuspectIdentity { pod: pod.map(|name| format!("uid-of-{name}")), names, command, ..Default::default() };
    Suspect { process: ProcessKey { pid, start_time: 1 }, uid: 1000, identity }
}

/// A memory fault of a pod's process that two others have lost their contexts by.
fn announcement(number: u64) -> Announcement {
    let verdict = Verdict {
        number,
        incident: number,
        server: 500,
        epoch: ServerEpoch(1),
        domain: "uid 1000".to_owned(),
        within: None,
        culprit: Some(suspect(10, Some("culprit"))),
        confidence: Confidence::Certain,
        kind: "memory fault",
        fault: None::<MemoryFault>,
        isolated: false,
        channel: None,
        xid: Some(31),
        victims: vec![11, 12],
        gpus: vec![Gpu::new(UUID)],
        spared: Vec::new(),
        witnesses: Vec::new(),
        more_witnesses: 0,
        named_by_log: Vec::new(),
        suspicion: None,
        delay: Duration::ZERO,
        corrects: None,
    };
    let victims = vec![suspect(11, Some("victim")), suspect(12, None)];
    Announcement { verdict, victims, index: Some(3), bus: Some("0000:3b:00".to_owned()) }
}

#[test]
fn each_pod_of_a_verdict_has_an_event_over_tls_with_the_accounts_token() {
    let api = Api::begin(vec![]);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    cluster.tell(announcement(7));
    let requests = api.requests(2);
    let pods = ["culprit", "victim"];
    for (request, pod) in requests.iter().zip(pods) {
        assert_eq!(request.head[0], "POST /apis/events.k8s.io/v1/namespaces/research/events HTTP/1.1");
        assert!(request.head.contains(&"Authorization: Bearer token-of-the-account".to_owned()), "{:?}", request.head);
        let body = &request.body;
        assert_eq!(body["regarding"]["uid"], format!("uid-of-{pod}"));
        assert_eq!(body["regarding"]["fieldPath"], "spec.containers{main}");
        // Flyte takes no Event that another node reports.
        assert_eq!((&body["reportingInstance"], &body["reason"]), (&NODE.into(), &"GPUXidError".into()));
        assert_eq!((&body["type"], &body["kind"]), (&"Warning".into(), &"Event".into()));
        assert!(!body.to_string().contains("secret"), "{body}");
    }
    assert_ne!(requests[0].body["metadata"]["name"], requests[1].body["metadata"]["name"]);
    wait_for("both are counted", || cluster.told() == Some(Told { delivered: 2, failed: 0, dropped: 0 }));
}

#[test]
fn a_server_that_is_busy_is_asked_again_and_one_that_refuses_is_not() {
    let api =
        Api::begin(vec![ApiAnswer::Status(503), ApiAnswer::Close, ApiAnswer::Status(201), ApiAnswer::Status(403)]);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    cluster.tell(announcement(1));
    let requests = api.requests(4);
    assert_eq!(requests[0].body, requests[2].body, "the same again");
    wait_for("both are counted", || cluster.told() == Some(Told { delivered: 1, failed: 1, dropped: 0 }));
    let remark = cluster.remark().expect("it is said once");
    assert!(remark.contains("the API server") && remark.contains("403: because of a test"), "{remark}");
    assert_eq!(cluster.remark(), None);
}

/// The names in the requests for Events of one verdict on one pod, which the server answers so, and what became of it.
fn asked_for(answers: Vec<ApiAnswer>) -> (Vec<String>, Told) {
    let api = Api::begin(answers);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    let mut one = announcement(1);
    one.victims.clear();
    cluster.tell(one);
    wait_for("it is counted", || cluster.told().is_some_and(|told| told.delivered + told.failed == 1));
    let requests = api.requests(0);
    let name = |request: &fakes::ApiRequest| request.body["metadata"]["name"].as_str().expect("a name").to_owned();
    (requests.iter().map(name).collect(), cluster.told().expect("there is a cluster"))
}

const EXISTS: ApiAnswer = ApiAnswer::Status(409);
const DELIVERED: Told = Told { delivered: 1, failed: 0, dropped: 0 };

#[test]
fn an_event_that_exists_after_a_try_without_an_answer_is_ours_and_delivered() {
    for unanswered in [ApiAnswer::Close, ApiAnswer::Status(504)] {
        let (names, told) = asked_for(vec![unanswered, EXISTS]);
        assert_eq!((names.len(), told), (2, DELIVERED), "{unanswered:?}");
        assert_eq!(names[0], names[1]);
    }
}

#[test]
fn an_event_whose_name_another_object_has_is_made_under_another_one() {
    // Who is told to come again has made nothing.
    for first in [vec![], vec![ApiAnswer::Status(429)]] {
        let tries = first.len() + 2;
        let (names, told) = asked_for([first, vec![EXISTS, ApiAnswer::Status(201)]].concat());
        assert_eq!((names.len(), told), (tries, DELIVERED), "{names:?}");
        assert_eq!(names[tries - 1], format!("{}-1", names[tries - 2]));
    }
    let (names, told) = asked_for(vec![EXISTS; 3]);
    assert_eq!((names.len(), told), (3, Told { delivered: 0, failed: 1, dropped: 0 }), "it is given up");
    // Others have changed its quota meanwhile: its name is free.
    let quota = "{\"message\":\"Operation cannot be fulfilled on resourcequotas\",\"reason\":\"Conflict\"}";
    let judged = api::judged(format!("HTTP/1.1 409 Conflict\r\n\r\n{quota}").as_bytes());
    assert!(matches!(judged, Err(Failure::Refused(_))), "{judged:?}");
}

#[test]
fn who_is_not_of_the_cluster_gets_no_token() {
    let api = Api::begin(vec![]);
    let mut config = config_of(&api);
    config.api.as_mut().expect("there is one").ca = fakes::file("another.pem");
    let cluster = Cluster::begin_with(config, HASTY).expect("a thread");
    cluster.tell(announcement(1));
    wait_for("both have failed", || cluster.told().is_some_and(|told| told.failed == 2));
    assert_eq!(api.requests(0).len(), 0);
}

#[test]
fn a_server_that_says_nothing_costs_events_and_nobody_who_tells_waits_for_it() {
    let api = Api::begin(vec![ApiAnswer::Silence]);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    cluster.tell(announcement(1));
    api.requests(1);
    // The thread waits for the answer, and the driver tells of more than it has room for.
    (0..1000).for_each(|number| cluster.tell(announcement(number)));
    let told = cluster.told().expect("there is a cluster");
    assert_eq!((told.delivered, told.dropped), (0, 1000 - MOST_QUEUED as u64));
}

#[test]
fn a_silent_server_is_given_up_and_the_next_event_is_delivered() {
    let api = Api::begin(vec![ApiAnswer::Silence; TRIES as usize]);
    let hasty = Patience { deadline: Duration::from_millis(300), ..HASTY };
    let cluster = Cluster::begin_with(config_of(&api), hasty).expect("a thread");
    cluster.tell(announcement(1));
    wait_for("the second is delivered", || cluster.told() == Some(Told { delivered: 1, failed: 1, dropped: 0 }));
}

#[test]
fn a_pod_that_faults_again_and_again_has_a_bounded_number_of_events() {
    let api = Api::begin(vec![]);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    for number in 0..40 {
        let mut told = announcement(number);
        told.victims.clear();
        cluster.tell(told);
    }
    wait_for("25 and no more", || cluster.told() == Some(Told { delivered: 25, failed: 0, dropped: 15 }));
}

#[test]
fn nvsentinel_is_told_that_the_program_is_to_be_started_again_and_the_node_is_sound() {
    let sentinel = Sentinel::begin(vec![14, 0]);
    let cluster = Cluster::begin_with(config_of_sentinel(&sentinel), HASTY).expect("a thread");
    cluster.tell(announcement(9));
    let [first, second] = &sentinel.calls(2)[..] else { panic!("two calls") };
    assert_eq!(first, second, "the same again");
    let event = &second.events[0];
    assert_eq!((event.is_fatal, event.is_healthy), (false, false));
    assert_eq!(event.recommended_action(), RecommendedAction::RestartApp);
    assert_eq!((event.error_code.as_slice(), event.node_name.as_str()), (&["31".to_owned()][..], NODE));
    let entities: Vec<_> =
        event.entities_impacted.iter().map(|e| (e.entity_type.as_str(), e.entity_value.as_str())).collect();
    assert_eq!(entities, [("GPU", "3"), ("PCI", "0000:3b:00"), ("GPU_UUID", UUID)]);
    assert_eq!((event.metadata["pod"].as_str(), event.metadata["confidence"].as_str()), ("culprit", "certain"));
    wait_for("it is counted", || cluster.told() == Some(Told { delivered: 1, failed: 0, dropped: 0 }));
}

/// Runs what the driver would.
fn ended(cluster: Cluster, limit: Duration) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(cluster.end(limit))
}

#[test]
fn the_daemons_end_waits_until_all_is_told() {
    let api = Api::begin(vec![ApiAnswer::Status(503), ApiAnswer::Close]);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    (0..8).for_each(|number| cluster.tell(announcement(number)));
    assert_eq!(ended(cluster, HASTY.deadline), None);
    assert_eq!(api.requests(0).len(), 8 * 2 + 2, "two pods each, and two that were asked again");
}

#[test]
fn the_daemons_end_waits_no_longer_than_it_says_and_counts_what_is_lost() {
    let api = Api::begin(vec![ApiAnswer::Silence]);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    (0..3).for_each(|number| cluster.tell(announcement(number)));
    api.requests(1);
    let said = ended(cluster, Duration::from_millis(200));
    assert_eq!(said.as_deref(), Some("3 verdicts could not be told to the cluster in 0.2 s at the end"));
}

#[test]
fn what_a_server_refused_last_is_said_at_the_end() {
    let api = Api::begin(vec![ApiAnswer::Status(201), ApiAnswer::Status(403)]);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    cluster.tell(announcement(1));
    let said = ended(cluster, HASTY.deadline).expect("it is said");
    assert!(said.contains("403: because of a test"), "{said}");
}

#[test]
fn a_server_that_sends_elsewhere_or_talks_without_end_gets_no_further() {
    let elsewhere = Api::begin(vec![]);
    let mut answers = vec![ApiAnswer::Redirect(elsewhere.port())];
    answers.extend([ApiAnswer::Nonsense; TRIES as usize]);
    let api = Api::begin(answers);
    let cluster = Cluster::begin_with(config_of(&api), HASTY).expect("a thread");
    cluster.tell(announcement(1));
    wait_for("both have failed", || cluster.told() == Some(Told { delivered: 0, failed: 2, dropped: 0 }));
    let remark = cluster.remark().expect("it is said");
    assert!(remark.contains("it answers 307"), "{remark}");
    assert_eq!(elsewhere.requests(0).len(), 0, "the token goes to the server that was named, and nowhere else");
    assert_eq!(api.requests(0).len(), 1 + TRIES as usize);
}

#[test]
fn without_anybody_to_tell_there_is_no_thread_and_nothing_is_counted() {
    let config = Config { node: NODE.to_owned(), api: None, sentinel: None };
    let cluster = Cluster::begin(config).expect("nothing to do");
    cluster.tell(announcement(1));
    assert_eq!((cluster.told(), cluster.remark()), (None, None));
    assert_eq!(ended(cluster, Duration::MAX), None);
}
