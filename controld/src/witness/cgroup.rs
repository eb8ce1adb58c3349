//! The counter of kills for want of memory of a process's cgroup.

use std::path::{Path, PathBuf};

use remps_proto::who::Cgroups;

use crate::sys::proc::OWN_MOUNTS;

/// The line of a counter file that counts kills; the same in `memory.events` and in `memory.oom_control`.
const KILLS: &str = "oom_kill ";

/// Where the hierarchies are mounted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Mounts {
    unified: Option<PathBuf>,
    memory: Option<PathBuf>,
}

impl Mounts {
    /// Reads `/proc/self/mountinfo`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut mounts = Self::default();
        for line in text.lines() {
            // `ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS … - TYPE SOURCE OPTIONS`
            let Some((place, kind)) = line.split_once(" - ") else { continue };
            let mut place = place.split(' ').skip(3);
            let (Some(root), Some(point)) = (place.next(), place.next()) else { continue };
            let mut kind = kind.split(' ');
            let (kind, options) = (kind.next().unwrap_or_default(), kind.nth(1).unwrap_or_default());
            // A part of a hierarchy, mounted into a container, would be taken for the whole of it.
            if root != "/" {
                continue;
            }
            let found = match kind {
                "cgroup2" => &mut mounts.unified,
                "cgroup" if options.split(',').any(|option| option == "memory") => &mut mounts.memory,
                _ => continue,
            };
            found.get_or_insert_with(|| Path::new(point).to_owned());
        }
        mounts
    }

    /// The file that counts kills for want of memory in a process's cgroup; `None` for the root, which has none, and
    /// for a cgroup outside of what this process can see.
    pub(crate) fn kill_counter(&self, cgroups: &Cgroups) -> Option<PathBuf> {
        let (mount, path, file) = match cgroups.legacy("memory") {
            Some(path) => (self.memory.as_ref()?, path, "memory.oom_control"),
            None => (self.unified.as_ref()?, cgroups.unified()?, "memory.events"),
        };
        let relative = path.strip_prefix('/').filter(|path| !path.is_empty())?;
        if relative.split('/').any(|part| part == "..") {
            return None;
        }
        Some(mount.join(relative).join(file))
    }

    /// Where they are mounted for this process.
    pub(crate) fn read() -> Self {
        std::fs::read_to_string(OWN_MOUNTS).map(|text| Self::parse(&text)).unwrap_or_default()
    }
}

/// The number of kills in a counter file.
pub(crate) fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(KILLS))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "2403ccfe427f1dc7b6120dccb9ac58c2f8456950380d587a9f33ea7f00dd303d";

    const HYBRID_MOUNTS: &str = "\
25 1 8:1 / / rw - ext4 /dev/root rw
30 25 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
35 30 0:30 /docker/abc /mnt rw - cgroup cgroup rw,memory
";

    #[test]
    fn version_2_has_one_path_and_one_counter() {
        let cgroups = Cgroups::parse("0::/system.slice/docker-x.scope\n");
        assert_eq!(cgroups.telling().0, "/system.slice/docker-x.scope");
        let mounts = Mounts::parse("31 30 0:27 / /sys/fs/cgroup rw,nosuid shared:5 - cgroup2 cgroup2 rw\n");
        let counter = mounts.kill_counter(&cgroups).unwrap();
        assert_eq!(counter, Path::new("/sys/fs/cgroup/system.slice/docker-x.scope/memory.events"));
    }

    #[test]
    fn on_a_hybrid_system_the_line_that_names_the_container_counts() {
        let text = format!(
            "12:net_cls,net_prio:/docker/{ID}\n8:memory:/docker/{ID}\n1:name=systemd:/\n0::/system.slice/containerd.service\n"
        );
        let cgroups = Cgroups::parse(&text);
        let (path, names) = cgroups.telling();
        assert_eq!(path, format!("/docker/{ID}"));
        assert_eq!(names.container.as_deref(), Some(ID));
        let counter = Mounts::parse(HYBRID_MOUNTS).kill_counter(&cgroups).unwrap();
        assert_eq!(counter, PathBuf::from(format!("/sys/fs/cgroup/memory/docker/{ID}/memory.oom_control")));
    }

    #[test]
    fn a_cgroup_out_of_sight_has_no_counter() {
        let mounts = Mounts::parse(HYBRID_MOUNTS);
        for text in ["0::/\n", "0::/../other\n", "8:memory:/\n0::/a\n", ""] {
            assert_eq!(mounts.kill_counter(&Cgroups::parse(text)), None, "{text}");
        }
        assert_eq!(Mounts::default().kill_counter(&Cgroups::parse("0::/a")), None);
    }

    #[test]
    fn both_versions_count_in_the_same_words() {
        assert_eq!(kills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(kills("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn this_process_has_a_cgroup() {
        let text = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        assert!(Cgroups::parse(&text).telling().0.starts_with('/'));
    }

    proptest! {
        #[test]
        fn no_text_panics(cgroup in "[\\PC\n:]{0,120}", mounts in "[\\PC\n -]{0,120}") {
            let cgroups = Cgroups::parse(&cgroup);
            let _ = (Mounts::parse(&mounts).kill_counter(&cgroups), kills(&cgroup));
        }
    }
}
