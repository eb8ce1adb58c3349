//! The Kubernetes Events of a verdict, in the form that Flyte reads.
//!
//! Flyte believes an Event whose reason is `GPUXidError`, which regards the pod by its UID and was reported from the pod's
//! node, and reads the words at the end of its note: `xid=31 severity=user gpu_uuid=… gpu_index=… pci=… node=… pid=…
//! process=…` (`event.go`, `podevent.go` of the package `gpufault`, <https://github.com/flyteorg/flyte/pull/7879>). The
//! words before it are for people and begin with `[gpu-health] [USER]`, as Modal's lines do
//! (<https://modal.com/docs/guide/gpu-health>). A victim's severity is `warn`: the fault is told with its failure, which is
//! neither charged to it nor taken for the end of the GPU.
//!
//! A fault that has no Xid, whatever its kind, has the reason `MPSFault`, and no number is made up.

use super::MOST_VICTIMS;
use crate::core::{Announcement, Confidence, Suspect, catalogue};
use serde_json::{Value, json};
use std::time::SystemTime;

/// Who reports, as Events name controllers.
const CONTROLLER: &str = "remps.dev/nvidia-cuda-mps-control";
/// Bytes that a note may have, by the API.
const LONGEST_NOTE: usize = 1024;
/// Bytes of a pod's name that a name of an Event repeats: both may have 253.
const LONGEST_NAME: usize = 230;
/// Bytes of a process's name; the kernel's has no more.
const LONGEST_PROCESS: usize = 15;

/// One Event to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// The pod's UID.
    pub(super) pod: String,
    pub(super) namespace: String,
    /// Its first name.
    name: String,
    pub(super) body: Value,
}

impl Event {
    /// Gives it another name, which has a number behind it.
    pub(super) fn rename(&mut self, number: u32) {
        self.body["metadata"]["name"] = format!("{}-{number}", self.name).into();
    }
}

/// The Events of a verdict: one for each pod whose name is known, the culprit's first. Who has several processes in one
/// pod has one.
pub(super) fn of(announcement: &Announcement, node: &str, at: SystemTime) -> Vec<Event> {
    let culprit = announcement.verdict.culprit.iter().map(|suspect| (suspect, true));
    // A fault that was kept from everybody else has no victims.
    let victims = announcement.victims.iter().map(|suspect| (suspect, false)).take(MOST_VICTIMS);
    let mut events = Vec::<Event>::new();
    for (suspect, is_culprit) in culprit.chain(victims) {
        let event = event(announcement, suspect, is_culprit, node, at);
        events.extend(event.filter(|event| events.iter().all(|other| other.pod != event.pod)));
    }
    events
}

fn event(
    announcement: &Announcement,
    suspect: &Suspect,
    is_culprit: bool,
    node: &str,
    at: SystemTime,
) -> Option<Event> {
    let (pod, names) = (suspect.identity.pod.clone()?, suspect.identity.names.as_ref()?);
    let time = humantime::format_rfc3339_micros(at).to_string();
    let mut name = names.pod_name.clone();
    name.truncate(LONGEST_NAME);
    // As client-go names them; the verdict's number keeps two of one moment apart.
    let nanos = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let name = format!("{}.{:x}", name.trim_end_matches(['-', '.']), nanos + u128::from(announcement.verdict.number));
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": names.namespace},
        "eventTime": time,
        "reportingController": CONTROLLER,
        "reportingInstance": node,
        "action": if is_culprit { "Faulted" } else { "LostContexts" },
        "reason": if announcement.xid().is_some() { "GPUXidError" } else { "MPSFault" },
        "type": "Warning",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": names.namespace,
            "name": names.pod_name,
            "uid": pod,
            "fieldPath": format!("spec.containers{{{}}}", names.container_name),
        },
        "note": note(announcement, suspect, is_culprit, node),
    });
    Some(Event { pod, namespace: names.namespace.clone(), name, body })
}

/// The note of one pod's Event.
pub(super) fn note(announcement: &Announcement, suspect: &Suspect, is_culprit: bool, node: &str) -> String {
    let severity = announcement.severity(is_culprit);
    let (uuid, index, bus) = (announcement.uuid(), announcement.index, announcement.bus.as_deref());
    let on = match (index, uuid, bus) {
        (Some(index), Some(uuid), _) => format!(" on GPU {index} {uuid}"),
        (None, Some(uuid), _) => format!(" on GPU {uuid}"),
        (_, None, Some(bus)) => format!(" on GPU at PCI {bus}.0"),
        (_, None, None) => String::new(),
    };
    let what = announcement
        .xid()
        .map_or_else(|| "Fault under MPS".to_owned(), |number| format!("Xid {number} ({})", catalogue::name(number)));
    let mut words = vec![announcement.xid().map(|number| format!("xid={number}")).unwrap_or_default()];
    words.push(format!("severity={}", severity.word()));
    words.extend(uuid.map(|uuid| format!("gpu_uuid={uuid}")));
    words.extend(index.map(|index| format!("gpu_index={index}")));
    words.extend(bus.map(|bus| format!("pci={bus}.0")));
    words.push(format!("node={node}"));
    words.extend(suspect.machines_pid().map(|pid| format!("pid={pid}")));
    let process = process(&suspect.identity.command);
    words.extend((!process.is_empty()).then(|| format!("process={process}")));
    let tail: String = words.iter().filter(|word| !word.is_empty()).map(|word| format!(" {word}")).collect();
    let mut head = format!("[gpu-health] [{}] {what}{on}.", severity.word().to_ascii_uppercase());
    // Whatever stands there, the tail is whole.
    let room = LONGEST_NOTE.saturating_sub(tail.len());
    head.push_str(&format!(" {}", whose(announcement, is_culprit)));
    head.truncate(head.floor_char_boundary(room));
    head + &tail
}

/// Whose doing it was, for whoever reads it at this pod. It names nobody else: another pod's owner is none of his business.
fn whose(announcement: &Announcement, is_culprit: bool) -> String {
    let verdict = &announcement.verdict;
    let text = match (is_culprit, verdict.confidence) {
        (true, Confidence::Certain) => "This pod's process caused it, by proof".to_owned(),
        (true, _) => "This pod's process is likely to have caused it".to_owned(),
        (false, _) if verdict.culprit.is_some() => {
            "Another client of the same MPS server caused it; this pod's process has lost its contexts".to_owned()
        }
        (false, _) => "A client of its MPS server caused it, nobody knows which; its contexts are lost".to_owned(),
    };
    format!("{text} (fault {}).", verdict.number)
}

/// The program's name as one word of letters that a note can have; its arguments may hold secrets.
fn process(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let is_letter = |c: char| c.is_ascii_graphic() && c != '=';
    name.chars().map(|c| if is_letter(c) { c } else { '_' }).take(LONGEST_PROCESS).collect()
}
