//! What programs with the preload library get that say nothing, as a file beside the socket that they find: in the pipe
//! directory, in the folders of namespaces and in the directories of thin daemons.
//!
//! It appears whole. What can't be said is not there at all: nobody is left with what an earlier daemon had to say.

use super::folder::{Folder, Kind};
use nix::sys::stat::Mode;
use remps_proto::shim::DEFAULTS_NAME;
use std::io;
use std::path::PathBuf;

/// Everybody reads it.
const MODE: Mode = Mode::from_bits_truncate(0o644);

/// Writes the file with this content; where there is nothing to say, an earlier daemon's is taken away. What had the name
/// and is no file is somewhere else then, whose path is given.
///
/// # Errors
/// What the kernel says; then there is no such file.
pub(crate) fn tell(folder: &Folder, content: Option<&str>) -> io::Result<Option<PathBuf>> {
    let Some(content) = content else {
        take_away(folder);
        return Ok(None);
    };
    let written = folder.clear_way(DEFAULTS_NAME, Kind::File).and_then(|aside| {
        folder.write(DEFAULTS_NAME, MODE, content.as_bytes())?;
        Ok(aside)
    });
    written.inspect_err(|_| take_away(folder))
}

/// Takes away what a daemon has said.
pub(crate) fn take_away(folder: &Folder) {
    if let Ok(old) = folder.look(DEFAULTS_NAME) {
        // What can't be removed is somebody's who may do worse here, or a directory, which says nothing to anybody.
        folder.remove_same(DEFAULTS_NAME, old.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn what_is_said_is_read_by_everybody_and_nothing_of_an_earlier_daemon_stays() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is there");
        let file = place.path().join(DEFAULTS_NAME);
        assert_eq!(tell(&folder, Some("one\n")).expect("our folder"), None);
        assert_eq!(tell(&folder, Some("two\n")).expect("our folder"), None);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "two\n");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o7777, 0o644);
        assert_eq!(fs::read_dir(place.path()).expect("it is there").count(), 1, "nothing lies beside it");
        tell(&folder, None).expect("our folder");
        assert!(!file.exists());
    }

    #[test]
    fn a_link_in_its_place_is_written_to_by_nobody_and_a_directory_goes_aside() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is there");
        let (file, elsewhere) = (place.path().join(DEFAULTS_NAME), place.path().join("elsewhere"));
        fs::write(&elsewhere, "his").expect("our folder");
        symlink(&elsewhere, &file).expect("our folder");
        let aside = tell(&folder, Some("ours\n")).expect("our folder");
        assert!(aside.is_some_and(|aside| aside.is_symlink()));
        assert_eq!(fs::read_to_string(&elsewhere).expect("it is there"), "his");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "ours\n");
        fs::remove_file(&file).and_then(|()| fs::create_dir(&file)).expect("our folder");
        assert!(tell(&folder, Some("ours\n")).expect("our folder").is_some_and(|aside| aside.is_dir()));
        assert!(file.is_file());
    }
}
