//! Who the program is to a daemon, before it can be asked: its user, its label and its cgroup, as the daemon will read
//! them when the program connects.
//!
//! Nobody but the program itself is concerned when this is wrong. The label is read where the daemon reads it, in the
//! environment that the program was started with, and not where the program may have changed it since.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::MetadataExt,
};

use remps_proto::{
    shim::Program,
    who::{Cgroups, MAX_ENVIRONMENT, label_in},
};

use super::user;

/// The environment that the program was started with.
const ENVIRONMENT: &str = "/proc/self/environ";
/// Its cgroups.
const CGROUPS: &str = "/proc/self/cgroup";
/// Which cgroup namespace it is in.
const CGROUP_NAMESPACE: &str = "/proc/self/ns/cgroup";
/// A path for each hierarchy, of which there are a dozen.
const MOST_CGROUPS: usize = 256 << 10;

/// This process.
pub(super) struct This;

impl Program for This {
    fn uid(&self, namespace: Option<u64>) -> Option<u32> {
        user::known_in(namespace)
    }

    fn label(&self) -> Option<Option<String>> {
        let environment = read(ENVIRONMENT, MAX_ENVIRONMENT)?;
        Some(label_in(&environment).map(str::to_owned))
    }

    fn cgroup(&self, namespace: Option<u64>) -> Option<String> {
        // A kernel without such namespaces shows everybody the whole path. In another one than the daemon's a program sees
        // a part of it, and nothing tells which.
        let own = fs::metadata(CGROUP_NAMESPACE).ok().map(|found| found.ino());
        if own != namespace {
            return None;
        }
        let text = String::from_utf8(read(CGROUPS, MOST_CGROUPS)?).ok()?;
        Some(Cgroups::parse(&text).telling().0)
    }
}

/// As much of a file as that.
fn read(path: &str, most: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_known_in_ones_own_namespace_alone() {
        let own = fs::metadata(CGROUP_NAMESPACE).ok().map(|found| found.ino());
        let cgroup = This.cgroup(own).unwrap();
        assert!(cgroup.starts_with('/'), "{cgroup}");
        assert!(fs::read_to_string(CGROUPS).unwrap().contains(&cgroup));
        assert_eq!(This.cgroup(Some(own.unwrap_or_default() + 1)), None);
    }
}
