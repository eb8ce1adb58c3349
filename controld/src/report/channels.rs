//! `get_channel_list [PID]`.

use super::client::client_not_found;
use super::table::aligned;
use super::text::{harmless, or_nothing};
use super::{Viewer, fitted};
use crate::core::Pid;
use crate::core::picture::Snapshot;
use remps_proto::admin::Form;

const HEADING: [&str; 7] = ["CLIENT", "UID", "SERVER", "CONTEXT", "CHANNEL", "GPU", "SOURCE"];

/// The answer to `get_channel_list`: a row for each context or channel that is known, of one client or of all.
///
/// # Errors
/// What is answered where there is no such client, or none that the viewer may see.
pub(crate) fn channel_list(
    snapshot: &Snapshot,
    viewer: Viewer,
    pid: Option<Pid>,
    form: Form,
) -> Result<Vec<String>, Vec<String>> {
    let is_client = |pid| snapshot.clients.iter().any(|client| client.process.pid == pid && viewer.may_see(client.uid));
    let wanted = snapshot
        .channels
        .iter()
        .filter(|channel| viewer.may_see(channel.uid) && pid.is_none_or(|pid| channel.process.pid == pid));
    let channels: Vec<_> = wanted.collect();
    if let Some(pid) = pid.filter(|pid| channels.is_empty() && !is_client(*pid)) {
        return Err(client_not_found(pid));
    }
    if form == Form::Json {
        return Ok(channels.into_iter().map(fitted).collect());
    }
    let rows: Vec<Vec<String>> = channels
        .into_iter()
        .map(|channel| {
            vec![
                channel.process.pid.to_string(),
                channel.uid.to_string(),
                or_nothing(channel.server),
                or_nothing(channel.context),
                or_nothing(channel.channel.map(|number| format!("{number:#x}"))),
                harmless(channel.gpu.as_deref().unwrap_or_default()),
                channel.source.to_owned(),
            ]
        })
        .collect();
    Ok(aligned(&HEADING, &rows, form))
}
