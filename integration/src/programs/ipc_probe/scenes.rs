//! What programs that share memory and an event go through, scene by scene: this one tells them, and has no part in it.

use super::super::report::Report;
use serde_json::{Map, Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

/// One of them.
struct Party {
    name: &'static str,
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

type Found<T> = Result<T, String>;

impl Party {
    fn begin(name: &'static str) -> Found<Self> {
        Self::with(name, &[])
    }

    /// One with these variables, or without.
    fn with(name: &'static str, variables: &[(&str, Option<&str>)]) -> Found<Self> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        let command = command.arg("--party").stdin(Stdio::piped()).stdout(Stdio::piped());
        for (variable, value) in variables {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let to = child.stdin.take();
        let from = child.stdout.take().ok_or("no standard output")?;
        Ok(Self { name, child, to, from: BufReader::new(from) })
    }

    fn tell(&mut self, line: &str) -> Found<()> {
        let to = self.to.as_mut().ok_or("it was let go")?;
        writeln!(to, "{line}").map_err(|error| format!("{}: {line}: {error}", self.name))
    }

    /// The driver's code, and a word.
    fn answer(&mut self, line: &str) -> Found<(u32, String)> {
        let mut text = String::new();
        let count = self.from.read_line(&mut text).map_err(|error| error.to_string())?;
        let parsed = text
            .trim_end_matches('\n')
            .split_once(' ')
            .and_then(|(code, word)| Some((code.parse().ok()?, word.to_owned())));
        parsed.filter(|_| count > 0).ok_or_else(|| format!("{}: {line}: it has ended", self.name))
    }

    fn does(&mut self, line: &str) -> Found<(u32, String)> {
        self.tell(line)?;
        self.answer(line)
    }

    fn is(&mut self, line: &str, code: u32, word: &str) -> Found<()> {
        let found = self.does(line)?;
        if found.0 == code && (code != 0 || found.1 == word) {
            return Ok(());
        }
        Err(format!("{}: {line}: {found:?} where {code} {word} is right", self.name))
    }

    fn ok(&mut self, line: &str) -> Found<()> {
        self.is(line, 0, "")
    }

    /// It must have an error.
    fn fails(&mut self, line: &str) -> Found<u32> {
        let found = self.does(line)?;
        if found.0 == 0 {
            Err(format!("{}: {line}: {found:?} where an error is right", self.name))
        } else {
            Ok(found.0)
        }
    }

    /// Does these lines one after the other. Whether one had the error that work was lost, which is told once.
    fn all(&mut self, lines: &[&str]) -> Found<()> {
        lines.iter().try_for_each(|line| self.ok(line))
    }

    fn kill(&mut self) -> Found<()> {
        self.child.kill().map_err(|error| error.to_string())?;
        self.child.wait().map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.to.take();
        // It has read the end, or is killed.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Two that share: who has made it, and who has opened it, and the handles.
fn pair() -> Found<(Party, Party, String)> {
    let (mut owner, peer) = (Party::begin("the owner")?, Party::begin("the peer")?);
    let (code, handles) = owner.does("share")?;
    if code != 0 {
        return Err(format!("share: {handles} ({code})"));
    }
    let mut peer = peer;
    peer.ok(&format!("open {handles}"))?;
    Ok((owner, peer, handles))
}

/// The owner fills, the peer takes, and every byte is right.
fn round(owner: &mut Party, peer: &mut Party, key: u8) -> Found<()> {
    owner.all(&[&format!("fill {key}"), "record"])?;
    peer.ok("take")?;
    peer.is(&format!("look {key}"), 0, "right")
}

fn event_of(handles: &str) -> &str {
    handles.split_once(' ').map_or("", |(_, event)| event)
}

/// A party has nothing more to be told of: what it does now has no error but one that was owed.
fn hears(party: &mut Party) -> Found<()> {
    let found = party.does("finish")?;
    let again = party.does("finish")?;
    if again.0 == 0 { Ok(()) } else { Err(format!("{}: {found:?}, and then {again:?}", party.name)) }
}

fn without_faults() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..20 {
        round(&mut owner, &mut peer, key)?;
        peer.all(&["query", "wait"])?;
    }
    // The one waits for the other.
    for key in 20..30 {
        owner.all(&["hold", &format!("fill {key}"), "record"])?;
        peer.is("query", 600, "")?;
        peer.ok("take")?;
        owner.ok("go")?;
        peer.all(&["wait", "query"])?;
        peer.is(&format!("look {key}"), 0, "right")?;
    }
    Ok(())
}

fn recorded_before_it_was_exported() -> Found<()> {
    let (mut owner, mut peer) = (Party::begin("the owner")?, Party::begin("the peer")?);
    owner.ok("hold")?;
    let (_, handles) = owner.does("share")?;
    peer.ok(&format!("open {handles}"))?;
    peer.is("query", 600, "")?;
    peer.ok("take")?;
    owner.ok("go")?;
    peer.all(&["wait", "query"])?;
    round(&mut owner, &mut peer, 9)
}

fn owner_faults_at_rest() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        peer.ok("take")?;
        peer.is(&format!("look {key}"), 0, "right")?;
        owner.is("harm", 719, "")?;
        hears(&mut owner)?;
        // What had come had come.
        peer.all(&["query", "wait"])?;
        peer.ok("take")?;
        peer.is(&format!("look {key}"), 0, "right")?;
        round(&mut owner, &mut peer, key + 100)?;
    }
    owner.is("recoveries", 0, "3")
}

fn owner_faults_between_record_and_wait() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        owner.all(&["hold", "trap", &format!("fill {}", key + 50), "record"])?;
        peer.ok("take")?;
        owner.ok("go")?;
        owner.fails("finish")?;
        hears(&mut owner)?;
        peer.fails(&format!("look {}", key + 50))?;
        hears(&mut peer)?;
        // Who asks for that record is told too, whoever it is and whenever.
        peer.fails("query")?;
        peer.fails("wait")?;
        peer.fails("take")?;
        hears(&mut peer)?;
        let mut late = Party::begin("who comes late")?;
        late.ok(&format!("open {handles}"))?;
        late.fails("query")?;
        round(&mut owner, &mut peer, key + 100)?;
        late.ok("take")?;
        late.is(&format!("look {}", key + 100), 0, "right")?;
    }
    owner.is("recoveries", 0, "3")
}

