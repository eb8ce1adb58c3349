//! The table of the manual page that says what becomes of the driver's functions, made from their rows.
//!
//! `REMPS_WRITE=1 cargo test -p remps-client-shim --lib coverage` writes it; without that the page is compared with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{cuda::functions::FATES, kept::account::Reason};

/// Between these lines the page has the table.
const BEGIN: &str = ".\\\" Made from the rows of the functions: begin\n";
const END: &str = ".\\\" Made from the rows of the functions: end\n";
/// Bytes of a line, about.
const WIDTH: usize = 79;

/// What becomes of what a function makes or sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The memory outlives the driver.
    Kept,
    /// It is noted, and made or set again.
    MadeAgain,
    /// Bytes of variables are noted.
    Written,
    /// Handles are translated, or the call is followed.
    Followed,
    /// While it is there the program is not recovered, for this reason.
    Refused(&'static str),
}

impl Fate {
    fn title(&self) -> String {
        match self {
            Self::Kept => "Kept:".to_owned(),
            Self::MadeAgain => "Made again:".to_owned(),
            Self::Written => "Written again where it has gone to variables of modules:".to_owned(),
            Self::Followed => "Followed, or handles in it translated:".to_owned(),
            Self::Refused(reason) => format!("Not recoverable while it is there, since {reason}:"),
        }
    }
}

fn text_of(reason: &str) -> &'static str {
    let found = Reason::ALL.iter().find(|(name, _)| *name == reason);
    found.expect("the compiler knows every reason of a row").1
}

/// By what a row says: its reason, and what is done after the call or in its place.
fn fate(reason: Option<&str>, logic: &str) -> Option<Fate> {
    let logic = logic.replace(char::is_whitespace, "");
    let named = logic.split_once("Reason::").map(|(_, rest)| rest);
    let named = named.and_then(|rest| rest.split(|letter: char| !letter.is_alphanumeric()).next());
    if let Some(reason) = reason.or(named) {
        return Some(Fate::Refused(text_of(reason)));
    }
    let asks = [
        "kept::contexts::from_green",
        "kept::contexts::destroyed_green",
        "kept::memory::mapping::used_as_multicast",
        "kept::memory::pointers",
        "kept::memory::pools::attribute",
        "kept::memory::pools::told",
        "kept::code::stacks::told",
        "kept::objects::ids",
        "kept::graphs::listed",
        "kept::graphs::named",
        "kept::graphs::depend",
        "kept::streams::ids",
        "kept::streams::last_of",
    ];
    let writes = ["kept::code::variables::copied", "kept::code::variables::overwritten", "kept::code::variables::set"];
    match logic.as_str() {
        // Work of its stream, like a launch, of which is noted that it is one.
        "" | "kept::streams::gave_function(stream)" | "kept::streams::callbacks::add" => None,
        logic if writes.iter().any(|writing| logic.starts_with(writing)) => Some(Fate::Written),
        logic if asks.iter().any(|asking| logic.starts_with(asking)) => Some(Fate::Followed),
        logic if logic.starts_with("kept::memory") => Some(Fate::Kept),
        logic if logic.starts_with("kept::") => Some(Fate::MadeAgain),
        _ => Some(Fate::Followed),
    }
}

/// The name that programs know, whatever the version.
fn plain(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((plain, version)) if version.parse::<u8>().is_ok() => plain,
        _ => name.trim_end_matches("_ptsz"),
    }
}

/// Names in bold, in lines of the page.
fn names(names: &BTreeSet<&str>) -> String {
    let (mut text, mut line) = (String::new(), ".Sy".to_owned());
    for (index, name) in names.iter().enumerate() {
        if line.len() + name.len() + 3 > WIDTH {
            text += &line;
            text.push('\n');
            ".Sy".clone_into(&mut line);
        }
        line.push(' ');
        line += name;
        line += if index + 1 == names.len() { " ." } else { " ," };
    }
    text + &line + "\n"
}

/// A text in lines of the page.
fn wrapped(text: &str) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        let separator = match length {
            0 => "",
            length if length + word.len() < WIDTH => " ",
            _ => "\n",
        };
        length = if separator == "\n" { word.len() } else { length + separator.len() + word.len() };
        lines += separator;
        lines += word;
    }
    lines + "\n"
}

