//! What a cluster is told of a fault, end to end: a daemon, programs in the cgroups of pods, a server that plays
//! Kubernetes' API over TLS and a socket that plays NVSentinel's.

#[path = "../../../controld/src/observe/cluster/tests/fakes.rs"]
#[expect(clippy::unwrap_used, reason = "a test's peer, where a panic is the report")]
mod fakes;

use fakes::{Api, ApiAnswer, Sentinel};
use integration::lab::place::{Container, within};
use integration::lab::process::{Process, ended_within};
use integration::lab::{LIMIT, watch};
use integration::sim::{Sim, error_of};
use integration::under_test::{Skipped, Subject, theirs};
use nix::sys::signal::{Signal, kill};
use remps_proto::admin::Personality;
use remps_proto::sentinel::RecommendedAction;
use std::fs;

const NODE: &str = "gpu-node-7";
/// Pods' UIDs.
const CULPRIT: &str = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340";
const VICTIM: &str = "7d0c27a1-5b1c-4a45-a6a5-0d3a3d5a1f02";

/// The pods of one test, which go when it ends.
struct Pods {
    culprit: Container,
    victim: Container,
}

impl Pods {
    /// The kubelet's links say what both are called.
    fn make(sim: &Sim) -> Result<Self, Skipped> {
        let pods = Self { culprit: Container::make(CULPRIT, 0xc)?, victim: Container::make(VICTIM, 0xf)? };
        let links = sim.lab.dir().join("containers");
        fs::create_dir(&links).expect("the bench's folder is ours");
        for (name, id) in [("culprit-0", 0xc), ("victim-0", 0xf)] {
            fs::write(links.join(format!("{name}_research_main-{id:064x}.log")), "")
                .expect("the bench's folder is ours");
        }
        Ok(pods)
    }
}

/// A daemon that is to tell these peers.
fn configure(sim: &Sim, api: &Api, sentinel: &Sentinel) {
    let text = format!(
        "[cluster]\nnode = \"{NODE}\"\nevents = true\napi_server = \"https://127.0.0.1:{}\"\ntoken = \"{}\"\n\
         ca = \"{}\"\nnvsentinel = \"unix:{}\"\ncontainers = \"{}\"\n",
        api.port(),
        api.token().display(),
        fakes::file("ca.pem").display(),
        sentinel.socket().display(),
        sim.lab.dir().join("containers").display(),
    );
    sim.config(&(sim.machine() + &text));
}

/// A program in a pod: who it is, is read when it comes.
fn started(sim: &Sim, pod: &Container, name: &str, arguments: &[&str], event: &str) -> Process {
    let words = pod.entered();
    let words = words.each_ref().map(String::as_str);
    let process = Process::start_with_input(&mut within(&words, &sim.command(name, arguments)));
    sim.wait_event(&process, event);
    process
}

/// A victim and a culprit in their pods, up to the verdict; the victim goes on holding its server.
fn fault(sim: &Sim, pods: &Pods) -> Process {
    let victim = started(sim, &pods.victim, "mps-first-alloc", &["--until-stdin-closes"], "allocated");
    let culprit = started(sim, &pods.culprit, "mps-aggressor", &["oob"], "launched");
    assert!(error_of(&sim.finish(culprit)).is_some());
    let is_known = || sim.lab.ask("get_fault_list -o json\n").lines().count() == 1;
    watch::wait_for(sim.lab.dir(), sim.lab.log_dir(), LIMIT, "a verdict", is_known);
    victim
}

/// Runs a test with a daemon that is to tell these peers, where pods can be made.
fn with_peers(answers: Vec<ApiAnswer>, statuses: Vec<u32>, test: impl Fn(&Sim, &Pods, &Api, &Sentinel)) {
    if theirs() {
        return Skipped("a promise of ours".to_owned()).report();
    }
    let sim = Sim::watched(&Subject::ours(Personality::V580), &[]);
    let (api, sentinel) = (Api::begin(answers), Sentinel::begin(statuses));
    configure(&sim, &api, &sentinel);
    match Pods::make(&sim) {
        Ok(pods) => {
            sim.lab.start(&[]);
            test(&sim, &pods, &api, &sentinel);
        }
        Err(skipped) => skipped.report(),
    }
}

