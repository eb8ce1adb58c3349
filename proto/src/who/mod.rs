//! Who a process is, as the daemon and the preload library both read it: the cgroup that says most, the label, and
//! whether a table `[[domain]]` is meant for it.
//!
//! Both go by the same text, so that they agree on which table a program is in. Nothing here is proof: an environment is
//! what the process made of it.

mod cgroup;
mod names;

pub use cgroup::Cgroups;
pub use names::{Names, Reach};

/// The variable that names a client's fault domain.
pub const LABEL_VARIABLE: &str = "MPS_DOMAIN";
/// Longest label in bytes.
pub const MAX_LABEL: usize = 128;
/// Bytes of an environment that are searched for it. The kernel lets it have a quarter of the stack's limit, 2 MiB as a
/// rule.
pub const MAX_ENVIRONMENT: usize = 4 << 20;

/// A label that is too long, no text, or has control characters: whoever has it is taken to have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadLabel;

/// Whether a text can be a label.
#[must_use]
pub fn is_label(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_LABEL && !text.chars().any(char::is_control)
}

/// The label, if a variable of an environment is its. An empty one is none.
///
/// # Errors
/// [`BadLabel`].
pub fn label(variable: &[u8]) -> Result<Option<&str>, BadLabel> {
    let value = variable.strip_prefix(LABEL_VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    core::str::from_utf8(value).ok().filter(|text| is_label(text)).map(Some).ok_or(BadLabel)
}

/// The label that an environment has, as `/proc/PID/environ` shows it: the first, and none where that is a bad one.
#[must_use]
pub fn label_in(environment: &[u8]) -> Option<&str> {
    let environment = environment.get(..MAX_ENVIRONMENT).unwrap_or(environment);
    environment.split(|byte| *byte == 0).map(label).find_map(Result::transpose)?.ok()
}

/// Which clients a table `[[domain]]` is for: those that fit everything it names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Match {
    /// The user.
    pub uid: Option<u32>,
    /// `MPS_DOMAIN` of the client's environment.
    pub label: Option<String>,
    /// The client's cgroup or one that it is below, as `/kubepods.slice`.
    pub cgroup: Option<String>,
}

impl Match {
    /// Whether a client is meant.
    #[must_use]
    pub fn fits(&self, uid: u32, label: Option<&str>, cgroup: &str) -> bool {
        self.fits_as_known(|| Some(uid), || Some(label), || Some(cgroup)) == Some(true)
    }

    /// Whether a client is meant of whom not all is known; `None` where that hangs on what is not. What the table does not
    /// go by is not asked.
    #[must_use]
    pub fn fits_as_known<'a>(
        &self,
        uid: impl FnOnce() -> Option<u32>,
        label: impl FnOnce() -> Option<Option<&'a str>>,
        cgroup: impl FnOnce() -> Option<&'a str>,
    ) -> Option<bool> {
        let verdicts = [
            self.uid.map_or(Some(true), |wanted| uid().map(|uid| uid == wanted)),
            self.label.as_deref().map_or(Some(true), |wanted| label().map(|label| label == Some(wanted))),
            self.cgroup.as_deref().map_or(Some(true), |wanted| cgroup().map(|cgroup| is_within(cgroup, wanted))),
        ];
        if verdicts.contains(&Some(false)) {
            return Some(false);
        }
        (!verdicts.contains(&None)).then_some(true)
    }
}

/// Whether a cgroup is another one or below it: `/a/b` is within `/a`, `/ab` is not.
fn is_within(cgroup: &str, ancestor: &str) -> bool {
    cgroup.strip_prefix(ancestor.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_label_counts_and_a_bad_one_is_none() {
        assert_eq!(label_in(b"A=1\0MPS_DOMAIN=\0MPS_DOMAIN=one\0MPS_DOMAIN=two\0"), Some("one"));
        assert_eq!(label_in(b"MPS_DOMAINS=x\0XMPS_DOMAIN=y\0MPS_DOMAIN"), None);
        let long = format!("MPS_DOMAIN={}\0MPS_DOMAIN=two\0", "x".repeat(MAX_LABEL + 1));
        for bad in [long.as_bytes(), b"MPS_DOMAIN=a\nb\0MPS_DOMAIN=two\0", b"MPS_DOMAIN=\xff\0MPS_DOMAIN=two\0"] {
            assert_eq!(label_in(bad), None);
        }
        let late = [vec![b'x'; MAX_ENVIRONMENT], b"\0MPS_DOMAIN=late\0".to_vec()].concat();
        assert_eq!(label_in(&late), None);
    }

    #[test]
    fn what_is_not_known_leaves_open_only_what_hangs_on_it() {
        let table = Match { uid: Some(7), label: None, cgroup: Some("/a/".to_owned()) };
        let fits = |uid, cgroup| table.fits_as_known(|| uid, || panic!("it names no label"), || cgroup);
        assert_eq!(fits(Some(7), Some("/a/b")), Some(true));
        assert_eq!([fits(Some(8), None), fits(None, Some("/ab"))], [Some(false); 2]);
        assert_eq!([fits(Some(7), None), fits(None, Some("/a"))], [None; 2]);
    }
}
