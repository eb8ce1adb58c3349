//! One record: a file that says what a GPU's compute mode was, and who is believed about that.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag, fstat};
use serde::{Deserialize, Serialize};

use crate::io::folder::Folder;
use crate::io::folder::way;
use crate::sys::proc::{BOOT_ID, path_of};

/// Files of records begin so; the GPU's UUID follows.
pub(crate) const PREFIX: &str = "compute-mode.";
/// Nobody else needs to read one, and who can't open it can't lock it.
const MODE: Mode = Mode::from_bits_truncate(0o600);
/// Bytes of a record; a whole one has fewer than 300.
const MOST_BYTES: u64 = 4096;
/// Bytes of a UUID, as the management library has room for.
const MOST_UUID_BYTES: usize = 96;
/// Modes that a daemon changes, and so gives back: `EXCLUSIVE_THREAD` and `EXCLUSIVE_PROCESS`.
const CHANGED_MODES: [u32; 2] = [1, 3];

/// What a GPU's mode was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The machine's boot; the mode does not outlive it.
    boot: String,
    /// `GPU-…`.
    gpu: String,
    /// The number of the mode that it had.
    pub mode: u32,
    /// When it was changed, in seconds since 1970.
    at: u64,
}

impl Record {
    /// The record of a change that is made now, as text.
    pub(super) fn now(uuid: &str, mode: u32) -> io::Result<Vec<u8>> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let record = Self { boot: boot()?, gpu: uuid.to_owned(), mode, at };
        Ok(serde_json::to_vec(&record).expect("plain data"))
    }

    /// When the mode was changed, as text.
    pub(crate) fn at(&self) -> String {
        // What the clock can't have said is shown as its beginning.
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(self.at)).filter(|_| self.at < 1 << 35);
        humantime::format_rfc3339_seconds(at.unwrap_or(UNIX_EPOCH)).to_string()
    }
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoRecord {
    /// No file has the name.
    #[error("there is none")]
    Missing,
    /// The file is of an earlier boot.
    #[error("the machine has been started anew since, and modes do not outlive that")]
    EarlierBoot,
    /// The file is not one of this program's.
    #[error("{0}")]
    Untrusted(&'static str),
    /// It can't be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

pub(super) fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

/// The name of a GPU's record; `None` for what is no UUID.
pub(super) fn name_of(uuid: &str) -> Option<String> {
    let is_uuid = uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_uuid && !uuid.is_empty() && uuid.len() <= MOST_UUID_BYTES).then(|| format!("{PREFIX}{uuid}"))
}

/// The GPUs of which a folder has something with the name of a record.
pub(crate) fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(path_of(folder)).into_iter().flatten().flatten();
    let uuid = |name: &OsStr| name.to_str()?.strip_prefix(PREFIX).map(str::to_owned);
    let mut found: Vec<String> = entries.filter_map(|entry| uuid(&entry.file_name())).collect();
    found.retain(|uuid| name_of(uuid).is_some());
    found.sort();
    found
}

/// Reads a GPU's record, and gives the file that it is in.
///
/// # Errors
/// [`NoRecord`].
pub(crate) fn read(folder: &Folder, uuid: &str) -> Result<(Record, File), NoRecord> {
    let name = name_of(uuid).ok_or(NoRecord::Missing)?;
    let file = match folder.open_file(&name, OFlag::O_RDONLY, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::ENOENT) => return Err(NoRecord::Missing),
        Err(Errno::ELOOP) => return Err(NoRecord::Untrusted("it is a link")),
        Err(error) => return Err(NoRecord::Io(error.into())),
    };
    let found = fstat(&file).map_err(io::Error::from)?;
    if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(NoRecord::Untrusted("it is no regular file"));
    }
    if !way::is_trusted(found.st_uid) {
        return Err(NoRecord::Untrusted("it is another user's"));
    }
    // In a folder of its own another name can only be that of a file that is just being made.
    let has_other_name = found.st_nlink > 1 && way::is_shared(&fstat(folder).map_err(io::Error::from)?);
    if found.st_mode & way::OTHERS_WRITE != 0 || has_other_name {
        return Err(NoRecord::Untrusted("somebody else can write to it or has another name for it"));
    }
    let mut text = Vec::new();
    (&file).take(MOST_BYTES).read_to_end(&mut text)?;
    let record: Record = serde_json::from_slice(&text).map_err(|_| NoRecord::Untrusted("it is not whole"))?;
    if record.boot != boot()? {
        return Err(NoRecord::EarlierBoot);
    }
    let is_ours = record.gpu == uuid && CHANGED_MODES.contains(&record.mode);
    if is_ours { Ok((record, file)) } else { Err(NoRecord::Untrusted("it says what no daemon writes")) }
}

/// Makes a file of this text that was not there.
pub(super) fn write(folder: &Folder, name: &str, text: &[u8]) -> io::Result<File> {
    let mut file = folder.create(name, MODE)?;
    file.write_all(text).map(|()| file).inspect_err(|_| {
        let _ = folder.remove(name);
    })
}

/// What is to be said of a file that is not believed.
pub(super) fn not_believed(folder: &Folder, uuid: &str, why: &NoRecord) -> String {
    let path = folder.file(&format!("{PREFIX}{uuid}"));
    let advice = match why {
        NoRecord::EarlierBoot => "",
        NoRecord::Missing | NoRecord::Untrusted(_) | NoRecord::Io(_) => {
            "; if the GPU was in an exclusive compute mode before, nvidia-smi -c sets it again"
        }
    };
    format!("No compute mode is given back after {}: {why}{advice}", path.display())
}
