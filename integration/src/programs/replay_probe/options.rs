//! What the program is asked to do: its command line, as its header describes it.

use super::private::Private;
use super::slabs::Shape;
use std::path::PathBuf;
use std::time::Duration;

/// How long others' faults are waited for.
const SECONDS: u64 = 30;

/// What it says where it does not understand.
pub(super) const USAGE: &str = "mps-replay-probe [--faults KIND,…] [--recoveries N] [--seconds N] [--busy|--idle|--ticking] [--tail] [--threads N] [--library] \
                    [--variable] [--pinned] [--pools] [--settings] [--enumerated] [--graph] [--arrays] [--strange-graph] [--strange-array] [--context] [--linker] [--shared-event] [--private CALL,…] [--stuck] [--light] [--breakable] [--slabs COUNT,MIB] [--until-stdin-closes] \
                    [--resources] [--at-once] [--maps FOLDER] [--scene NAME]";
/// All of them.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) faults: Vec<String>,
    pub(super) recoveries: u64,
    pub(super) patience: Duration,
    pub(super) is_busy: bool,
    pub(super) is_idle: bool,
    pub(super) is_ticking: bool,
    pub(super) has_tail: bool,
    pub(super) scene: Option<String>,
    pub(super) threads: usize,
    pub(super) has_library: bool,
    pub(super) has_variable: bool,
    pub(super) has_pinned: bool,
    pub(super) has_pools: bool,
    pub(super) has_arrays: bool,
    pub(super) has_strange_array: bool,
    pub(super) has_settings: bool,
    pub(super) has_enumerated: bool,
    pub(super) has_graphs: bool,
    pub(super) has_strange_graph: bool,
    pub(super) has_context: bool,
    pub(super) has_linker: bool,
    pub(super) has_shared_event: bool,
    pub(super) is_stuck: bool,
    pub(super) is_light: bool,
    pub(super) is_breakable: bool,
    pub(super) slabs: Option<Shape>,
    pub(super) is_staying: bool,
    pub(super) private: Vec<String>,
    pub(super) is_counting: bool,
    pub(super) tells_at_once: bool,
    pub(super) maps: Option<PathBuf>,
}

impl Options {
    pub(super) fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            faults: Vec::new(),
            recoveries: 0,
            patience: Duration::from_secs(SECONDS),
            is_busy: false,
            is_idle: false,
            is_ticking: false,
            has_tail: false,
            scene: None,
            threads: 2,
            has_library: false,
            has_variable: false,
            has_pinned: false,
            has_pools: false,
            has_arrays: false,
            has_strange_array: false,
            has_settings: false,
            has_enumerated: false,
            has_graphs: false,
            has_strange_graph: false,
            has_context: false,
            has_linker: false,
            has_shared_event: false,
            is_stuck: false,
            is_light: false,
            is_breakable: false,
            slabs: None,
            is_staying: false,
            private: Vec::new(),
            is_counting: false,
            tells_at_once: false,
            maps: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--faults" => options.faults = arguments.next()?.split(',').map(str::to_owned).collect(),
                "--recoveries" => options.recoveries = arguments.next()?.parse().ok()?,
                "--seconds" => options.patience = Duration::from_secs(arguments.next()?.parse().ok()?),
                "--busy" => options.is_busy = true,
                "--idle" => options.is_idle = true,
                "--ticking" => options.is_ticking = true,
                "--scene" => options.scene = Some(arguments.next()?),
                "--tail" => options.has_tail = true,
                "--threads" => options.threads = arguments.next()?.parse().ok()?,
                "--library" => options.has_library = true,
                "--variable" => options.has_variable = true,
                "--pinned" => options.has_pinned = true,
                "--pools" => options.has_pools = true,
                "--arrays" => options.has_arrays = true,
                "--strange-array" => options.has_strange_array = true,
                "--settings" => options.has_settings = true,
                "--enumerated" => options.has_enumerated = true,
                "--graph" => options.has_graphs = true,
                "--strange-graph" => options.has_strange_graph = true,
                "--context" => options.has_context = true,
                "--linker" => options.has_linker = true,
                "--shared-event" => options.has_shared_event = true,
                "--stuck" => options.is_stuck = true,
                "--light" => options.is_light = true,
                "--breakable" => options.is_breakable = true,
                "--slabs" => options.slabs = Some(arguments.next()?.parse().ok()?),
                "--until-stdin-closes" => options.is_staying = true,
                "--private" => options.private = arguments.next()?.split(',').map(str::to_owned).collect(),
                "--resources" => options.is_counting = true,
                "--at-once" => options.tells_at_once = true,
                "--maps" => options.maps = Some(arguments.next()?.into()),
                _ => return None,
            }
        }
        let known = ["oob", "trap", "misaligned", "assert"];
        let is_known = options.faults.iter().all(|kind| known.contains(&kind.as_str()))
            && options.private.iter().all(|call| Private::CALLS.contains(&call.as_str()));
        is_known.then_some(options)
    }
}
