use std::io::Read;
use std::os::unix::net::{UnixDatagram, UnixStream};

use super::*;
use crate::io::ends;

const LINE: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n";

fn pipe() -> (File, OwnedFd) {
    let (reader, writer) = ends::pipe();
    (reader.into(), writer)
}

/// Appends lines until one is refused; gives how many were taken.
fn fill(stream: &mut LogStream) -> usize {
    let mut taken = 0;
    loop {
        match stream.append(LINE) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                return taken;
            }
        }
    }
}

/// What a reader gets, with only whole lines accepted.
fn count_whole_lines(bytes: &[u8]) -> usize {
    let mut lines = bytes.chunks_exact(LINE.len());
    assert!(lines.by_ref().all(|line| line == LINE) && lines.remainder().is_empty(), "a line was torn");
    bytes.len() / LINE.len()
}

fn a_stuck_reader_loses_lines_and_gets_no_torn_one(mut reader: impl Read, mut stream: LogStream) {
    // An odd piece first, so that the end of the room falls inside a line.
    stream.append(b"odd\n").unwrap();
    let taken = fill(&mut stream);
    assert!(taken > 10);
    let mut odd = [0; 4];
    reader.read_exact(&mut odd).unwrap();
    let mut bytes = vec![0; 64 * LINE.len()];
    reader.read_exact(&mut bytes).unwrap();
    stream.append(LINE).unwrap();
    drop(stream);
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(count_whole_lines(&bytes), taken + 1);
}

#[test]
fn a_stuck_pipe_loses_lines_and_never_blocks() {
    let (reader, writer) = pipe();
    let stream = LogStream::new(&writer).unwrap();
    assert!(matches!(stream.way, Way::Write(_)));
    drop(writer);
    a_stuck_reader_loses_lines_and_gets_no_torn_one(reader, stream);
}

#[test]
fn a_stuck_pipe_that_cannot_be_opened_anew_loses_lines_and_never_blocks() {
    let (reader, writer) = pipe();
    let stream = LogStream { way: Way::Poll(writer.into()), rest: Vec::new() };
    a_stuck_reader_loses_lines_and_gets_no_torn_one(reader, stream);
}

#[test]
fn a_stuck_socket_loses_lines_and_never_blocks() {
    let (reader, writer) = UnixStream::pair().unwrap();
    let stream = LogStream::new(&writer).unwrap();
    drop(writer);
    a_stuck_reader_loses_lines_and_gets_no_torn_one(reader, stream);
}

#[test]
fn the_flags_of_a_shared_pipe_are_left_alone() {
    let (_reader, writer) = pipe();
    let _stream = LogStream::new(&writer).unwrap();
    let flags = nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_GETFL).unwrap();
    assert_eq!(flags & libc::O_NONBLOCK, 0);
}

#[test]
fn a_closed_reader_is_an_error_and_no_signal() {
    let (reader, writer) = pipe();
    let mut stream = LogStream::new(&writer).unwrap();
    drop(reader);
    ends::wait_for_hangup(&writer);
    assert_eq!(stream.append(LINE).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let (reader, writer) = UnixStream::pair().unwrap();
    let mut stream = LogStream::new(&writer).unwrap();
    drop(reader);
    ends::wait_for_hangup(&writer);
    assert_eq!(stream.append(LINE).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    // A socket that was never connected.
    let mut stream = LogStream::new(UnixDatagram::unbound().unwrap()).unwrap();
    stream.append(LINE).unwrap_err();
}

#[test]
fn a_file_is_written_on_at_the_offset_that_it_is_shared_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let mut shared = File::create(&path).unwrap();
    shared.write_all(b"before\n").unwrap();
    LogStream::new(&shared).unwrap().append(LINE).unwrap();
    shared.write_all(b"after\n").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [b"before\n", LINE, b"after\n"].concat());
}
