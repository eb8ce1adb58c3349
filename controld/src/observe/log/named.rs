//! The files of servers that somebody has named: `server.log` in a folder of the server's name, as release 615 has them.
//!
//! The file is there from the server's creation until somebody removes it: what a deleted server has said is wanted most
//! when it is gone. Where it can't be opened, and with `-f`, the server's lines go where those of all servers go.

use super::super::log_file::{LogFile, create_directory};
use super::{Destination, LogSink, Output, SERVER_LOG};
use std::io;

impl LogSink {
    /// Opens the file of a server. Its name is one of a folder, as the daemon's grammar has it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn open_named(&self, server: &str) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let Some(Destination { output: Output::File(shared), .. }) = &inner.server else {
            return Ok(());
        };
        let Some(directory) = shared.path().parent().map(|directory| directory.join(server)) else {
            return Ok(());
        };
        create_directory(&directory)?;
        let output = Output::File(LogFile::open(&directory.join(SERVER_LOG), shared.cap())?);
        inner.named.insert(server.to_owned(), Destination { output, lost: 0, trouble: None });
        Ok(())
    }

    /// Closes the files of servers that are none of these any more.
    pub(crate) fn keep_named(&self, is_wanted: impl Fn(&str) -> bool) {
        self.inner.lock().named.retain(|server, _| is_wanted(server));
    }
}
