//! `top` on a terminal of its own, through the daemon's end and the next one, and at every end of its own.
#![expect(unsafe_code, reason = "the size of a terminal is told with an ioctl that has no safe wrapper")]

use integration::lab::LIMIT;
use integration::lab::process::ended_within;
use integration::lab::program::Program;
use integration::lab::stage::{CONTROL, Stage};
use integration::nvml::{DEFAULT, Gpus};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

const ROOT: u32 = 0;
const ROWS: u16 = 24;
const COLUMNS: u16 = 100;
/// What a program says to get the screen, and to give it back.
const ENTERS: &str = "\u{1b}[?1049h";
const LEAVES: &str = "\u{1b}[?1049l";
const SHOWS_CURSOR: &str = "\u{1b}[?25h";

/// A terminal with a program on it.
struct Terminal {
    /// The side of the person; `None` when he has closed it.
    person: Option<File>,
    /// Keeps the side of the program open, to look at its modes.
    program: OwnedFd,
    child: Child,
    /// reader thread --bytes--> here
    bytes_rx: Receiver<Vec<u8>>,
    said: Vec<u8>,
    modes: LocalFlags,
}

impl Terminal {
    /// Starts a program on a terminal that controls it, or only is its input and output.
    fn start(command: &Command, controls: bool) -> Self {
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).expect("a terminal");
        // A program that has its own terminal's other side never sees it closed.
        for side in [&master, &slave] {
            fcntl(side, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("an open descriptor");
        }
        let modes = tcgetattr(&slave).expect("it has modes").local_flags;
        let side = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let mut on_it = Command::new("setsid");
        on_it.args(controls.then_some("--ctty")).arg(command.get_program()).args(command.get_args()).env_clear();
        on_it.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm-256color");
        let child = on_it.stdin(side()).stdout(side()).stderr(side()).spawn().expect("setsid is everywhere");
        let person = File::from(master);
        let mut reader = person.try_clone().expect("a descriptor");
        let (bytes_tx, bytes_rx) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut piece) {
                if bytes_tx.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { person: Some(person), program: slave, child, bytes_rx, said: Vec::new(), modes }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    fn press(&mut self, keys: &str) {
        self.person.as_mut().expect("it is open").write_all(keys.as_bytes()).expect("a terminal takes keys");
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let person = self.person.as_ref().expect("it is open");
        // SAFETY: the pointer is to a value of the documented type.
        let result = unsafe { libc::ioctl(person.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(result, 0);
    }

    /// Waits until the bytes so far are enough for something.
    fn wait_for(&mut self, what: &str, fact: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let text = String::from_utf8_lossy(&self.said).into_owned();
            if fact(&text) {
                return;
            }
            match self.bytes_rx.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.said.extend(bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{what} is not on the screen:\n{}", screen(&text).join("\n"));
                }
            }
        }
    }

    /// Waits until a person can read something.
    fn wait_screen(&mut self, what: &str, fact: impl Fn(&str) -> bool) {
        self.wait_for(what, |text| fact(&screen(text).join("\n")));
    }

    /// The status with which the program ends, once its terminal is as it was.
    fn end(mut self) -> std::process::ExitStatus {
        assert!(ended_within(self.pid(), LIMIT), "it does not end");
        let status = self.child.wait().expect("it is ours");
        self.wait_for("the terminal as it was", |text| {
            let (entered, left) = (text.rfind(ENTERS), text.rfind(LEAVES));
            entered < left && text.rfind(SHOWS_CURSOR) > text.rfind("\u{1b}[?25l")
        });
        assert_eq!(tcgetattr(&self.program).expect("it has modes").local_flags, self.modes);
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a person reads after these bytes, as far as `top` moves the cursor.
fn screen(text: &str) -> Vec<String> {
    let mut rows = vec![vec![' '; 300]; 100];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' if rest.next_if_eq(&'[').is_some() => {
                let mut arguments = String::new();
                let end = loop {
                    match rest.next() {
                        Some(one @ ('0'..='9' | ';' | '?')) => arguments.push(one),
                        Some(other) => break other,
                        None => break ' ',
                    }
                };
                let mut numbers = arguments.split(';').map(|number| number.parse::<usize>().unwrap_or(1).max(1));
                match end {
                    'H' => (row, column) = (numbers.next().unwrap_or(1) - 1, numbers.next().unwrap_or(1) - 1),
                    'J' => rows.iter_mut().for_each(|row| row.fill(' ')),
                    'h' | 'l' | 'm' | 'n' | ' ' => {}
                    other => panic!("ESC [ {arguments} {other}"),
                }
            }
            '\u{1b}' => panic!("an escape that is none of a screen: {:?}", rest.peek()),
            '\r' => column = 0,
            '\n' => row += 1,
            one => {
                rows[row][column] = one;
                column += 1;
            }
        }
    }
    rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
}

fn top(stage: &Stage, environment: &[(&str, &str)]) -> Command {
    let mut command = stage.command_as(ROOT, CONTROL, &["top", "--interval", "0.1"]);
    // A question that the daemon's end meets on its way has its own limit.
    command.env_remove("MPS_TEST_PATIENCE").envs(environment.iter().copied());
    command
}

#[test]
fn top_follows_the_daemon_through_its_end_and_the_next() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut terminal = Terminal::start(&top(stage, &[]), true);
        terminal.wait_screen("the daemon", |text| text.contains("ready") && text.contains("no clients"));
        let client = Program::attached(stage, ROOT);
        let pid = client.pid().to_string();
        let is_there =
            |text: &str| text.lines().any(|line| line.trim_start().starts_with(&pid) && line.contains("live"));
        terminal.wait_screen("the client", is_there);
        terminal.press("?");
        terminal.wait_screen("the keys", |text| text.contains("Shift-Tab"));
        terminal.press("?/no such text\r");
        terminal.wait_screen("a filter", |text| text.contains("none of 1 clients") && !is_there(text));
        terminal.press("\u{1b}");
        terminal.wait_screen("all", is_there);

