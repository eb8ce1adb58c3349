//! Those that a scene tells what to do, each a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One of them.
pub(super) struct Party {
    name: &'static str,
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

pub(super) type Found<T> = Result<T, String>;

impl Party {
    pub(super) fn begin(name: &'static str) -> Found<Self> {
        Self::with(name, &[])
    }

    /// One with these variables, or without.
    pub(super) fn with(name: &'static str, variables: &[(&str, Option<&str>)]) -> Found<Self> {
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

    pub(super) fn tell(&mut self, line: &str) -> Found<()> {
        let to = self.to.as_mut().ok_or("it was let go")?;
        writeln!(to, "{line}").map_err(|_| self.has_ended(line))
    }

    /// How one has ended that reads or answers no more.
    fn has_ended(&mut self, line: &str) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("{}: {line}: it has ended: {status}", self.name)
    }

    /// The driver's code, and a word.
    pub(super) fn answer(&mut self, line: &str) -> Found<(u32, String)> {
        let mut text = String::new();
        let count = self.from.read_line(&mut text).map_err(|error| error.to_string())?;
        let parsed = text
            .trim_end_matches('\n')
            .split_once(' ')
            .and_then(|(code, word)| Some((code.parse().ok()?, word.to_owned())));
        match parsed {
            Some(answer) => Ok(answer),
            None if count > 0 => Err(format!("{}: {line}: it says {text:?}", self.name)),
            None => Err(self.has_ended(line)),
        }
    }

    pub(super) fn does(&mut self, line: &str) -> Found<(u32, String)> {
        self.tell(line)?;
        self.answer(line)
    }

    pub(super) fn is(&mut self, line: &str, code: u32, word: &str) -> Found<()> {
        let found = self.does(line)?;
        if found.0 == code && (code != 0 || found.1 == word) {
            return Ok(());
        }
        Err(format!("{}: {line}: {found:?} where {code} {word} is right", self.name))
    }

    pub(super) fn ok(&mut self, line: &str) -> Found<()> {
        self.is(line, 0, "")
    }

    /// It must have an error.
    pub(super) fn fails(&mut self, line: &str) -> Found<u32> {
        let found = self.does(line)?;
        if found.0 == 0 {
            Err(format!("{}: {line}: {found:?} where an error is right", self.name))
        } else {
            Ok(found.0)
        }
    }

    /// Does these lines one after the other. Whether one had the error that work was lost, which is told once.
    pub(super) fn all(&mut self, lines: &[&str]) -> Found<()> {
        lines.iter().try_for_each(|line| self.ok(line))
    }

    /// How many files it has open.
    pub(super) fn descriptors(&self) -> Found<usize> {
        let folder = format!("/proc/{}/fd", self.child.id());
        Ok(std::fs::read_dir(folder).map_err(|error| error.to_string())?.count())
    }

    pub(super) fn kill(&mut self) -> Found<()> {
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
pub(super) fn pair() -> Found<(Party, Party, String)> {
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
pub(super) fn round(owner: &mut Party, peer: &mut Party, key: u8) -> Found<()> {
    owner.all(&[&format!("fill {key}"), "record"])?;
    peer.ok("take")?;
    peer.is(&format!("look {key}"), 0, "right")
}

pub(super) fn event_of(handles: &str) -> &str {
    handles.split_once(' ').map_or("", |(_, event)| event)
}

/// A party has nothing more to be told of: what it does now has no error but one that was owed.
pub(super) fn hears(party: &mut Party) -> Found<()> {
    let found = party.does("finish")?;
    let again = party.does("finish")?;
    if again.0 == 0 { Ok(()) } else { Err(format!("{}: {found:?}, and then {again:?}", party.name)) }
}
