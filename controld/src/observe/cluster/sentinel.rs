//! Tells NVSentinel of a verdict over its socket on the node.
//!
//! Its own monitor of the kernel's log sees the same Xid and knows neither MPS nor whose it was; an application's Xid has
//! made it take a whole node from its scheduler (NVSentinel issue 911). So it is told who, and what helps: `RESTART_APP`
//! and not fatal for what programs do, and for the rest what NVIDIA's catalogue says, by the same words. Entities are named
//! as its own monitors name them, `GPU`, `GPU_UUID` and `PCI`.
//!
//! The call is gRPC's: one HTTP/2 request with a message that has five bytes before it, and a status in the trailers.

use super::Failure;
use crate::core::{Announcement, Confidence, Remedy, Severity, Suspect, catalogue};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::Request;
use prost::Message as _;
use remps_proto::sentinel::{CALL, Entity, HealthEvent, HealthEvents, RecommendedAction, Timestamp};
use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;
use tokio::net::UnixStream;

/// Of the interface and of an event.
const VERSION: u32 = 1;
const AGENT: &str = "nvidia-cuda-mps-control";
/// What this monitor looks at; NVSentinel makes a condition's or an Event's name of it.
const CHECK: &str = "MpsClientFault";
/// In front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The event of a verdict.
pub(super) fn event(announcement: &Announcement, node: &str, at: SystemTime) -> HealthEvents {
    let (verdict, uuid) = (&announcement.verdict, announcement.uuid());
    let remedy = announcement.remedy();
    let entity = |kind: &str, value: String| Entity { entity_type: kind.to_owned(), entity_value: value };
    let mut entities = Vec::new();
    entities.extend(announcement.index.map(|index| entity("GPU", index.to_string())));
    entities.extend(announcement.bus.as_ref().map(|bus| entity("PCI", bus.clone())));
    entities.extend(uuid.map(|uuid| entity("GPU_UUID", uuid.to_owned())));
    let mut metadata = HashMap::new();
    let mut note = |key: &str, value: String| drop(metadata.insert(key.to_owned(), value));
    note("verdict", verdict.number.to_string());
    note("confidence", confidence(verdict.confidence).to_owned());
    note("kind", verdict.kind.to_owned());
    note("victims", announcement.victims.len().to_string());
    if let Some(culprit) = &verdict.culprit {
        note("pid", culprit.machines_pid().map(|pid| pid.to_string()).unwrap_or_default());
        note("pod_uid", culprit.identity.pod.clone().unwrap_or_default());
        if let Some(names) = &culprit.identity.names {
            note("namespace", names.namespace.clone());
            note("pod", names.pod_name.clone());
            note("container", names.container_name.clone());
        }
    }
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let event = HealthEvent {
        version: VERSION,
        agent: AGENT.to_owned(),
        component_class: "GPU".to_owned(),
        check_name: CHECK.to_owned(),
        is_fatal: announcement.severity(true) == Severity::Critical,
        is_healthy: false,
        message: message(announcement),
        recommended_action: action(remedy).into(),
        error_code: announcement.xid().iter().map(u32::to_string).collect(),
        entities_impacted: entities,
        metadata,
        generated_timestamp: Some(Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or_default(),
            nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
        }),
        node_name: node.to_owned(),
    };
    HealthEvents { version: VERSION, events: vec![event] }
}

/// A culprit, by what the machine knows it by.
fn who(culprit: &Suspect) -> String {
    match (culprit.machines_pid(), &culprit.identity.container) {
        (Some(pid), _) => format!("process {pid}"),
        (None, Some(container)) => format!("a process of container {container}"),
        (None, None) => format!("client {}", culprit.process.pid),
    }
}

fn message(announcement: &Announcement) -> String {
    let verdict = &announcement.verdict;
    let what = announcement.xid().map_or_else(|| verdict.kind.to_owned(), catalogue::name);
    let who = match (&verdict.culprit, verdict.confidence) {
        (Some(culprit), Confidence::Certain) => format!("caused by {}", who(culprit)),
        (Some(culprit), _) => format!("likely caused by {}", who(culprit)),
        (None, _) => "caused by a client of MPS, nobody knows which".to_owned(),
    };
    format!("{what} under MPS, {who}; {} others lost their contexts", announcement.victims.len())
}

const fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Unknown => "unknown",
        Confidence::Likely => "likely",
        Confidence::Certain => "certain",
    }
}

const fn action(remedy: Remedy) -> RecommendedAction {
    match remedy {
        Remedy::Ignore => RecommendedAction::None,
        Remedy::RestartApp => RecommendedAction::RestartApp,
        Remedy::ResetGpu => RecommendedAction::ComponentReset,
        Remedy::RestartVm => RecommendedAction::RestartVm,
        Remedy::RestartBm => RecommendedAction::RestartBm,
        Remedy::ContactSupport => RecommendedAction::ContactSupport,
    }
}

/// Makes the call.
pub(super) async fn send(socket: &Path, events: &HealthEvents) -> Result<(), Failure> {
    let passing = |error: &dyn std::fmt::Display| Failure::Passing(error.to_string());
    let stream = UnixStream::connect(socket).await.map_err(|error| passing(&error))?;
    let (client, connection) = h2::client::handshake(stream).await.map_err(|error| passing(&error))?;
    // It ends with the client's end, or with the deadline of whoever calls.
    let connection = tokio::spawn(connection);
    let result = call(client, events).await;
    connection.abort();
    result
}

async fn call(client: h2::client::SendRequest<Bytes>, events: &HealthEvents) -> Result<(), Failure> {
    let passing = |error: h2::Error| Failure::Passing(error.to_string());
    let request = Request::post(format!("http://localhost{CALL}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", AGENT)
        .body(())
        .map_err(|error| Failure::Lasting(error.to_string()))?;
    let mut client = client.ready().await.map_err(passing)?;
    let (response, mut body) = client.send_request(request, false).map_err(passing)?;
    let message = events.encode_to_vec();
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    body.send_data(frame.freeze(), true).map_err(passing)?;
    let response = response.await.map_err(passing)?;
    if !response.status().is_success() {
        return Err(Failure::Passing(format!("it answers {}", response.status())));
    }
    // A call that fails at once has its status in the head.
    if response.headers().contains_key("grpc-status") {
        return judged(response.headers());
    }
    let mut answer = response.into_body();
    while let Some(data) = answer.data().await {
        let data = data.map_err(passing)?;
        answer.flow_control().release_capacity(data.len()).map_err(passing)?;
    }
    let trailers = answer.trailers().await.map_err(passing)?;
    judged(&trailers.unwrap_or_default())
}

/// What the status of a call says. 4, 8 and 14 are a deadline, want of something and a server that is not there.
fn judged(headers: &http::HeaderMap) -> Result<(), Failure> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (status, message) = (text("grpc-status"), text("grpc-message"));
    let what = || format!("it answers status {status:?} {message}");
    match status.as_str() {
        "0" => Ok(()),
        "" | "4" | "8" | "14" => Err(Failure::Passing(what())),
        _ => Err(Failure::Lasting(what())),
    }
}