        terminal.resize(12, 40);
        terminal.wait_screen("a narrow screen", |text| {
            text.lines().nth(11).is_some_and(|line| line.starts_with(" ?")) && is_there(text)
        });
        terminal.resize(3, 10);
        terminal.wait_screen("that it is too small", |text| text.contains("terminal t"));
        terminal.resize(ROWS, COLUMNS);
        terminal.wait_screen("all again", is_there);

        client.leave();
        stage.kill_daemon();
        terminal.wait_screen("that there is none", |text| {
            text.starts_with("no daemon") && text.split_whitespace().all(|word| word != pid)
        });
        stage.start(&[]);
        terminal.wait_screen("the next one", |text| text.contains("ready") && text.contains("no clients"));
        terminal.press("q");
        assert_eq!(terminal.end().code(), Some(0));
    });
}

#[test]
fn a_terminal_is_given_back_at_every_end() {
    Stage::run(|stage| {
        stage.start(&[]);
        let is_up = |text: &str| text.contains("ready");
        let mut terminal = Terminal::start(&top(stage, &[]), true);
        terminal.wait_screen("the daemon", is_up);
        assert_ne!(tcgetattr(&terminal.program).expect("modes").local_flags, terminal.modes, "it reads single keys");
        terminal.press("\u{3}");
        assert_eq!(terminal.end().code(), Some(0), "Ctrl-C");
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
            let mut terminal = Terminal::start(&top(stage, &[]), true);
            terminal.wait_screen("the daemon", is_up);
            kill(terminal.pid(), signal).expect("it is ours");
            assert_eq!(terminal.end().code(), Some(128 + signal as i32), "{signal}");
        }
        let terminal = Terminal::start(&top(stage, &[("MPS_TEST_PANIC", "top")]), true);
        assert_eq!(terminal.end().code(), Some(101), "a panic");
    });
}

