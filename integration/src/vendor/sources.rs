//! The machine's own Debian package sources, with the components and the suite that carry the vendor's packages.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian's keys are when a one-line entry does not say.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The Debian release with driver 550.
const NEWER_SUITE: &str = "trixie";
const COMPONENTS: &str = "main contrib non-free";

/// One Debian archive of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    uris: String,
    suites: String,
    signed_by: String,
}

/// A sources file in the multi-line format, or `None` when the machine knows no Debian archive.
pub(super) fn with_vendor(etc_apt: &Path) -> Option<String> {
    let mut entries: Vec<Entry> =
        files(etc_apt)
            .iter()
            .filter_map(|path| Some((path, fs::read_to_string(path).ok()?)))
            .flat_map(|(path, text)| {
                if path.extension().is_some_and(|kind| kind == "sources") { stanzas(&text) } else { lines(&text) }
            })
            .collect();
    let main = entries.iter().find(|entry| !entry.uris.contains("security"))?.clone();
    entries.push(Entry { suites: NEWER_SUITE.to_owned(), ..main });
    let stanza = |entry: &Entry| {
        let Entry { uris, suites, signed_by } = entry;
        format!("Types: deb\nURIs: {uris}\nSuites: {suites}\nComponents: {COMPONENTS}\nSigned-By: {signed_by}\n")
    };
    Some(entries.iter().map(stanza).collect::<Vec<_>>().join("\n"))
}

fn files(etc_apt: &Path) -> Vec<PathBuf> {
    let mut files = vec![etc_apt.join("sources.list")];
    let parts = fs::read_dir(etc_apt.join("sources.list.d")).into_iter().flatten().flatten().map(|entry| entry.path());
    files.extend(parts.filter(|path| path.extension().is_some_and(|kind| kind == "list" || kind == "sources")));
    files.sort();
    files
}

/// Whether an archive is Debian's or a mirror of it: those of other programs have no vendor packages.
fn is_debian(uris: &str, components: &str) -> bool {
    uris.contains("/debian") && components.split_whitespace().any(|component| component == "main")
}

fn stanzas(text: &str) -> Vec<Entry> {
    let field = |stanza: &str, name: &str| {
        stanza.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    text.split("\n\n")
        .filter_map(|stanza| {
            let (uris, components) = (field(stanza, "URIs")?, field(stanza, "Components")?);
            let signed_by = field(stanza, "Signed-By").filter(|keys| !keys.is_empty());
            is_debian(&uris, &components).then(|| Entry {
                uris,
                suites: field(stanza, "Suites").unwrap_or_default(),
                signed_by: signed_by.unwrap_or_else(|| KEYRING.to_owned()),
            })
        })
        .collect()
}

fn lines(text: &str) -> Vec<Entry> {
    text.lines()
        .filter_map(|line| {
            let line = line.trim().strip_prefix("deb ")?.trim();
            let (options, rest) = match line.strip_prefix('[') {
                Some(rest) => rest.split_once(']')?,
                None => ("", line),
            };
            let mut words = rest.split_whitespace();
            let (uri, suite) = (words.next()?.to_owned(), words.next()?.to_owned());
            let components = words.collect::<Vec<_>>().join(" ");
            let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
            is_debian(&uri, &components).then(|| Entry {
                uris: uri,
                suites: suite,
                signed_by: signed_by.unwrap_or(KEYRING).to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_archives_are_taken_from_both_formats_and_others_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let parts = dir.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        let debian = "Types: deb\n# a note\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n\n\
                      Types: deb\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\nComponents: main\n";
        fs::write(parts.join("debian.sources"), debian).unwrap();
        fs::write(parts.join("other.sources"), "URIs: https://other.example/x\nSuites: y\nComponents: main\n").unwrap();
        fs::write(parts.join("old.sources.disabled"), debian).unwrap();
        fs::write(
            dir.path().join("sources.list"),
            "# deb http://no.example/debian a main\ndeb [signed-by=/k.gpg] http://one.example/debian sid main\n",
        )
        .unwrap();
        let text = with_vendor(dir.path()).unwrap();
        assert_eq!(text.matches("Components: main contrib non-free").count(), 4);
        assert!(text.contains("Suites: trixie") && text.contains("Suites: bookworm-security"));
        assert!(text.contains("Signed-By: /k.gpg") && !text.contains("other.example"));
        assert_eq!(with_vendor(&dir.path().join("absent")), None);
    }
}
