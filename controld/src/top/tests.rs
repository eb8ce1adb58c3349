//! Whole screens, drawn for a terminal that is not there, and what keys do to them.
//!
//! A golden is a file of `goldens`; `REMPS_WRITE=1` writes it anew.

use super::draw::draw;
use super::gather::{self, Seen};
use super::page;
use super::rows::Kind;
use super::state::{After, Look, Now, State};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const LOOK: Look = Look { colour: true, utc: true, interval: Duration::from_secs(2) };
const GPUS: [&str; 2] = ["GPU-3d6da830-aaaa", "GPU-77777777-bbbb"];

fn client(pid: u32, uid: u32, phase: &str, server: Option<u32>, command: &str) -> Value {
    json!({
        "process": {"pid": pid, "start_time": 1}, "uid": uid, "domain": format!("user {uid}"), "phase": phase,
        "server": server, "identity": {"command": command}, "gpus": null, "threads": 100.0,
        "memory_bytes": u64::from(pid) << 20, "spare": null, "verdicts": [],
    })
}

/// The answer to `status`, with these clients.
fn status(clients: &[Value]) -> String {
    json!({
        "daemon": {"pid": 1480, "version": "0.1.0", "personality": "580", "uptime_s": 4210.0},
        "ready": true, "obstacles": [],
        "gpus": [{"index": 0, "uuid": GPUS[0]}, {"index": 1, "uuid": GPUS[1]}],
        "domains": [
            {"name": "user 1000", "uid": 1000, "phase": "recovering", "server": 1551, "standby": null,
             "clients": 3, "max_clients": 16, "waiting": 1, "quarantined": false},
            {"name": "user 0", "uid": 0, "phase": "serving", "server": 1490, "standby": 1502,
             "clients": 1, "max_clients": null, "waiting": 0, "quarantined": true}],
        "servers": [
            {"pid": 1490, "uid": 0, "domain": "user 0", "phase": "active", "clients": 1, "ready_s": 4200.0,
             "memory_bytes": 72_351_744, "threads": 100.0, "gpus": GPUS},
            {"pid": 1551, "uid": 1000, "domain": "user 1000", "phase": "fault", "clients": 3, "ready_s": 12.25,
             "memory_bytes": null, "threads": 50.0, "gpus": [GPUS[1]]}],
        "clients": clients,
    })
    .to_string()
}

fn verdicts() -> String {
    let verdict = |number: u64, pid: u32| {
        json!({"number": number, "time": "2026-11-20T18:15:41.181627Z", "domain": "user 1000",
               "culprit": {"pid": pid, "uid": 1000, "command": "python train.py"}, "confidence": "certain",
               "kind": "memory fault", "victims": [1533, 1536]})
    };
    format!("{}\n{}\n", verdict(2, 999), verdict(3, 1529))
}

fn clients() -> Vec<Value> {
    let mut culprit = client(1529, 1000, "lost", Some(1551), "python train.py --model llama --steps 1000000");
    culprit["verdicts"] = json!([2, 3]);
    let mut ready = client(1533, 1000, "lost", Some(1551), "vllm serve");
    ready["spare"] = json!({"ready": true, "behind": 0});
    ready["threads"] = json!(12.5);
    let mut elsewhere = client(2001, 0, "live", Some(1490), "/usr/bin/訓練プログラム --hostile \u{1b}[2J\u{202e}gnp");
    elsewhere["gpus"] = json!([format!("{}/gi3", GPUS[0])]);
    let mut newcomer = client(1600, 1000, "waiting", None, "torchrun");
    newcomer["memory_bytes"] = Value::Null;
    newcomer["threads"] = Value::Null;
    let gone = client(1400, 1000, "gone", None, "it has ended");
    vec![culprit, ready, newcomer, elsewhere, gone]
}

fn seen_with(clients: &[Value]) -> Seen {
    let users = BTreeMap::from([(0, "root".to_owned()), (1000, "ada".to_owned()), (1001, "nobody here".to_owned())]);
    gather::read(&status(clients), &verdicts(), "2026-11-20T18:16:02Z".to_owned(), &users).expect("it is an answer")
}

fn state_with(clients: &[Value]) -> State {
    let mut state = State::new(LOOK);
    state.hear(Ok(seen_with(clients)));
    state
}

fn buffer(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal is needed");
    terminal.draw(|frame| draw(state, frame.area(), frame.buffer_mut())).expect("it is only memory");
    terminal.backend().buffer().clone()
}

/// What a person reads on it: a wide character's second cell is none.
fn screen(state: &State, width: u16, height: u16) -> String {
    let buffer = buffer(state, width, height);
    let mut lines = Vec::new();
    for y in 0..height {
        let (mut line, mut x) = (String::new(), 0);
        while x < width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += u16::try_from(super::table::width(symbol)).expect("a character").max(1);
        }
        lines.push(format!("{}\n", line.trim_end()));
    }
    lines.concat()
}

