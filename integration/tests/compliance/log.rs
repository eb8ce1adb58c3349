//! The log FIFO is open to everybody: what is written there must not stop the daemon.

use integration::lab::Lab;
use integration::under_test::{for_each, only_ours, subjects};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

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

#[test]
fn ct_18_garbage_in_the_fifo_neither_blocks_the_daemon_nor_silences_the_log() {
    const ANSWER_LIMIT: Duration = Duration::from_secs(1);
    const FLOOD: usize = 1 << 20;
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        let path = lab.pipe_dir().join("log");
        let mut fifo = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        fifo.write_all(&[0xa5; 4096]).unwrap();
        // A header that promises more than anybody may write.
        let mut promise = record("");
        let length_at = promise.len() - 8;
        promise[length_at..].copy_from_slice(&u64::MAX.to_le_bytes());
        fifo.write_all(&promise).unwrap();
        let piece = record(&"y".repeat(1000));
        let mut written = 0;
        let flood_ends = Instant::now() + Duration::from_secs(10);
        while written < FLOOD && Instant::now() < flood_ends {
            match fifo.write(&piece) {
                Ok(length) => written += length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{subject}: {error}"),
            }
        }
        assert!(written >= FLOOD, "{subject}: the daemon does not empty the FIFO");
        let asked = Instant::now();
        assert_eq!(lab.ask("get_default_client_priority\n"), "0\n", "{subject}");
        assert!(asked.elapsed() < ANSWER_LIMIT, "{subject}: {:?}", asked.elapsed());
        let last = record("the last record");
        let until = Instant::now() + Duration::from_secs(10);
        while fifo.write_all(&last).is_err() && Instant::now() < until {
            std::thread::yield_now();
        }
        lab.wait_log("server.log", "the last record");
    });
}
