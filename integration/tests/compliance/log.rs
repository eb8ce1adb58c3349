//! The log FIFO is open to everybody: what is written there must not stop the daemon.

use integration::lab::{LIMIT, Lab, watch};
use integration::under_test::{for_each, only_ours, subjects};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// A record as a server writes it.
fn record(text: &str) -> Vec<u8> {
    const SERVER: u32 = 0xabcd_e001;
    // Pid, then year, month, day, weekday, hour, minute, second, millisecond.
    let numbers: [u32; 9] = [4711, 2026, 11, 20, 5, 12, 30, 45, 678];
    let mut bytes = SERVER.to_le_bytes().to_vec();
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

#[test]
fn ct_18_a_record_becomes_a_line_of_the_vendors_form() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let mut fifo = OpenOptions::new().write(true).open(lab.pipe_dir().join("log")).unwrap();
        fifo.write_all(&record("hello from a server")).unwrap();
        lab.wait_log("server.log", "[2026-11-20 12:30:45.678 Server  4711] hello from a server\n");
    });
}

/// Writes pieces until there is no room, or so many bytes are written; how many were.
fn fill(mut fifo: &File, piece: &[u8], most: usize) -> usize {
    let mut written = 0;
    while written < most {
        match fifo.write(piece) {
            Ok(length) => written += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    written
}

#[test]
fn ct_18_garbage_in_the_fifo_neither_blocks_the_daemon_nor_silences_the_log() {
    const FLOOD: usize = 1 << 20;
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let path = lab.pipe_dir().join("log");
        let fifo = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        (&fifo).write_all(&[0xa5; 4096]).unwrap();
        // A header that promises more than anybody may write.
        let mut promise = record("");
        let length_at = promise.len() - 8;
        promise[length_at..].copy_from_slice(&u64::MAX.to_le_bytes());
        (&fifo).write_all(&promise).unwrap();
        let piece = record(&"y".repeat(1000));
        let written = Cell::new(0);
        let emptied = watch::became_true(lab.pipe_dir(), lab.pipe_dir(), LIMIT, || {
            written.set(written.get() + fill(&fifo, &piece, FLOOD));
            written.get() >= FLOOD
        });
        assert!(emptied, "{subject}: the daemon does not empty the FIFO");
        // A writer that never stops is beside it while somebody asks.
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fill(&fifo, &piece, FLOOD);
                    std::thread::yield_now();
                }
            });
            let answer = lab.ask("get_default_client_priority\n");
            is_over.store(true, Ordering::Relaxed);
            flood.join().expect("it only writes");
            assert_eq!(answer, "0\n", "{subject}");
        });
        // As often as it takes: lines over the rate are suppressed, and the flood may have ended in the middle of one.
        let last = record("the last record");
        let logged = watch::became_true(lab.pipe_dir(), lab.log_dir(), LIMIT, || {
            let _ = (&fifo).write(&last);
            lab.log("server.log").contains("the last record")
        });
        assert!(logged, "{subject}: nothing is logged any more");
    });
}