#[test]
fn top_ends_with_its_terminal() {
    Stage::run(|stage| {
        stage.start(&[]);
        for controls in [true, false] {
            let mut terminal = Terminal::start(&top(stage, &[]), controls);
            terminal.wait_screen("the daemon", |text| text.contains("ready"));
            let pid = terminal.pid();
            let Terminal { person, bytes_rx, .. } = &mut terminal;
            drop(person.take());
            // The reader's copy goes with the next bytes that it can't send on.
            *bytes_rx = channel().1;
            assert!(ended_within(pid, LIMIT), "with a terminal that controls it: {controls}");
        }
    });
}

#[test]
fn top_needs_no_terminal_for_one_look() {
    Stage::run(|stage| {
        let run_on = |stage: &Stage, arguments: &[&str]| {
            stage.lab().finish(&mut stage.command_as(ROOT, CONTROL, arguments), b"")
        };
        for arguments in [&["top", "--once"][..], &["top", "--json"], &["top"]] {
            let finished = run_on(stage, arguments);
            assert_eq!((finished.code, finished.stdout_text().as_str()), (Some(1), ""), "{arguments:?}");
            assert!(finished.stderr_text().starts_with("top: no daemon answers: "), "{}", finished.stderr_text());
        }
        let gpus = Gpus::new(stage.lab().dir(), &[DEFAULT]);
        let (name, value) = gpus.environment();
        stage.launch(&["-f"], &[(name, value.to_str().expect("a path of ours"))]);
        stage.wait_up();
        let client = Program::attached(stage, ROOT);
        let pid = client.pid().to_string();
        gpus.processes(0, &format!("{pid} M+C\n"));
        let run = |arguments: &[&str]| run_on(stage, arguments);
        let once = run(&["top", "--once"]);
        let text = once.stdout_text();
        assert_eq!((once.code, once.stderr_text().as_str()), (Some(0), ""), "{text}");
        let row = text.lines().find(|line| line.trim_start().starts_with(&pid)).unwrap_or_else(|| panic!("{text}"));
        assert!(row.contains("516MiB") && row.contains(" 100 ") && row.contains("live"), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(run(&["top"]).stdout_text().contains(&pid), "without a terminal it looks once");
        let json: Value = serde_json::from_str(&run(&["top", "--json"]).stdout_text()).expect("one object");
        assert_eq!(json["clients"][0]["process"]["pid"].to_string(), pid);
        assert_eq!(json["clients"][0]["memory_bytes"], 541_065_216);
        assert_eq!((&json["clients"][0]["threads"], &json["users"]["0"]), (&Value::from(100.0), &Value::from("root")));

        // The daemon looks once a second at the most, and a library that hangs costs one look in a while.
        assert!(stage.ask("status --memory\n").contains("516 MiB"));
        assert!(!stage.ask("status\n").contains("516 MiB"), "who does not ask waits for nothing");
        let server = stage.servers()[0];
        let _ = stage.ask(&format!("set_active_thread_percentage {server} 40\n"));
        let json: Value = serde_json::from_str(&run(&["top", "--json"]).stdout_text()).expect("one object");
        assert_eq!(json["servers"][0]["threads"], 40.0);
    });
}

#[test]
fn a_machine_without_the_library_says_why_no_memory_is_known() {
    Stage::run(|stage| {
        let gpus = Gpus::new(stage.lab().dir(), &[DEFAULT]);
        gpus.write("fail", "nvmlInit_v2 9\n");
        let (name, value) = gpus.environment();
        stage.launch(&["-f"], &[(name, value.to_str().expect("a path of ours"))]);
        stage.wait_up();
        let client = Program::attached(stage, ROOT);
        let text = stage.ask("status --memory\n");
        assert!(text.contains("GPU memory of clients: unknown, nvmlInit_v2 failed with NVML error 9"), "{text}");
        let once = stage.lab().finish(&mut stage.command_as(ROOT, CONTROL, &["top", "--once"]), b"").stdout_text();
        assert!(once.contains("GPU-MEM not known: nvmlInit_v2") && once.contains(&client.pid().to_string()), "{once}");
        client.leave();
    });
}
