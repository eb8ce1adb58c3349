//! Cgroups of a process: the path that says most about it, and the counter of kills for want of memory.
//!
//! `/proc/PID/cgroup` has one line for each hierarchy. With version 2 alone there is one, `0::PATH`. On a hybrid system
//! that line may say nothing (`/`), or name the service that started the container, while the lines of version 1 name
//! the container: so the first that names one counts, then the first that is not the root.

mod names;

use std::path::{Path, PathBuf};

use crate::sys::proc::OWN_MOUNTS;

pub(crate) use names::{Names, Reach};

/// The hierarchies of version 1 that are asked, in this order, before all others.
const TELLING: [&str; 3] = ["name=systemd", "memory", "pids"];
/// The line of a counter file that counts kills; the same in `memory.events` and in `memory.oom_control`.
const KILLS: &str = "oom_kill ";

/// The cgroups of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cgroups {
    /// Version 2's path.
    unified: Option<String>,
    /// Version 1's controllers and paths.
    legacy: Vec<(String, String)>,
}

impl Cgroups {
    /// Reads `/proc/PID/cgroup`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut cgroups = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(hierarchy), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            // A cgroup that was removed under its last process.
            let path = path.strip_suffix(" (deleted)").unwrap_or(path);
            if hierarchy == "0" && controllers.is_empty() {
                cgroups.unified = Some(path.to_owned());
            } else {
                cgroups.legacy.push((controllers.to_owned(), path.to_owned()));
            }
        }
        cgroups
    }

    fn legacy(&self, controller: &str) -> Option<&str> {
        let has = |controllers: &str| controllers.split(',').any(|one| one == controller);
        self.legacy.iter().find(|(controllers, _)| has(controllers)).map(|(_, path)| path.as_str())
    }

    /// The path that says most, and what it names; empty when nothing is known.
    pub(crate) fn telling(&self) -> (String, Names) {
        let legacy = TELLING.iter().filter_map(|controller| self.legacy(controller));
        let rest = self.legacy.iter().map(|(_, path)| path.as_str());
        let paths: Vec<&str> = self.unified.as_deref().into_iter().chain(legacy).chain(rest).collect();
        let named = paths.iter().find(|path| !Names::of(path).is_empty());
        let chosen = named.or_else(|| paths.iter().find(|path| **path != "/")).or_else(|| paths.first());
        chosen.map_or_else(Default::default, |path| ((*path).to_owned(), Names::of(path)))
    }

    /// The file that counts kills for want of memory in this process's cgroup; `None` for the root, which has none, and
    /// for a cgroup outside of what this process can see.
    pub(crate) fn kill_counter(&self, mounts: &Mounts) -> Option<PathBuf> {
        let (mount, path, file) = match self.legacy("memory") {
            Some(path) => (mounts.memory.as_ref()?, path, "memory.oom_control"),
            None => (mounts.unified.as_ref()?, self.unified.as_deref()?, "memory.events"),
        };
        let relative = path.strip_prefix('/').filter(|path| !path.is_empty())?;
        if relative.split('/').any(|part| part == "..") {
            return None;
        }
        Some(mount.join(relative).join(file))
    }
}

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
        let counter = cgroups.kill_counter(&mounts).unwrap();
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
        let counter = cgroups.kill_counter(&Mounts::parse(HYBRID_MOUNTS)).unwrap();
        assert_eq!(counter, PathBuf::from(format!("/sys/fs/cgroup/memory/docker/{ID}/memory.oom_control")));
    }

    #[test]
    fn a_path_that_says_something_is_better_than_the_root() {
        let cgroups = Cgroups::parse("4:memory:/process_api/4cb3\n1:cpu:/\n0::/\n");
        assert_eq!(cgroups.telling().0, "/process_api/4cb3");
        assert_eq!(Cgroups::parse("0::/\n").telling().0, "/");
        assert_eq!(Cgroups::parse("").telling(), (String::new(), Names::default()));
    }

    #[test]
    fn a_cgroup_out_of_sight_has_no_counter() {
        let mounts = Mounts::parse(HYBRID_MOUNTS);
        for text in ["0::/\n", "0::/../other\n", "8:memory:/\n0::/a\n", ""] {
            assert_eq!(Cgroups::parse(text).kill_counter(&mounts), None, "{text}");
        }
        assert_eq!(Cgroups::parse("0::/a").kill_counter(&Mounts::default()), None);
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
            let _ = (cgroups.telling(), cgroups.kill_counter(&Mounts::parse(&mounts)), kills(&cgroup));
        }
    }
}
