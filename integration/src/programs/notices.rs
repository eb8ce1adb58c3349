//! `mps-notices`: what the patched module says, as lines of JSON; the daemon's own reader without the daemon.
//!
//! ```text
//! mps-notices [--device PATH] [--mode off|observe|isolate] [--kill-ms N] [--hold-ms N] [--claim-ms N]
//!             [--until EVENT] [--count N] [--for-ms N]
//! ```
//! The first line is `opened`, with the driver's version, or `refused`, with the reason. Then comes one line for each
//! event. `--mode` and what follows it set the policy before the first event is read; `--claim-ms` claims each client
//! that is condemned. It ends after the `--count`th (1) event that `--until` names, with status 0; after `--for-ms`, with
//! 3; when the device is gone, with 4; when it could not be opened or a request failed, with 2. The last line is `end`:
//! the records lost, and the module's own counts.
//!
//! It needs nothing of CUDA, and links statically for a virtual machine that has no libraries:
//! `RUSTFLAGS='-C target-feature=+crt-static' cargo build --release -p integration --bin mps-notices
//! --target x86_64-unknown-linux-gnu`.

use super::report::Report;
use remps_controld::parts::core::ProcessKey;
use remps_controld::parts::witness::notice::{
    DEVICE, DeviceFile, FaultNotice, NoticeClient, NoticeEvent, Notices, Presence,
};
use remps_proto::notice::Mode;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

const REFUSED: u8 = 2;
const DEADLINE_PASSED: u8 = 3;
const DEVICE_GONE: u8 = 4;

#[derive(Debug)]
struct Options {
    device: String,
    mode: Option<Mode>,
    kill_ms: Option<u32>,
    hold_ms: Option<u32>,
    claim_ms: Option<u32>,
    until: Option<String>,
    count: u64,
    deadline: Option<Duration>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options {
        device: DEVICE.to_owned(),
        mode: None,
        kill_ms: None,
        hold_ms: None,
        claim_ms: None,
        until: None,
        count: 1,
        deadline: None,
    };
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        match argument.as_str() {
            "--device" => options.device = value,
            "--mode" => {
                options.mode = Some(match value.as_str() {
                    "off" => Mode::OFF,
                    "observe" => Mode::OBSERVE,
                    "isolate" => Mode::ISOLATE,
                    _ => return None,
                });
            }
            "--kill-ms" => options.kill_ms = Some(value.parse().ok()?),
            "--hold-ms" => options.hold_ms = Some(value.parse().ok()?),
            "--claim-ms" => options.claim_ms = Some(value.parse().ok()?),
            "--until" => options.until = Some(value),
            "--count" => options.count = value.parse().ok()?,
            "--for-ms" => options.deadline = Some(Duration::from_millis(value.parse().ok()?)),
            _ => return None,
        }
    }
    Some(options)
}

/// The program.
#[must_use]
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let report = Report::begin();
    let Some(options) = parse(arguments) else {
        report.say("usage", json!({ "text": "mps-notices [--device PATH] [--mode MODE] [--until EVENT] ..." }));
        return ExitCode::from(REFUSED);
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(report, &error.to_string()),
    };
    runtime.block_on(async {
        let mut notices = Notices::new(DeviceFile::new(&options.device));
        let Presence::Present(info) = notices.look() else {
            return refuse(report, &notices.presence().to_string());
        };
        report.say(
            "opened",
            json!({ "driver": info.driver_version(), "tested": info.tested == 1, "ring_records": info.ring_records }),
        );
        if let Err(error) = set_policy(&mut notices, &options) {
            return refuse(report, &format!("policy: {error}"));
        }
        let status = match options.deadline {
            None => follow(report, &mut notices, &options).await,
            Some(deadline) => {
                tokio::time::timeout(deadline, follow(report, &mut notices, &options)).await.unwrap_or(DEADLINE_PASSED)
            }
        };
        let counts = notices.stats().ok().map(|stats| {
            json!({
                "records": stats.records, "lost": stats.lost, "suppressed": stats.suppressed, "faults": stats.faults,
                "isolated": stats.isolated, "passed": stats.passed, "sinks": stats.sinks, "killed": stats.killed,
                "zombies": stats.zombies, "held": stats.held, "refused": stats.refused, "clients": stats.clients,
            })
        });
        report.say("end", json!({ "lost": notices.lost(), "stats": counts }));
        ExitCode::from(status)
    })
}