fn table() -> String {
    let mut text = ".Bl -tag -width Ds\n".to_owned();
    let mut in_rows = BTreeSet::new();
    for (subject, functions) in FATES {
        let mut by_fate = BTreeMap::<Fate, BTreeSet<&str>>::new();
        for (name, reason, logic) in *functions {
            if let Some(fate) = fate(*reason, logic) {
                by_fate.entry(fate).or_default().insert(plain(name));
            }
        }
        if by_fate.is_empty() {
            continue;
        }
        text += &format!(".It {}\n", subject.trim().trim_end_matches('.'));
        for (index, (fate, functions)) in by_fate.iter().enumerate() {
            text += if index > 0 { ".Pp\n" } else { "" };
            text += &wrapped(&fate.title());
            text += &names(functions);
            if let Fate::Refused(reason) = fate {
                in_rows.insert(*reason);
            }
        }
    }
    text += ".El\n.Pp\nOf what is kept or made again these are not recoverable:\n.Bl -bullet -compact\n";
    let others: Vec<_> = Reason::ALL.iter().filter(|(_, reason)| !in_rows.contains(reason)).collect();
    for (index, (_, reason)) in others.iter().enumerate() {
        let end = if index + 1 == others.len() { "." } else { ";" };
        text += &format!(".It\n{}", wrapped(&format!("{reason}{end}")));
    }
    text + ".El\n"
}

#[test]
fn the_manual_page_says_what_becomes_of_every_function() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../man/mps-client-shim.7");
    let page = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table has a beginning");
    let (written, after) = rest.split_once(END).expect("the table has an end");
    if std::env::var_os("REMPS_WRITE").is_some() {
        fs::write(&path, [before, BEGIN, &table(), END, after].concat()).expect("the page can be written");
        return;
    }
    assert_eq!(written, table(), "REMPS_WRITE=1 writes it");
}

/// Functions that set or make something and are passed on, by the beginnings of their names, with the reason.
const PASSED_ON: &[(&str, &str)] = &[
    ("cuCtxAttach", "only another reference to a context, for contexts that are refused"),
    ("cuCtxSetSharedMemConfig", "without effect since GPUs of 2014"),
    ("cuFuncSetSharedMemConfig", "the same"),
    ("cuFuncSet", "for launches of CUDA 3, which take what was set at once"),
    ("cuParamSet", "the same"),
    ("cuDeviceSetGraphMemAttribute", "sets counters to zero"),
    ("cuMemAdvise", "of managed memory, which is refused"),
    ("cuStreamAttachMemAsync", "the same"),
    ("cuTexRef", "of texture references, which are refused"),
    ("cuSurfRef", "the same"),
    ("cuTensorMap", "written to memory of the program's, with addresses that stay"),
    ("cuGraphics", "of resources, which are refused"),
    ("cuLogicalEndpoint", "of endpoints, which are refused"),
    ("cuLinkAdd", "of linkers, which are refused"),
    ("cuGraphBatchMemOp", "of nodes whose graph is refused"),
    ("cuGraphExternalSemaphores", "the same"),
    ("cuGraphExec", "of executable graphs whose graph was refused"),
    ("cuGraphConditionalHandleCreate", "for nodes whose graph is refused"),
    ("cuMemExportToShareableHandle", "a descriptor of its own, which nobody needs the driver for"),
    ("cuMemPoolExport", "of pools that are refused"),
    ("cuStreamAddCallback", "work of its stream, like a launch"),
];

#[test]
fn nothing_that_is_set_is_lost_in_silence() {
    let sets = [
        "Set", "Exchange", "Create", "Register", "Advise", "Attach", "Enable", "Disable", "Bind", "Add", "Import",
        "Export",
    ];
    let all = FATES.iter().flat_map(|(_, functions)| *functions);
    let passed_on: Vec<&str> = all
        .filter(|(name, reason, logic)| fate(*reason, logic).is_none() && sets.iter().any(|word| name.contains(word)))
        .map(|(name, ..)| *name)
        .filter(|name| !name.contains("Get"))
        .collect();
    let known = |name: &&str| PASSED_ON.iter().any(|(beginning, _)| name.starts_with(beginning));
    let lost: Vec<_> = passed_on.iter().filter(|name| !known(name)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let listed = PASSED_ON.iter().filter(|(beginning, _)| !passed_on.iter().any(|name| name.starts_with(beginning)));
    assert_eq!(listed.collect::<Vec<_>>(), [] as [&(&str, &str); 0], "nothing of that name is passed on");
}

#[test]
fn fates_follow_from_rows() {
    assert_eq!(fate(None, ""), None);
    assert_eq!(fate(None, "kept :: memory :: allocation :: plain"), Some(Fate::Kept));
    assert_eq!(fate(None, "kept::memory::pointers::info"), Some(Fate::Followed));
    assert_eq!(fate(None, "kept::objects::ends"), Some(Fate::MadeAgain));
    assert_eq!(fate(Some("Array"), ""), Some(Fate::Refused("the layout of an array is the driver's secret")));
    let counted = "kept::account::made(name!(), kept::account::Reason::Ipc, event.key())";
    assert_eq!(
        fate(None, counted),
        Some(Fate::Refused("what another process has made ends with that process's driver"))
    );
    assert_eq!(["cuMemAlloc_v2", "cuInit", "cuMemcpy_view"].map(plain), ["cuMemAlloc", "cuInit", "cuMemcpy_view"]);
    assert_eq!(wrapped(&"word ".repeat(20)).lines().map(str::len).collect::<Vec<_>>(), [79, 19]);
}
