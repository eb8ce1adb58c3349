//! The report: Markdown for people, JSON for programs, with the machine that it was made on.

use super::figures::{Figure, Outcome};
use super::{BenchError, system};
use remps_controld::parts::observe::journal::timestamp;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// Length of `2026-11-22`.
const DATE: usize = 10;

/// What it was made on.
struct Machine {
    date: String,
    cpu: String,
    cores: usize,
    kernel: String,
    load: String,
    profile: &'static str,
    commit: String,
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).ok().and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
}

/// The commit of the sources, and whether they were changed since.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|text| !text.is_empty());
    if is_changed { format!("{head} and changes") } else { head }
}

impl Machine {
    fn look() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load = first_line("/proc/loadavg");
        Self {
            date: timestamp(SystemTime::now()).chars().take(DATE).collect(),
            cpu: model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned()),
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            load: load.split(' ').take(3).collect::<Vec<_>>().join(" "),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            commit: commit(),
        }
    }

    fn json(&self) -> Value {
        let Self { date, cpu, cores, kernel, load, profile, commit } = self;
        json!({
            "date": date, "cpu": cpu, "cores": cores, "kernel": kernel, "load": load, "profile": profile,
            "commit": commit,
        })
    }
}

/// Prints the report, and writes it to a folder where one is named.
pub(super) fn write(figures: &[Figure], dir: Option<&Path>) -> Result<(), BenchError> {
    let machine = Machine::look();
    let markdown = markdown(&machine, figures);
    // A closed standard output is the caller's choice.
    let _ = io::stdout().write_all(markdown.as_bytes());
    let Some(dir) = dir else { return Ok(()) };
    fs::create_dir_all(dir).map_err(system(format!("make {}", dir.display())))?;
    let json = serde_json::to_string_pretty(&json(&machine, figures)).expect("it is JSON") + "\n";
    for (suffix, text) in [("md", markdown), ("json", json)] {
        let path = dir.join(format!("{}-host.{suffix}", machine.date));
        fs::write(&path, text).map_err(system(format!("write {}", path.display())))?;
    }
    Ok(())
}

fn json(machine: &Machine, figures: &[Figure]) -> Value {
    let figures = figures.iter().map(|figure| {
        let results = figure.results.iter().map(|(part, outcome)| {
            let value = match outcome {
                Outcome::Measured(samples) => samples.json(),
                Outcome::Skipped(reason) => json!({ "skipped": reason }),
            };
            (part.clone(), value)
        });
        (figure.name.to_owned(), json!({ "about": figure.about, "result": results.collect::<Map<_, _>>() }))
    });
    json!({ "machine": machine.json(), "figures": figures.collect::<Map<_, _>>() })
}

/// A number with three digits that count.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn markdown(machine: &Machine, figures: &[Figure]) -> String {
    let Machine { date, cpu, cores, kernel, load, profile, commit } = machine;
    let mut text = format!(
        "# Host benchmark, {date}\n\nMachine: {cpu}, {cores} cores, kernel {kernel}, load {load}. Build: {profile}, \
         {commit}.\nMade by `cargo run --release -p integration --bin bench`, without a GPU: the servers are simulated.\n\
         Values are min / median / max. None of them is a promise: what else the machine did is in them.\n\n## Figures\n"
    );
    for Figure { name, about, results } in figures {
        text.push_str(&format!("\n### {name}\n\n{about}\n\n"));
        for (part, outcome) in results {
            let line = match outcome {
                Outcome::Measured(samples) => {
                    let range = samples.range().map(shown).join(" / ");
                    let p99 = samples.p99().map(|p99| format!(", p99 {}", shown(p99))).unwrap_or_default();
                    format!("- {part}: {range}{p99} (n = {})\n", samples.count())
                }
                Outcome::Skipped(reason) => format!("- {part}: Skipped({reason})\n"),
            };
            text.push_str(&line);
        }
    }
    text
}