fn peer_faults_at_rest() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        peer.is("harm", 719, "")?;
        hears(&mut peer)?;
        // On the same server it may be hit too.
        hears(&mut owner)?;
        peer.all(&["query", "wait", "take"])?;
        peer.is(&format!("look {key}"), 0, "right")?;
        round(&mut owner, &mut peer, key + 100)?;
    }
    peer.is("recoveries", 0, "3")
}

fn peer_faults_while_it_waits() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..4 {
        round(&mut owner, &mut peer, key)?;
        owner.all(&["hold", &format!("fill {}", key + 50), "record"])?;
        peer.ok("take")?;
        peer.is("harm", 719, "")?;
        hears(&mut peer)?;
        // Its wait went with its stream, so it waits again. A GPU that both use may have told of the fault no sooner than the
        // owner had done its work by itself.
        let found = peer.does("query")?;
        if ![0, 600].contains(&found.0) {
            return Err(format!("the peer asks and gets {found:?}"));
        }
        peer.ok("take")?;
        owner.ok("go")?;
        peer.is(&format!("look {}", key + 50), 0, "right")?;
        owner.ok("finish")?;
    }
    peer.is("recoveries", 0, "3")
}

fn both_fault_by_turns() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    for key in 1..6 {
        round(&mut owner, &mut peer, key)?;
        owner.is("harm", 719, "")?;
        peer.is("harm", 719, "")?;
        hears(&mut owner)?;
        hears(&mut peer)?;
        peer.ok("take")?;
        peer.is(&format!("look {key}"), 0, "right")?;
    }
    Ok(())
}

