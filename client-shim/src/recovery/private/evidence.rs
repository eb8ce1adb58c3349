//! What is known of private functions from how they were called.
//!
//! | seen in a call | judgement |
//! |---|---|
//! | no handle in an argument or behind one | harmless |
//! | a handle among the arguments, or in memory that one points to | it is translated for the call after a recovery |
//! | the address of something new given out | the object is remembered ([`made`](super::made)) |
//! | an address of the driver's code, of its variables or of a device given out | not judged: the program uses it by itself |
//! | a function of the caller's among the arguments of a call that succeeded | not judged: the driver may keep it |
//! | something else returned than a code | not judged |
//! | a caller that is NVIDIA's library for profilers | not judged: it is attached to this copy of the driver |
//!
//! Every call is looked at, and the worst that was seen counts. A program with a function that is not judged is not
//! recovered. Once there is one, and no recovery was before, what was looked at once is not looked at any more: a profiler
//! makes a hundred such calls for each launch.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::followed;

/// What stands in the way of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    AddressOfTheDriver,
    FunctionOfTheCaller,
    NoCode,
    Profiler,
    TooManyObjects,
    CannotLook,
}

impl Doubt {
    /// In words, after "it".
    const fn text(self) -> &'static str {
        match self {
            Self::AddressOfTheDriver => "has given out an address of the driver's own",
            Self::FunctionOfTheCaller => "was given a function of its caller's",
            Self::NoCode => "returns something else than a code",
            Self::Profiler => "was called by a profiler",
            Self::TooManyObjects => "has made more objects than are remembered",
            Self::CannotLook => "cannot be looked at here",
        }
    }
}

/// What is known of one function.
#[derive(Clone, Debug, Default)]
struct Evidence {
    calls: u64,
    /// The library that has called it first.
    caller: String,
    has_handles: bool,
    doubt: Option<Doubt>,
}

impl Evidence {
    fn judgement(&self) -> String {
        match self.doubt {
            Some(doubt) => format!("not judged: it {}", doubt.text()),
            None if self.has_handles => "handles are translated".to_owned(),
            None => "harmless".to_owned(),
        }
    }
}

/// By stub.
static ALL: Mutex<BTreeMap<usize, Evidence>> = Mutex::new(BTreeMap::new());
/// Whether there is a doubt about any.
static IS_IN_DOUBT: AtomicBool = AtomicBool::new(false);

fn all() -> MutexGuard<'static, BTreeMap<usize, Evidence>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of a function begins; whether it has to be looked at.
pub(super) fn begins(stub: usize, caller: impl FnOnce() -> String) -> bool {
    let mut all = all();
    let evidence = all.entry(stub).or_default();
    evidence.calls += 1;
    if evidence.calls > 1 {
        return !IS_IN_DOUBT.load(Ordering::Relaxed);
    }
    evidence.caller = caller();
    if evidence.caller.starts_with("libcupti") {
        doubt(evidence, Doubt::Profiler);
    }
    true
}

/// A call has had a handle among its arguments.
pub(super) fn has_handles(stub: usize) {
    all().entry(stub).or_default().has_handles = true;
}

/// A function cannot be judged.
pub(super) fn is_doubtful(stub: usize, why: Doubt) {
    doubt(all().entry(stub).or_default(), why);
}

fn doubt(evidence: &mut Evidence, why: Doubt) {
    evidence.doubt.get_or_insert(why);
    IS_IN_DOUBT.store(true, Ordering::Relaxed);
}

/// "function 4 of the private table …, called by …".
fn named(stub: usize, evidence: &Evidence) -> String {
    let (table, place) = followed::place(stub).unwrap_or_else(|| ("?".to_owned(), stub));
    let caller = if evidence.caller.is_empty() { "the program" } else { &evidence.caller };
    format!("function {place} of the private table {table}, called by {caller}")
}

/// The first function that stands in the way of a recovery, with the reason.
pub(crate) fn obstacle() -> Option<String> {
    let all = all();
    let (stub, evidence, doubt) = all.iter().find_map(|(stub, evidence)| Some((stub, evidence, evidence.doubt?)))?;
    Some(format!("{}: it {}", named(*stub, evidence), doubt.text()))
}

/// What is plain ASCII without quotes stays, all else becomes a question mark.
fn plain(text: &str) -> String {
    let is_plain = |byte: char| matches!(byte, ' '..='~') && !matches!(byte, '"' | '\\');
    text.chars().map(|byte| if is_plain(byte) { byte } else { '?' }).collect()
}

/// Two lists in JSON, without their brackets: every function that was called and is not known, and what of them stands in
/// the way of a recovery, as the report lists that.
pub(crate) fn report() -> (String, String) {
    let (mut called, mut lost) = (String::new(), String::new());
    for (stub, evidence) in all().iter() {
        let (table, place) = followed::place(*stub).unwrap_or_else(|| ("?".to_owned(), *stub));
        let comma = if called.is_empty() { "" } else { "," };
        // Text is added in memory.
        let _fits = write!(
            called,
            r#"{comma}{{"table":"{}","function":{place},"caller":"{}","calls":{},"judgement":"{}"}}"#,
            plain(&table),
            plain(&evidence.caller),
            evidence.calls,
            evidence.judgement(),
        );
        if let Some(doubt) = evidence.doubt {
            let comma = if lost.is_empty() { "" } else { "," };
            let calls = evidence.calls;
            let _fits = write!(
                lost,
                r#"{comma}{{"function":"{}","reason":"it {}","live":1,"ever":{calls},"bytes":0,"bytes_ever":0}}"#,
                plain(&named(*stub, evidence)),
                doubt.text(),
            );
        }
    }
    (called, lost)
}
