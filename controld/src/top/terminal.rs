//! The loop: keys, answers and signals come in, screens go out.
//!
//! ```text
//!   keys ────────┐
//!   signals ─────┼──► loop ──screens──► terminal
//!   answers ─────┘      └──ask now──► asker
//! ```
//! Each has a thread of its own, since each waits by itself: for the terminal, for a signal, for the daemon. The terminal
//! is given back as it was at whatever end: of the loop, by a signal, by a panic. A terminal that takes no more bytes holds
//! the loop up, so the thread of signals ends the process [`PATIENCE`] after one. A terminal that is gone is noticed by
//! its SIGHUP, or, where that is ignored, with the next screen: the clock on it is another one each time.

use super::draw::draw;
use super::gather::{Asker, Seen};
use super::state::{After, Look, State};
use crate::failpoint::panics;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How long after a signal the loop may take to give the terminal back.
const PATIENCE: Duration = Duration::from_secs(1);
/// What a signal's number is added to for an exit status, as shells do.
const BY_SIGNAL: u8 = 128;

/// What the loop hears.
enum Heard {
    /// A key, or another size.
    Input(Input),
    /// The terminal can't be read any more.
    Deaf(io::Error),
    /// What the daemon has said, or why nobody has.
    Answer(Box<Result<Seen, String>>),
    /// A signal that ends.
    Signal(u8),
}

/// Shows the screen until the user or a signal ends it; returns the exit status.
///
/// # Errors
/// When the terminal can't be used.
pub(super) fn run(pipe_dir: PathBuf, look: Look) -> io::Result<u8> {
    let (heard_tx, heard_rx) = mpsc::channel();
    watch_signals(heard_tx.clone())?;
    let terminal = ratatui::try_init();
    let ended = terminal.and_then(|mut terminal| {
        watch_keys(heard_tx.clone());
        let ask_tx = ask(pipe_dir, look.interval, heard_tx);
        follow(&mut terminal, State::new(look), &heard_rx, &ask_tx)
    });
    let restored = ratatui::try_restore();
    let status = ended?;
    // Who has no terminal any more can't have it back.
    if status == 0 { restored.map(|()| status) } else { Ok(status) }
}

fn follow(
    terminal: &mut DefaultTerminal,
    mut state: State,
    heard_rx: &Receiver<Heard>,
    ask_tx: &Sender<()>,
) -> io::Result<u8> {
    loop {
        terminal.draw(|frame| draw(&state, frame.area(), frame.buffer_mut()))?;
        panics("top");
        // All that is there before the next screen, so that a held key does not run after itself.
        let Ok(first) = heard_rx.recv() else { return Ok(0) };
        for heard in std::iter::once(first).chain(heard_rx.try_iter()) {
            match heard {
                Heard::Input(Input::Key(key)) => match state.key(key) {
                    After::On => {}
                    After::Quit => return Ok(0),
                    // The asker ends with this loop alone.
                    After::Ask => drop(ask_tx.send(())),
                },
                // The next screen asks for the size.
                Heard::Input(_) => {}
                Heard::Answer(answer) => state.hear(*answer),
                Heard::Deaf(error) => return Err(error),
                Heard::Signal(number) => return Ok(BY_SIGNAL.saturating_add(number)),
            }
        }
    }
}

fn watch_keys(heard_tx: Sender<Heard>) {
    std::thread::spawn(move || {
        loop {
            let heard = event::read().map_or_else(Heard::Deaf, Heard::Input);
            let is_over = matches!(heard, Heard::Deaf(_));
            if heard_tx.send(heard).is_err() || is_over {
                return;
            }
        }
    });
}

/// Asks at intervals, and when it is told to; gives the way to tell it.
fn ask(pipe_dir: PathBuf, interval: Duration, heard_tx: Sender<Heard>) -> Sender<()> {
    let (ask_tx, ask_rx) = mpsc::channel();
    std::thread::spawn(move || ask_again(&pipe_dir, interval, &heard_tx, &ask_rx));
    ask_tx
}

fn ask_again(pipe_dir: &Path, interval: Duration, heard_tx: &Sender<Heard>, ask_rx: &Receiver<()>) {
    let asker = Asker::new(pipe_dir);
    loop {
        let next = Instant::now() + interval;
        if heard_tx.send(Heard::Answer(Box::new(asker.ask()))).is_err() {
            return;
        }
        match ask_rx.recv_timeout(next.saturating_duration_since(Instant::now())) {
            // Several keys are one question.
            Ok(()) => ask_rx.try_iter().for_each(drop),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Catches the signals that end, before the terminal is changed.
fn watch_signals(heard_tx: Sender<Heard>) -> io::Result<()> {
    let (ready_tx, ready_rx) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let caught = runtime.and_then(|runtime| {
            let caught = {
                let _within = runtime.enter();
                let kinds =
                    [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
                let [terminate, interrupt, hangup, quit] = kinds.map(signal);
                [terminate?, interrupt?, hangup?, quit?]
            };
            Ok((runtime, caught))
        });
        let (runtime, [mut terminate, mut interrupt, mut hangup, mut quit]) = match caught {
            Ok(caught) => caught,
            // Whoever waits for it waits still.
            Err(error) => return drop(ready_tx.send(Err(error))),
        };
        drop(ready_tx.send(Ok(())));
        let kind = runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => SignalKind::terminate(),
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = hangup.recv() => SignalKind::hangup(),
                _ = quit.recv() => SignalKind::quit(),
            }
        });
        let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
        drop(heard_tx.send(Heard::Signal(number)));
        // A loop that is well ends the process before that.
        let _ = runtime.block_on(async { tokio::time::timeout(PATIENCE, std::future::pending::<()>()).await });
        std::process::exit(i32::from(BY_SIGNAL.saturating_add(number)));
    });
    ready_rx.recv().unwrap_or_else(|_| Err(io::Error::other("no thread for signals")))
}