fn press(state: &mut State, keys: &[KeyCode]) {
    for key in keys {
        assert_eq!(state.key(KeyEvent::new(*key, KeyModifiers::NONE)), After::On, "{key:?}");
    }
}

fn is_golden(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/goldens").join(name);
    if std::env::var_os("REMPS_WRITE").is_some() {
        std::fs::write(&path, shown).expect("the source can be written");
    }
    assert_eq!(shown, std::fs::read_to_string(&path).expect("there is a golden"), "{name}");
}

#[test]
fn the_screen_shows_domains_servers_and_clients() {
    is_golden("screen.txt", &screen(&state_with(&clients()), 100, 24));
}

#[test]
fn the_documents_screen_is_this_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = std::fs::read_to_string(path.join("src/top/goldens/screen.txt")).expect("there is a golden");
    let document = std::fs::read_to_string(path.join("../docs/operators.md")).expect("there is a document");
    assert!(document.contains(&format!("```\n{golden}```\n")), "docs/operators.md has another screen than\n{golden}");
}

#[test]
fn once_is_text_of_eighty_columns() {
    let text = page::text(&seen_with(&clients()), true);
    is_golden("once.txt", &text);
    assert!(text.lines().all(|line| super::table::width(line) <= 80), "{text}");
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
}

#[test]
fn a_narrow_terminal_leaves_columns_out_and_a_tiny_one_says_so() {
    let state = state_with(&clients());
    is_golden("narrow.txt", &screen(&state, 40, 16));
    assert!(screen(&state, 20, 16).starts_with("terminal too smal\n") || screen(&state, 20, 16).contains("terminal"));
    let low = screen(&state, 80, 10);
    assert!(
        low.contains("2001 root") && !low.contains("WAITING"),
        "a low one shows rows, of the table of the keys: {low}"
    );
    for (width, height) in [(1, 1), (1, 50), (300, 1), (29, 7), (30, 8), (31, 9), (80, 8), (500, 200)] {
        buffer(&state, width, height);
    }
    assert!(screen(&state, 300, 30).contains("--steps 1000000"), "a wide one has room for all");
}

#[test]
fn nothing_that_a_program_calls_itself_reaches_the_terminal_as_it_is() {
    let hostile: Vec<String> = (0..=0x20_u32)
        .chain(0x7f..=0xa0)
        .chain([0x200b, 0x200e, 0x200f, 0x2028, 0x202a, 0x202e, 0x2066, 0xfeff, 0x0301, 0x1f468])
        .filter_map(char::from_u32)
        .map(|character| format!("a{character}[31m{character}\u{1b}]0;x\u{7}{character}b"))
        .collect();
    let mut rows: Vec<Value> = (1..).zip(&hostile).map(|(pid, name)| client(pid, 1000, "live", None, name)).collect();
    rows[0]["domain"] = json!("\u{1b}[2J\u{1b}]0;owned\u{7}");
    rows[1]["phase"] = json!("\u{9b}31m");
    let state = state_with(&rows);
    let buffer = buffer(&state, 120, 80);
    for cell in buffer.content() {
        assert!(!cell.symbol().chars().any(|one| one.is_control() || ('\u{202a}'..='\u{202e}').contains(&one)));
    }
    let text = page::text(&seen_with(&rows), true);
    assert!(text.chars().all(|one| one == '\n' || !one.is_control()), "{text:?}");
    assert!(text.lines().all(|line| super::table::width(line) <= 80), "{text}");
}

#[test]
fn keys_sort_turn_and_filter() {
    let mut state = state_with(&clients());
    let pids = |state: &State| -> Vec<String> {
        state.rows(Kind::Clients).iter().map(|row| row.cells[0].text.clone()).collect()
    };
    assert_eq!(pids(&state), ["1529", "1533", "1600", "2001"], "the gone are not there");
    press(&mut state, &[KeyCode::Char('r')]);
    assert_eq!(pids(&state), ["2001", "1600", "1533", "1529"]);
    press(&mut state, &[KeyCode::Char('M')]);
    assert_eq!(pids(&state), ["2001", "1533", "1529", "1600"], "what is not known is last");
    press(&mut state, &[KeyCode::Char('r')]);
    assert_eq!(pids(&state), ["1529", "1533", "2001", "1600"], "and in the other order, too");
    press(&mut state, &[KeyCode::Char('P'), KeyCode::Left]);
    assert_eq!(pids(&state)[0], "2001", "by COMMAND, the column to the left of the first: / is before p");
    press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('L'), KeyCode::Char('o'), KeyCode::Char('s')]);
    assert!(screen(&state, 100, 24).contains("filter: Los_"));
    assert_eq!(pids(&state), ["1529", "1533"], "a filter looks at every column and at no case");
    press(&mut state, &[KeyCode::Char('q'), KeyCode::Backspace, KeyCode::Enter]);
    assert!(screen(&state, 100, 24).contains("1-2 of 4 clients"), "{}", screen(&state, 100, 24));
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!(pids(&state).len(), 4);
    assert_eq!(state.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)), After::Quit);
    assert_eq!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), After::Quit);
}