#[test]
fn a_fault_is_told_to_the_pods_of_culprit_and_victims_and_to_nvsentinel() {
    with_peers(vec![], vec![], |sim, pods, api, sentinel| {
        let victim = fault(sim, pods);
        let (calls, requests) = (sentinel.calls(1), api.requests(2));
        let event = &calls[0].events[0];
        assert_eq!((event.is_fatal, event.is_healthy), (false, false), "the node is sound");
        assert_eq!((event.recommended_action(), event.node_name.as_str()), (RecommendedAction::RestartApp, NODE));
        assert_eq!((event.metadata["pod"].as_str(), event.metadata["namespace"].as_str()), ("culprit-0", "research"));
        for (request, (uid, name)) in requests.iter().zip([(CULPRIT, "culprit-0"), (VICTIM, "victim-0")]) {
            assert_eq!(request.head[0], "POST /apis/events.k8s.io/v1/namespaces/research/events HTTP/1.1");
            let regarding = &request.body["regarding"];
            assert_eq!((&regarding["uid"], &regarding["name"]), (&uid.into(), &name.into()), "{regarding}");
            assert_eq!((&request.body["reportingInstance"], &request.body["type"]), (&NODE.into(), &"Warning".into()));
        }
        let severity = |at: usize| {
            let note = requests[at].body["note"].as_str().expect("a text").to_owned();
            note.split_whitespace().find_map(|word| word.strip_prefix("severity=").map(str::to_owned)).expect("one")
        };
        assert_eq!((severity(0).as_str(), severity(1).as_str()), ("user", "warn"));
        let metrics = || sim.lab.ask("metrics\n");
        let delivered = |text: &str| {
            text.lines().any(|line| {
                line.starts_with("mps_cluster_events_total{") && line.contains("delivered") && line.ends_with(" 3")
            })
        };
        watch::wait_for(sim.lab.dir(), sim.lab.log_dir(), LIMIT, "they are counted", || delivered(&metrics()));
        assert_eq!((api.requests(0).len(), sentinel.calls(0).len()), (2, 1), "once each");
        let _ = sim.finish(victim);
    });
}

#[test]
fn a_verdict_of_the_last_moment_is_told_before_the_daemon_has_ended() {
    // Asked again after a second, so the daemon's end comes before the first answer that counts.
    let busy = || vec![ApiAnswer::Status(503), ApiAnswer::Close];
    for by_signal in [true, false] {
        with_peers(busy(), vec![], |sim, pods, api, _| {
            let daemon = sim.lab.running_daemon();
            let victim = fault(sim, pods);
            api.requests(1);
            if by_signal {
                kill(daemon, Signal::SIGTERM).expect("it is ours");
            } else {
                let _ = sim.lab.ask("quit -t 0\n");
            }
            assert!(ended_within(daemon, LIMIT), "it ends");
            let requests = api.requests(0);
            let of = |pod: &str| requests.iter().filter(|request| request.body["regarding"]["uid"] == pod).count();
            assert_eq!((of(CULPRIT), of(VICTIM)), (3, 1), "with SIGTERM: {by_signal}");
            let log = sim.lab.log("control.log");
            assert!(!log.contains("could not be told"), "{log}");
            let _ = sim.finish(victim);
        });
    }
}

#[test]
fn peers_that_are_silent_cost_the_daemon_nothing_but_what_it_says() {
    with_peers(vec![ApiAnswer::Silence; 64], vec![], |sim, pods, api, _| {
        let daemon = sim.lab.running_daemon();
        let victim = fault(sim, pods);
        api.requests(1);
        // While the thread waits for an answer, newcomers are served and questions answered.
        let newcomer = sim.run("mps-first-alloc", &[]);
        assert_eq!(newcomer.code, Some(0), "{newcomer:?}");
        assert!(sim.lab.ask("status\n").contains("ready"));
        kill(daemon, Signal::SIGTERM).expect("it is ours");
        // Another daemon need not wait until this one has given the peer up.
        sim.lab.wait_log("control.log", "could not be told to the cluster in 10 s at the end");
        assert!(ended_within(daemon, LIMIT), "it ends");
        let _ = sim.finish(victim);
    });
}

#[test]
fn peers_that_are_not_there_or_lie_cost_the_daemon_nothing() {
    let elsewhere = Api::begin(vec![]);
    let lies = vec![ApiAnswer::Redirect(elsewhere.port()), ApiAnswer::Nonsense, ApiAnswer::Status(403)];
    with_peers(lies, vec![16], |sim, pods, api, _| {
        let victim = fault(sim, pods);
        api.requests(3);
        sim.lab.wait_log("control.log", "can't be told of a verdict");
        assert_eq!(elsewhere.requests(0).len(), 0, "the token goes nowhere else");
        let newcomer = sim.run("mps-first-alloc", &[]);
        assert_eq!(newcomer.code, Some(0), "{newcomer:?}");
        let _ = sim.finish(victim);
    });
}
