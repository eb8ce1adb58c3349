//! What is on the screen, and what keys change of it. Neither asks nor draws.

use super::gather::Seen;
use super::rows::{Kind, Row};
use super::table::{Order, chosen};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// Characters that a filter has at the most.
const LONGEST_FILTER: usize = 64;
/// Rows that Page Up and Page Down pass.
const PAGE: isize = 10;

/// What does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    pub colour: bool,
    /// Whether times are in UTC and not the local ones.
    pub utc: bool,
    /// Between two looks.
    pub interval: Duration,
}

/// What is known of the daemon.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Now {
    /// Nobody has answered yet.
    Asking,
    /// This.
    Seen(Box<Seen>),
    /// Nobody answers, and why.
    NoDaemon(String),
}

/// How a table is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub order: Order,
    /// Which row is marked; `None` or one that is gone is the first.
    pub marked: Option<String>,
}

/// The screen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    pub look: Look,
    pub now: Now,
    /// The table that keys are for.
    pub focus: Kind,
    views: [View; 3],
    pub filter: String,
    /// Whether keys are written into the filter.
    pub is_editing: bool,
    pub shows_help: bool,
    /// Whether answers are put aside until it goes on.
    pub is_held: bool,
}

/// What comes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// It goes on.
    On,
    /// The user has seen enough.
    Quit,
    /// The daemon is to be asked now.
    Ask,
}

impl State {
    /// Before anything is known.
    pub(super) fn new(look: Look) -> Self {
        let by_pid = View { order: Order { column: 0, is_reversed: false }, marked: None };
        Self {
            look,
            now: Now::Asking,
            focus: Kind::Clients,
            views: [by_pid.clone(), by_pid.clone(), by_pid],
            filter: String::new(),
            is_editing: false,
            shows_help: false,
            is_held: false,
        }
    }

    /// The daemon has said this, or nobody has. That nobody answers is shown also while the screen is held: a picture of
    /// a daemon that is gone is none of now.
    pub(super) fn hear(&mut self, answer: Result<Seen, String>) {
        match answer {
            Ok(seen) if !self.is_held || matches!(self.now, Now::NoDaemon(_)) => self.now = Now::Seen(Box::new(seen)),
            Ok(_) => {}
            Err(why) => self.now = Now::NoDaemon(why),
        }
    }

    /// How a table is looked at.
    pub(super) fn view(&self, kind: Kind) -> &View {
        &self.views[kind as usize]
    }

    fn focused(&mut self) -> &mut View {
        &mut self.views[self.focus as usize]
    }

    /// The rows that a table has after sorting and filtering.
    pub(super) fn rows(&self, kind: Kind) -> Vec<Row> {
        match &self.now {
            Now::Seen(seen) => chosen(seen.rows(kind), &self.filter, self.view(kind).order),
            Now::Asking | Now::NoDaemon(_) => Vec::new(),
        }
    }

    /// Which of these rows is marked.
    pub(super) fn marked(&self, kind: Kind, rows: &[Row]) -> usize {
        let marked = self.view(kind).marked.as_ref();
        marked.and_then(|id| rows.iter().position(|row| row.id == *id)).unwrap_or_default()
    }

    /// A key was pressed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys of a keyboard mean nothing here")]
    pub(super) fn key(&mut self, key: KeyEvent) -> After {
        if key.kind == KeyEventKind::Release {
            return After::On;
        }
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if with_control && matches!(key.code, KeyCode::Char('c' | 'C')) {
            return After::Quit;
        }
        if self.is_editing {
            self.edit(key.code, with_control);
            return After::On;
        }
        match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::F(10) => return After::Quit,
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = !self.shows_help,
            KeyCode::Char('/' | 'f') | KeyCode::F(4) => (self.is_editing, self.shows_help) = (true, false),
            KeyCode::Char(' ') => {
                self.is_held = !self.is_held;
                return if self.is_held { After::On } else { After::Ask };
            }
            KeyCode::Char('u') => return After::Ask,
            KeyCode::Char('r' | 'I') => {
                let order = &mut self.focused().order;
                order.is_reversed = !order.is_reversed;
            }
            KeyCode::Char('+') => self.focused().order.is_reversed = false,
            KeyCode::Char('-') => self.focused().order.is_reversed = true,
            KeyCode::Char('<' | ',') | KeyCode::Left => self.sort_beside(false),
            KeyCode::Char('>' | '.') | KeyCode::Right | KeyCode::F(6) => self.sort_beside(true),
            KeyCode::Char('P') => self.sort_by("PID", false),
            KeyCode::Char('M') => self.sort_by("GPU-MEM", true),
            KeyCode::Char('U') => self.sort_by("USER", false),
            KeyCode::Tab => self.focus_beside(1),
            KeyCode::BackTab => self.focus_beside(2),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(PAGE),
            KeyCode::PageUp => self.step(-PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            _ => {}
        }
        After::On
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most keys of a keyboard mean nothing here")]
    fn edit(&mut self, code: KeyCode, with_control: bool) {
        match code {
            KeyCode::Enter => self.is_editing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_editing = false;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char('u') if with_control => self.filter.clear(),
            KeyCode::Char(character)
                if !with_control && !character.is_control() && self.filter.chars().count() < LONGEST_FILTER =>
            {
                self.filter.push(character);
            }
            _ => {}
        }
    }

    fn sort_beside(&mut self, to_the_right: bool) {
        let count = self.focus.columns().len();
        let order = &mut self.focused().order;
        order.column = (order.column + if to_the_right { 1 } else { count - 1 }) % count;
    }

    fn sort_by(&mut self, name: &str, is_reversed: bool) {
        if let Some(column) = self.focus.columns().iter().position(|column| column.name == name) {
            self.focused().order = Order { column, is_reversed };
        }
    }

    fn focus_beside(&mut self, steps: usize) {
        self.focus = Kind::ALL[(self.focus as usize + steps) % Kind::ALL.len()];
    }

    fn step(&mut self, by: isize) {
        let rows = self.rows(self.focus);
        let last = rows.len().saturating_sub(1);
        let at = self.marked(self.focus, &rows).saturating_add_signed(by).min(last);
        self.focused().marked = rows.get(at).map(|row| row.id.clone());
    }
}
