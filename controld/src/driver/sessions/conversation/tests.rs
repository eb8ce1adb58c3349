//! Sessions that follow events, with the command line's end of the socket in the test.

use super::*;
use crate::core::JournalEvent;
use crate::io::seqpacket::pair;
use crate::observe::journal::followers::Followers;
use crate::observe::journal::recent::Remembered;
use crate::observe::journal::{Stamp, timestamp};
use crate::report::Viewer;
use remps_proto::admin::{Form, Output};
use std::time::SystemTime;
use tokio::task::JoinHandle;

const OWNER: Viewer = Viewer { uid: 0, privileged: true, within: None };
const PATIENCE: Duration = Duration::from_secs(120);

struct CommandLine {
    socket: SeqPacket,
    answers_tx: mpsc::UnboundedSender<ToSession>,
    events_rx: mpsc::Receiver<Event>,
    followers: Followers,
    session: JoinHandle<()>,
}

impl CommandLine {
    /// A session that has asked for events and gets them.
    async fn following() -> Self {
        let (near, far) = pair().unwrap();
        let (socket, theirs) = (SeqPacket::new(near).unwrap(), Arc::new(SeqPacket::new(far).unwrap()));
        let (events, events_rx) = Events::channel();
        let (answers_tx, mut answers_rx) = mpsc::unbounded_channel();
        let session = tokio::spawn(async move {
            let _ = converse(SessionId(1), &theirs, &events, &mut answers_rx).await;
        });
        let mut line = Self { socket, answers_tx, events_rx, followers: Followers::default(), session };
        line.command(b"events --follow\0").await;
        let following = line.followers.add(OWNER, Output { form: Form::Json, utc: false }).expect("room");
        line.answers_tx.send(ToSession::Follow(vec!["before".to_owned()], following)).unwrap();
        assert_eq!(line.output().await, "before");
        line
    }

    async fn command(&mut self, command: &[u8]) {
        self.socket.send(&Announcement::Command(command.len()).encode(), None).unwrap();
        self.socket.send(command, None).unwrap();
        let event = timeout(PATIENCE, self.events_rx.recv()).await.expect("in time").expect("an event");
        assert!(matches!(event, Event::Command { line, .. } if line == command));
    }

    async fn packet(&self) -> Option<FromDaemon> {
        let packet = timeout(PATIENCE, self.socket.receive(8192)).await.expect("in time").unwrap()?;
        Some(FromDaemon::decode(&packet.bytes).unwrap())
    }

    async fn output(&self) -> String {
        match self.packet().await {
            Some(FromDaemon::Output(text)) => String::from_utf8(text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn record(&mut self, text: &str) {
        let event = JournalEvent::WitnessMissing { witness: "xid", process: None, text: text.to_owned() };
        let stamp = Stamp { seq: 1, time: timestamp(SystemTime::now()) };
        let line = stamp.line(&event);
        self.followers.tell(&Remembered::own(stamp, event, line));
    }

    async fn ended(self) {
        drop(self.socket);
        timeout(PATIENCE, self.session).await.expect("in time").unwrap();
    }
}

#[tokio::test]
async fn the_end_of_the_commands_ends_no_follower_and_closing_does() {
    let mut line = CommandLine::following().await;
    line.socket.send(&Announcement::End.encode(), None).unwrap();
    for text in ["first", "second"] {
        line.record(text);
        assert!(line.output().await.contains(text));
    }
    line.ended().await;
}

#[tokio::test]
async fn a_command_ends_the_following_and_is_answered() {
    let mut line = CommandLine::following().await;
    line.command(b"ps\0").await;
    line.record("nobody follows");
    line.answers_tx.send(ToSession::Answer(vec!["Server not found".to_owned()])).unwrap();
    assert_eq!(line.output().await, "Server not found");
    assert_eq!(line.followers.count(), 0);
    line.ended().await;
}

#[tokio::test]
async fn the_reason_of_a_failure_is_marked_before_the_answer() {
    let mut line = CommandLine::following().await;
    line.command(b"status --exit-code\0").await;
    let (answer, reason) = (vec!["not ready".to_owned()], vec!["x".repeat(5000)]);
    line.answers_tx.send(ToSession::Failure { answer, reason }).unwrap();
    assert_eq!(line.packet().await, Some(FromDaemon::Failed(2)), "a long line is two packets");
    assert_eq!(line.output().await.len() + line.output().await.len(), 5000);
    assert_eq!(line.output().await, "not ready");
    line.ended().await;
}

#[tokio::test]
async fn a_follower_that_is_too_slow_is_told_so_at_the_end() {
    let mut line = CommandLine::following().await;
    let text = "x".repeat(3000);
    while line.followers.count() > 0 {
        line.record(&text);
        // The session fills its socket first, and then the queue fills.
        tokio::task::yield_now().await;
    }
    let mut last = None;
    let status = loop {
        match line.packet().await {
            Some(FromDaemon::Output(text)) => last = Some(String::from_utf8(text).unwrap()),
            Some(FromDaemon::End(status)) => break status,
            Some(FromDaemon::Failed(_)) => panic!("no command failed"),
            None => panic!("closed without an end"),
        }
    };
    assert_eq!((last.as_deref(), status), (Some(CUT_OFF), 1));
    line.ended().await;
}

#[tokio::test]
async fn followers_hear_of_the_daemons_end_and_of_what_came_before() {
    let mut line = CommandLine::following().await;
    line.record("last words");
    line.answers_tx.send(ToSession::End(3)).unwrap();
    assert!(line.output().await.contains("last words"));
    assert_eq!(line.packet().await, Some(FromDaemon::End(3)));
    line.ended().await;
}