fn owner_is_killed_before_it_is_done() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.all(&["hold", "fill 2", "record"])?;
    peer.ok("take")?;
    owner.kill()?;
    peer.fails("look 2")?;
    hears(&mut peer)?;
    peer.fails("query")?;
    peer.fails("wait")?;
    peer.fails("take")?;
    peer.fails(&format!("more {}", event_of(&handles)))?;
    hears(&mut peer)
}

fn owner_is_killed_when_it_is_done() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.kill()?;
    peer.all(&["query", "wait", "take"])?;
    peer.is("look 1", 0, "right")
}

fn peer_is_killed() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    owner.all(&["hold", "fill 2", "record"])?;
    peer.ok("take")?;
    peer.kill()?;
    owner.all(&["go", "finish"])?;
    let mut peer = Party::begin("the next peer")?;
    peer.ok(&format!("open {handles}"))?;
    peer.ok("take")?;
    peer.is("look 2", 0, "right")?;
    round(&mut owner, &mut peer, 3)
}

fn handles_and_what_is_refused() -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    let event = event_of(&handles);
    // As the driver has it: a process cannot open its own.
    owner.is(&format!("more {event}"), 201, "")?;
    peer.all(&[&format!("more {event}"), &format!("more {event}")])?;
    round(&mut owner, &mut peer, 1)?;
    let (code, codes) = peer.does("misuse")?;
    if code != 0 || !codes.starts_with("801,400,801,905") {
        return Err(format!("misuse: {code} {codes}"));
    }
    round(&mut owner, &mut peer, 2)?;
    let (_, next) = owner.does("again")?;
    // What it was of is no more, and another one has its place.
    peer.is(&format!("more {event}"), 400, "")?;
    peer.ok(&format!("more {next}"))?;
    // Who is not to be recovered cannot have it, nor who has no library.
    let mut other = Party::with("who is not recovered", &[("MPS_SHIM_REPLAY", None)])?;
    other.is(&format!("more {next}"), 801, "")?;
    let mut other = Party::with("who has no library", &[("LD_PRELOAD", None)])?;
    other.fails(&format!("more {next}")).map(drop)
}

fn records_come_in_another_order() -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.all(&["hold", "fill 2", "record", "elsewhere 3"])?;
    // The last record is behind nothing.
    peer.all(&["wait", "query"])?;
    owner.all(&["go", "finish"])?;
    peer.all(&["wait", "query"])?;
    round(&mut owner, &mut peer, 3)?;
    owner.all(&["hold", "record", "elsewhere 20", "go", "finish"])?;
    peer.all(&["wait", "query"])?;
    round(&mut owner, &mut peer, 4)
}

/// Memory and an event of the first one's go to the second, and what the second makes of them to the third.
fn chain() -> Found<(Party, Party, Party)> {
    let (first, mut second, _) = pair()?;
    let mut third = Party::begin("the third")?;
    let (_, handles) = second.does("pass")?;
    third.ok(&format!("open {handles}"))?;
    Ok((first, second, third))
}

fn three_in_a_row() -> Found<()> {
    let (mut first, mut second, mut third) = chain()?;
    for key in 1..4 {
        first.all(&["hold", &format!("fill {key}"), "record"])?;
        second.all(&["take", "hand"])?;
        third.ok("take")?;
        first.ok("go")?;
        third.is(&format!("look {key}"), 0, "right")?;
        second.is(&format!("look {key}"), 0, "right")?;
        // The second never looks, and the third believes nothing that is lost.
        first.all(&["hold", "trap", &format!("fill {}", key + 50), "record"])?;
        second.all(&["take", "hand"])?;
        third.ok("take")?;
        first.ok("go")?;
        first.fails("finish")?;
        third.fails(&format!("look {}", key + 50))?;
        for party in [&mut first, &mut second, &mut third] {
            hears(party)?;
        }
    }
    Ok(())
}

/// Nothing is left to a peer but an error, whatever ends the work that it waits for.
fn loses(end: &[&str]) -> Found<()> {
    let (mut owner, mut peer, _) = pair()?;
    round(&mut owner, &mut peer, 1)?;
    owner.all(&["hold", "trap", "fill 2", "record"])?;
    peer.ok("take")?;
    for line in end {
        // Whether it fails is not what this is about.
        let _code = owner.does(line)?;
    }
    peer.fails("look 2")?;
    hears(&mut peer)?;
    peer.fails("query").map(drop)
}

