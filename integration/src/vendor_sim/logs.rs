//! The two log files: the daemon's own lines, and those that servers write into the FIFO.

use crate::server_sim::log::local_time;
use remps_proto::mps::log::{Decoder, Record, Source};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

/// Both files.
#[derive(Debug)]
pub(super) struct Log {
    control: Mutex<File>,
    server: Mutex<File>,
}

impl Log {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let open = |name: &str| OpenOptions::new().create(true).append(true).open(directory.join(name)).map(Mutex::new);
        Ok(Self { control: open("control.log")?, server: open("server.log")? })
    }

    /// Copies what comes out of the FIFO into `server.log`, on a thread of its own.
    pub(super) fn follow(self: &std::sync::Arc<Self>, fifo: &Path) -> io::Result<()> {
        // For writing too, so that it never ends and no server waits for a reader.
        let mut fifo = OpenOptions::new().read(true).write(true).open(fifo)?;
        let log = std::sync::Arc::clone(self);
        std::thread::spawn(move || {
            let (mut decoder, mut piece) = (Decoder::default(), [0; 4096]);
            while let Ok(length @ 1..) = fifo.read(&mut piece) {
                decoder.push(&piece[..length]);
                decoder.by_ref().for_each(|record| write(&log.server, &record));
            }
        });
        Ok(())
    }

    /// Says something of the daemon's own.
    pub(super) fn say(&self, text: &str) {
        let time = local_time(SystemTime::now());
        let record = Record { source: Source::CONTROL, pid: std::process::id(), time, text: text.as_bytes().to_vec() };
        write(&self.control, &record);
    }
}

fn write(file: &Mutex<File>, record: &Record) {
    let line = record.line() + "\n";
    // A full disk costs the log and nothing else.
    let _ = file.lock().expect("nobody panics with it").write_all(line.as_bytes());
}