fn refuse(report: Report, reason: &str) -> ExitCode {
    report.say("refused", json!({ "reason": reason }));
    ExitCode::from(REFUSED)
}

fn set_policy(notices: &mut Notices, options: &Options) -> std::io::Result<()> {
    if options.mode.is_none() && options.kill_ms.is_none() && options.hold_ms.is_none() {
        return Ok(());
    }
    let mut policy = notices.policy()?;
    policy.mode = options.mode.unwrap_or(policy.mode);
    policy.kill_ms = options.kill_ms.unwrap_or(policy.kill_ms);
    policy.hold_ms = options.hold_ms.unwrap_or(policy.hold_ms);
    notices.set_policy(&policy)
}

/// Reports the events until the one that is waited for, and gives the exit status.
async fn follow(report: Report, notices: &mut Notices, options: &Options) -> u8 {
    let mut due = options.count;
    loop {
        for event in notices.next().await {
            let (name, fields) = line(&event);
            report.say(name, fields);
            if let (NoticeEvent::Fault(fault), Some(kill_ms)) = (&event, options.claim_ms)
                && fault.client.is_condemned
            {
                let result = notices.claim(fault.client.va_space, kill_ms);
                let error = result.err().map(|error| error.to_string());
                report.say("claimed", json!({ "va_space": fault.client.va_space, "error": error }));
            }
            if options.until.as_deref() == Some(name) {
                due = due.saturating_sub(1);
                if due == 0 {
                    return 0;
                }
            }
            if name == "gone" {
                return DEVICE_GONE;
            }
        }
    }
}

fn process(process: Option<ProcessKey>) -> Value {
    process.map_or(Value::Null, |process| json!({ "pid": process.pid, "start_time": process.start_time }))
}

fn client(client: &NoticeClient) -> Value {
    json!({
        "va_space": client.va_space,
        "process": process(client.process),
        "condemned": client.is_condemned,
        "held": client.is_held,
        "kill_sent": client.is_kill_sent,
    })
}

fn fault(fault: &FaultNotice) -> Value {
    json!({
        "client": client(&fault.client),
        "fault": fault.fault,
        "channel": fault.channel,
        "subcontext": fault.subcontext,
        "isolation": fault.isolation,
        "own": fault.is_own,
        "merged": fault.merged,
        "class": fault.class,
        "boot_ns": u64::try_from(fault.at.as_nanos()).unwrap_or(u64::MAX),
    })
}

/// An event's name and fields.
fn line(event: &NoticeEvent) -> (&'static str, Value) {
    let of = |it: &NoticeClient| json!({ "client": client(it) });
    match event {
        NoticeEvent::SnapshotBegins => ("snapshot-begins", json!({})),
        NoticeEvent::SnapshotEnds => ("snapshot-ends", json!({})),
        NoticeEvent::VaSpaceAdded(it) => ("va-space-added", of(it)),
        NoticeEvent::VaSpaceRemoved(it) => ("va-space-removed", of(it)),
        NoticeEvent::ChannelAdded(it, channel, facts) => {
            ("channel-added", json!({ "client": client(it), "channel": channel, "facts": facts }))
        }
        NoticeEvent::ChannelRemoved(it, channel) => {
            ("channel-removed", json!({ "client": client(it), "channel": channel }))
        }
        NoticeEvent::Fault(it) => ("fault", fault(it)),
        NoticeEvent::ZombieFault(it) => ("zombie-fault", fault(it)),
        NoticeEvent::Suppressed(it, count) => ("suppressed", json!({ "client": client(it), "count": count })),
        NoticeEvent::Killed(it) => ("killed", of(it)),
        NoticeEvent::Held(it) => ("held", of(it)),
        NoticeEvent::HoldEnds(it) => ("hold-ends", of(it)),
        NoticeEvent::Refused(it, request) => ("mapping-refused", json!({ "client": client(it), "request": request })),
        NoticeEvent::Lost(count) => ("lost", json!({ "count": count })),
        NoticeEvent::Unknown(kind) => ("unknown", json!({ "type": kind })),
        NoticeEvent::Gone(reason) => ("gone", json!({ "reason": reason })),
    }
}