fn owner_is_refused() -> Found<()> {
    loses(&["obstruct", "go", "finish"])
}

fn owner_ends_its_context() -> Found<()> {
    loses(&["reset"])
}

/// Of two, one goes on with a spare copy, the owner or the peer; the other one stands by itself.
fn with_a_spare_copy(is_owner: bool) -> Found<()> {
    const TRIES: usize = 20;
    let begin = |name, has_spare: bool| {
        let way = if has_spare { "spare" } else { "in-place" };
        Party::with(name, &[("MPS_SHIM_REPLAY", Some(way))])
    };
    for _ in 0..TRIES {
        let (mut owner, mut peer) = (begin("the owner", is_owner)?, begin("the peer", !is_owner)?);
        let (_, handles) = owner.does("share")?;
        peer.ok(&format!("open {handles}"))?;
        for key in 1..40 {
            round(&mut owner, &mut peer, key)?;
        }
        let faulty = if is_owner { &mut owner } else { &mut peer };
        faulty.is("harm", 719, "")?;
        hears(faulty)?;
        let is_by_a_spare = faulty.does("way")?.1 == "spare";
        peer.all(&["query", "wait", "take"])?;
        peer.is("look 39", 0, "right")?;
        for key in 40..50 {
            round(&mut owner, &mut peer, key)?;
        }
        if is_by_a_spare {
            return Ok(());
        }
    }
    Err(format!("no spare copy was ready {TRIES} times"))
}

fn owner_goes_on_with_a_spare_copy() -> Found<()> {
    with_a_spare_copy(true)
}

fn peer_goes_on_with_a_spare_copy() -> Found<()> {
    with_a_spare_copy(false)
}

/// A number below a bound, by xorshift.
fn below(state: &mut u64, bound: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % bound
}

/// A round that is right, after so many that have an error at most.
fn comes_round(owner: &mut Party, peer: &mut Party, key: u8, tries: usize) -> Found<()> {
    let mut last = String::new();
    for _ in 0..tries {
        for party in [&mut *owner, &mut *peer] {
            if tries == 1 {
                hears(party)?;
            } else {
                party.does("finish")?;
            }
        }
        let (fill, record, take) = (owner.does(&format!("fill {key}"))?, owner.does("record")?, peer.does("take")?);
        let look = peer.does(&format!("look {key}"))?;
        if [fill.0, record.0, take.0] == [0; 3] && look.0 == 0 {
            // What is wrong is so whatever else has happened.
            assert_eq!(look.1, "right", "{key}");
            return Ok(());
        }
        last = format!("{fill:?} {record:?} {take:?} {look:?}");
    }
    Err(last)
}

/// Everything in an order that a number says. What is taken is right, unless the owner was told that its work is lost, or
/// a fault has made an error possible. Those on the same server have errors of each other's faults, whenever they hear of them.
fn at_random(seed: u64, are_together: bool) -> Found<()> {
    let (mut owner, mut peer, handles) = pair()?;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for turn in 0..40 {
        let key = turn + 1;
        let is_held = below(&mut state, 3) == 0;
        let does_wrong = below(&mut state, 4) == 0;
        let mut is_told = false;
        let hold = is_held.then(|| "hold".to_owned());
        let begin =
            [hold, Some(format!("fill {key}")), does_wrong.then(|| "trap".to_owned()), Some("record".to_owned())];
        for line in begin.iter().flatten() {
            is_told |= owner.does(line)?.0 != 0;
        }
        let mut has_taken = false;
        for _ in 0..=below(&mut state, 4) {
            match below(&mut state, 7) {
                0 => has_taken = peer.does("take")?.0 == 0,
                1 => drop(peer.does("query")?),
                2 => {
                    peer.does("harm")?;
                    peer.does("finish")?;
                    has_taken = false;
                }
                3 if !is_held => is_told |= owner.does("harm")?.0 != 0,
                4 if !is_held => is_told |= owner.does("finish")?.0 != 0,
                5 => {
                    peer.kill()?;
                    peer = Party::begin("another peer")?;
                    peer.ok(&format!("open {handles}"))?;
                    has_taken = false;
                }
                _ => {
                    is_told |= owner.does(&format!("elsewhere {}", below(&mut state, 12)))?.0 != 0;
                    // The last one is behind what was filled again.
                    is_told |= owner.does("record")?.0 != 0;
                }
            }
        }
        owner.ok("go")?;
        // Its fault is found by a call of its own.
        is_told |= owner.does("finish")?.0 != 0;
        let took = if has_taken { (0, String::new()) } else { peer.does("take")? };
        let looked = if took.0 == 0 { peer.does(&format!("look {key}"))? } else { took };
        let is_excused = is_told || (are_together && looked.0 != 0);
        if !is_excused && looked != (0, "right".to_owned()) {
            return Err(format!("seed {seed}, turn {turn}: {looked:?}"));
        }
        let tries = if are_together { 10 } else { 1 };
        comes_round(&mut owner, &mut peer, key + 100, tries)
            .map_err(|why| format!("seed {seed}, turn {turn}: {why}"))?;
    }
    Ok(())
}

