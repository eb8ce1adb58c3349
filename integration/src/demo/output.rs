//! Where things go: lines to the terminal as it is, the picture to a file that may be written.

use super::text::Look;
use super::timeline::MARK;
use std::fs::{self, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The picture's name where none is asked for.
const NAME: &str = "demo.svg";
/// Anybody may look at it.
const MODE: u32 = 0o644;

/// What standard output is.
pub(super) fn look() -> Look {
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    Look {
        columns: is_terminal.then(|| columns(&stdout)).flatten(),
        has_colours: is_terminal && !is_set("NO_COLOR") && !is_dumb,
    }
}

/// The terminal's width; `None` when it does not tell.
#[expect(unsafe_code, reason = "TIOCGWINSZ has no safe wrapper")]
fn columns(terminal: &impl std::os::fd::AsRawFd) -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request fills a structure of this type, which is a local.
    let answer = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then(|| size.ws_col.into())
}

/// Writes the picture where it was asked for, or as `demo.svg` into the current folder, or, where that may not be
/// written or has a file of this name that is not ours, under a new name among the temporary files. Gives the path.
///
/// # Errors
/// When it can't be had anywhere, or not where it was asked for.
pub(super) fn save(picture: &str, wanted: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(path) = wanted {
        return put(picture, path);
    }
    let here = std::env::current_dir().map(|folder| folder.join(NAME));
    if let Ok(path) = here
        && is_free(&path)
        && let Ok(path) = put(picture, &path)
    {
        return Ok(path);
    }
    let mut file = tempfile::Builder::new().prefix("mps-demo-").suffix(".svg").tempfile()?;
    file.write_all(picture.as_bytes())?;
    let (file, path) = file.keep().map_err(|error| error.error)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    Ok(path)
}

/// Whether nothing is lost when this is written over. What can't be read, or is no plain file, is somebody's.
fn is_free(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(found) => found.is_file() && fs::read_to_string(path).is_ok_and(|text| text.contains(MARK)),
    }
}

/// Writes beside it and renames: nobody sees half of it, and a link in its place leads nowhere.
fn put(picture: &str, path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(picture.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_somebody_elses_is_not_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        assert!(is_free(&path));
        put(MARK, &path).expect("it is ours");
        assert!(is_free(&path), "an older picture is");
        fs::write(&path, "my own").expect("it is ours");
        assert!(!is_free(&path));
        fs::remove_file(&path).expect("it is ours");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("it is ours");
        assert!(!is_free(&path));
    }

    #[test]
    fn a_picture_goes_where_it_is_asked_for_or_says_why_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("wanted.svg");
        assert_eq!(save("picture", Some(&path)).expect("it is ours"), path);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "picture");
        assert!(save("picture", Some(&folder.path().join("none/wanted.svg"))).is_err());
    }
}
