//! A file whose closing takes an hour, sent to everybody who listens: the kernel closes what is left in a packet in the
//! process that takes it or throws it away.

use integration::lab::LIMIT;
use integration::lab::client::Connection;
use integration::lab::pace::Pace;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use remps_proto::mps::handshake::Role;
use std::fs;
use std::io::{ErrorKind, IoSlice, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

const ROOT: u32 = 0;
/// Packets of each sender: one that is taken and others that lie there.
const PACKETS: usize = 3;

/// A connection that lingers for an hour when it is closed, as long as the other one lives and does not read.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("every machine has itself");
    let mut sender = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (reader, _) = listener.accept().expect("somebody has connected");
    sender.set_nonblocking(true).expect("it is a socket");
    while sender.write(&[0; 65_536]).map_err(|error| error.kind()) != Err(ErrorKind::WouldBlock) {}
    sender.set_nonblocking(false).expect("it is a socket");
    linger(&sender, 3600);
    (sender, reader)
}

/// How long the last copy of a connection takes to close, in seconds.
fn linger(sender: &TcpStream, seconds: libc::c_int) {
    let linger = libc::linger { l_onoff: 1, l_linger: seconds };
    setsockopt(sender, sockopt::Linger, &linger).expect("it is a TCP socket");
}

/// Closes a copy. Where the kernel has let none through it is the last, and is to hold up nobody here; whoever was sent
/// one may have closed it already, and then this one is the last: it takes until its reader is gone.
fn close(sender: TcpStream, is_sent: bool) {
    if !is_sent {
        linger(&sender, 0);
    }
    let number = sender.as_raw_fd();
    let file = || fs::read_link(format!("/proc/self/fd/{number}")).ok();
    let own = file();
    thread::spawn(move || drop(sender));
    // A child that is begun before it is out of the table gets a copy, the last one of all, and closes it before it is a
    // program: that takes an hour as well.
    let deadline = Instant::now() + LIMIT;
    let mut pace = Pace::every(Duration::from_millis(1));
    while own.is_some() && file() == own {
        assert!(Instant::now() < deadline, "the thread does not begin to close");
        pace.wait();
    }
}

/// Sends the file beside each of some packets, as far as the kernel lets it, and keeps no copy of it.
fn sends(connection: &Connection) -> TcpStream {
    let (sender, reader) = lingering();
    // Refused by the kernel, which is as good as any answer, or taken.
    let sent = [0; PACKETS].map(|_| connection.send_with(&[7, 0, 0, 0], &[sender.as_fd()]).is_ok());
    close(sender, sent.contains(&true));
    reader
}

#[test]
fn a_file_that_takes_an_hour_to_close_holds_up_neither_the_daemon_nor_its_holder() {
    Stage::run(|stage| {
        let metrics = stage.lab().dir().join("metrics.sock");
        stage.config(&format!("[observe]\nlisten = \"unix:{}\"\n", metrics.display()));
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        let control = stage.pipe_dir().join("control");
        // Whoever has sent it goes at once, or stays and reads nothing.
        let mut staying = Vec::new();
        let mut readers = Vec::new();
        for role in [Role::UI, Role::CLIENT, Role::SERVER] {
            for stays in [true, false] {
                let connection = Connection::greeted(&control, role).expect("greeted");
                readers.push(sends(&connection));
                staying.extend(stays.then_some(connection));
            }
        }
        let silent = Connection::open(&control).expect("it listens");
        readers.push(sends(&silent));
        let shim = Connection::open(&stage.pipe_dir().join("shim")).expect("it listens");
        readers.push(sends(&shim));
        let (sender, reader) = lingering();
        readers.push(reader);
        let page = UnixStream::connect(&metrics).expect("it listens");
        let raw = [sender.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&raw)];
        let text = [IoSlice::new(b"GET /metrics HTTP/1.0\r\n\r\n")];
        let sent = sendmsg::<()>(page.as_raw_fd(), &text, &rights, MsgFlags::MSG_NOSIGNAL, None);
        close(sender, sent.is_ok());
        drop(page);
        drop((silent, shim));
        assert_eq!(stage.ask("get_default_client_priority\n").lines().count(), 1);
        client.ping();
        Program::attached(stage, ROOT).leave();
        let holder = stage.only(Part::Holder);
        client.leave();
        drop(staying);
        assert_eq!(stage.ask("quit\n"), "");
        assert!(stage.take_daemon().ended_within(LIMIT), "the daemon hangs");
        stage.lab().wait_gone(holder);
        drop(readers);
    });
}

#[test]
fn a_file_that_takes_an_hour_to_close_holds_up_no_holder_without_a_daemon() {
    Stage::run(|stage| {
        stage.start(&[]);
        let mut client = Program::attached(stage, ROOT);
        let connection = Connection::greeted(&stage.pipe_dir().join("control"), Role::CLIENT).expect("greeted");
        stage.kill_daemon();
        let reader = sends(&connection);
        drop(connection);
        stage.start(&[]);
        client.ping();
        client.leave();
        assert_eq!(stage.ask("quit\n"), "");
        assert!(stage.take_daemon().ended_within(LIMIT), "the daemon hangs");
        drop(reader);
    });
}