/// A scene by its name.
type Scene = (&'static str, fn() -> Found<()>);

const SCENES: [Scene; 15] = [
    ("without_faults", without_faults),
    ("recorded_before_it_was_exported", recorded_before_it_was_exported),
    ("owner_faults_at_rest", owner_faults_at_rest),
    ("owner_faults_between_record_and_wait", owner_faults_between_record_and_wait),
    ("peer_faults_at_rest", peer_faults_at_rest),
    ("peer_faults_while_it_waits", peer_faults_while_it_waits),
    ("both_fault_by_turns", both_fault_by_turns),
    ("owner_is_killed_before_it_is_done", owner_is_killed_before_it_is_done),
    ("owner_is_killed_when_it_is_done", owner_is_killed_when_it_is_done),
    ("peer_is_killed", peer_is_killed),
    ("handles_and_what_is_refused", handles_and_what_is_refused),
    ("records_come_in_another_order", records_come_in_another_order),
    ("three_in_a_row", three_in_a_row),
    ("owner_is_refused", owner_is_refused),
    ("owner_ends_its_context", owner_ends_its_context),
];

/// Where somebody gives a server for a spare copy; not among all.
const WITH_A_SERVER_FOR_SPARES: [Scene; 2] = [
    ("owner_goes_on_with_a_spare_copy", owner_goes_on_with_a_spare_copy),
    ("peer_goes_on_with_a_spare_copy", peer_goes_on_with_a_spare_copy),
];

/// Plays a scene: one by its name, or one that a number says.
fn play(name: &str) -> Found<()> {
    let found = WITH_A_SERVER_FOR_SPARES.iter().find(|(of, _)| *of == name);
    if let Some((_, scene)) = found {
        return scene();
    }
    if let Some((way @ ("at_random" | "at_random_together"), seed)) = name.split_once(':') {
        let seed = seed.parse().map_err(|_| format!("{name} has no number"))?;
        return at_random(seed, way == "at_random_together");
    }
    let found = SCENES.iter().find(|(of, _)| *of == name);
    found.map_or_else(|| Err(format!("there is no scene {name}")), |(_, scene)| scene())
}

/// Plays these scenes, or all; what is wrong in each.
pub(super) fn run(report: Report, wanted: &[String]) -> ExitCode {
    let mut found = Map::new();
    let all: Vec<String> =
        SCENES.iter().map(|(name, _)| (*name).to_owned()).chain(["at_random:1".to_owned()]).collect();
    for name in if wanted.is_empty() { &all } else { wanted } {
        let outcome = play(name);
        report.say("scene", json!({ "name": name, "wrong": outcome.as_ref().err() }));
        found.insert(name.clone(), outcome.map_or_else(Value::String, |()| Value::Null));
    }
    let is_right = !found.is_empty() && found.values().all(Value::is_null);
    report.say("end", json!({ "scenes": found, "is_right": is_right }));
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
