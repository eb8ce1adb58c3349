//! What a Kubernetes cluster calls a container, from the names of its log files.
//!
//! A cgroup has the pod's UID and the container's ID, and no name. The kubelet keeps a link for each container,
//! `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`, which log collectors read for the same purpose; neither a pod's
//! name nor a namespace's has `_`. So names cost a look into one folder of this machine, and are there when the API server
//! is not. Root makes the links; whatever is otherwise is left out.

use crate::core::PodNames;
use std::fs;
use std::path::Path;

/// Files that are looked at. A node has 110 pods as a rule, and a link for each container and its last predecessor.
const MOST_FILES: usize = 8192;
/// Bytes that a name of a pod may have, and one of a namespace or container.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// The names of the container with this ID; `None` where nobody has noted them. Blocks.
pub(crate) fn find(folder: &Path, id: &str) -> Option<PodNames> {
    let entries = fs::read_dir(folder).ok()?.flatten().take(MOST_FILES);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).find_map(|name| parse(&name, id))
}

fn parse(file: &str, id: &str) -> Option<PodNames> {
    let rest = file.strip_suffix(".log")?.strip_suffix(id).filter(|_| !id.is_empty())?.strip_suffix('-')?;
    let mut parts = rest.split('_');
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    let sound = parts.next().is_none()
        && is_name(pod, LONGEST_NAME)
        && is_name(namespace, LONGEST_LABEL)
        && is_name(container, LONGEST_LABEL);
    let names = || PodNames { namespace: namespace.into(), pod_name: pod.into(), container_name: container.into() };
    sound.then(names)
}

/// Whether a text can be such a name: what is sent to an API server's path and shown in labels has no other letters.
fn is_name(text: &str, longest: usize) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=longest).contains(&text.len()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f5a0e6d1c2b";

    #[test]
    fn a_container_is_named_by_the_link_to_its_log() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["other-0_default_main-aaaa.log", "train-7f-abc_research_worker-4f5a0e6d1c2b.log", "nonsense.log"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names = find(folder.path(), ID).expect("it is there");
        assert_eq!((names.namespace.as_str(), names.pod_name.as_str()), ("research", "train-7f-abc"));
        assert_eq!(names.container_name, "worker");
        assert_eq!(find(folder.path(), "4f5a"), None);
        assert_eq!(find(folder.path(), ""), None);
        assert_eq!(find(Path::new("/nonexistent"), ID), None);
    }

    #[test]
    fn what_is_no_name_is_none() {
        for name in ["a_b_../../x-ID.log", "a_b-ID.log", "a_b_c_d-ID.log", "A_b_c-ID.log", "a__c-ID.log", "a_b_c-ID"] {
            assert_eq!(parse(name, "ID"), None, "{name}");
        }
        assert!(parse("a_b_c-ID.log", "ID").is_some());
    }
}