#[test]
fn the_table_of_the_keys_is_marked_and_help_names_all_of_them() {
    let mut state = state_with(&clients());
    press(&mut state, &[KeyCode::Tab, KeyCode::Char('?')]);
    assert_eq!(state.focus, Kind::Domains);
    is_golden("help.txt", &screen(&state, 80, 24));
    press(&mut state, &[KeyCode::Esc, KeyCode::BackTab]);
    assert_eq!(state.focus, Kind::Clients);
}

#[test]
fn a_thousand_clients_are_passed_row_by_row_and_the_marked_one_stays_marked() {
    let many: Vec<Value> = (1..=1000).map(|pid| client(pid, 1000, "live", Some(1551), "job")).collect();
    let mut state = state_with(&many);
    let first = screen(&state, 80, 24);
    assert!(first.contains("1-10 of 1000 clients") && first.contains("\nroot  serving"), "{first}");
    press(&mut state, &[KeyCode::End]);
    let last = screen(&state, 80, 24);
    assert!(last.contains("991-1000 of 1000 clients"), "{last}");
    press(&mut state, &[KeyCode::PageUp, KeyCode::Up]);
    assert_eq!(state.view(Kind::Clients).marked.as_deref(), Some("989"));
    state.hear(Ok(seen_with(&many[500..])));
    assert!(screen(&state, 80, 24).contains("989"), "it is on the screen");
    assert_eq!(state.marked(Kind::Clients, &state.rows(Kind::Clients)), 488);
    state.hear(Ok(seen_with(&many[..3])));
    assert_eq!(state.marked(Kind::Clients, &state.rows(Kind::Clients)), 0, "one that is gone is the first");
}

#[test]
fn a_daemon_that_is_gone_is_said_and_its_picture_is_not_shown() {
    let mut state = State::new(LOOK);
    assert!(screen(&state, 80, 24).starts_with("asking the daemon"));
    state.hear(Ok(seen_with(&clients())));
    press(&mut state, &[KeyCode::Char(' ')]);
    state.hear(Err("no daemon answers: \u{1b}[2J".to_owned()));
    let gone = screen(&state, 80, 24);
    assert!(gone.starts_with("no daemon\n\nno daemon answers: \\u{1b}[2J\nIt is asked again."), "{gone}");
    assert!(!gone.contains("1529"), "{gone}");
    state.hear(Ok(seen_with(&clients())));
    assert!(matches!(state.now, Now::Seen(_)) && screen(&state, 80, 24).contains("1529"));
}

#[test]
fn a_held_screen_stays_until_it_goes_on() {
    let mut state = state_with(&clients());
    press(&mut state, &[KeyCode::Char(' ')]);
    state.hear(Ok(seen_with(&clients()[..1])));
    let held = screen(&state, 100, 24);
    assert!(held.contains("HELD") && held.contains("2001"), "{held}");
    assert_eq!(state.key(KeyEvent::new(KeyCode::Char(' '), KeyModifiers::NONE)), After::Ask);
    state.hear(Ok(seen_with(&clients()[..1])));
    assert!(!screen(&state, 100, 24).contains("2001"));
}

#[test]
fn states_have_colours_unless_no_colour_is_wanted() {
    let colours = |colour: bool| {
        let mut state = State::new(Look { colour, ..LOOK });
        state.hear(Ok(seen_with(&clients())));
        let buffer = buffer(&state, 100, 24);
        buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert!(colours(true) > 0);
    assert_eq!(colours(false), 0);
}

#[test]
fn what_is_no_answer_of_ours_is_said_to_be_none() {
    let read = |status: &str| gather::read(status, "", String::new(), &BTreeMap::new());
    for status in ["", "Usage: status", "{}", "[]", "{\"daemon\": 7}", "{\"daemon\": {}, \"clients\": [{\"uid\": -1}]}"]
    {
        assert!(read(status).is_err_and(|why| why.starts_with("it does not answer as ReMPS does")), "{status}");
    }
    let nonsense = "[]\n{}\nx\n";
    let seen = gather::read(&status(&[]), nonsense, String::new(), &BTreeMap::new()).expect("verdicts are not needed");
    let mut state = State::new(LOOK);
    state.hear(Ok(seen));
    assert!(screen(&state, 80, 24).contains("nobody can be named"), "an empty verdict is one");
}

#[test]
fn a_text_is_cut_by_columns_and_not_by_characters() {
    use super::table::{padded, width};
    for text in
        ["", "a", "abcdef", "漢字漢字漢字", "a漢b字c", "e\u{301}e\u{301}e\u{301}e\u{301}", "👨\u{200d}👩\u{200d}👧 x"]
    {
        for room in 0..12 {
            assert_eq!(width(&padded(text, room, false)), room, "{text:?} in {room}");
            assert_eq!(width(&padded(text, room, true)), room, "{text:?} in {room}");
        }
    }
}
