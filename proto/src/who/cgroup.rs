//! The cgroups of a process, and the path of them that says most about it.
//!
//! `/proc/PID/cgroup` has one line for each hierarchy. With version 2 alone there is one, `0::PATH`. On a hybrid system
//! that line may say nothing (`/`), or name the service that started the container, while the lines of version 1 name
//! the container: so the first that names one counts, then the first that is not the root.

use super::Names;

/// The hierarchies of version 1 that are asked, in this order, before all others.
const TELLING: [&str; 3] = ["name=systemd", "memory", "pids"];

/// The cgroups of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cgroups {
    /// Version 2's path.
    unified: Option<String>,
    /// Version 1's controllers and paths.
    legacy: Vec<(String, String)>,
}

impl Cgroups {
    /// Reads `/proc/PID/cgroup`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
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

    /// Version 2's path.
    #[must_use]
    pub fn unified(&self) -> Option<&str> {
        self.unified.as_deref()
    }

    /// The path of one of version 1's controllers.
    #[must_use]
    pub fn legacy(&self, controller: &str) -> Option<&str> {
        let has = |controllers: &str| controllers.split(',').any(|one| one == controller);
        self.legacy.iter().find(|(controllers, _)| has(controllers)).map(|(_, path)| path.as_str())
    }

    /// The path that says most, and what it names; empty when nothing is known.
    #[must_use]
    pub fn telling(&self) -> (String, Names) {
        let legacy = TELLING.iter().filter_map(|controller| self.legacy(controller));
        let rest = self.legacy.iter().map(|(_, path)| path.as_str());
        let paths: Vec<&str> = self.unified.as_deref().into_iter().chain(legacy).chain(rest).collect();
        let named = paths.iter().find(|path| !Names::of(path).is_empty());
        let chosen = named.or_else(|| paths.iter().find(|path| **path != "/")).or_else(|| paths.first());
        chosen.map_or_else(Default::default, |path| ((*path).to_owned(), Names::of(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "2403ccfe427f1dc7b6120dccb9ac58c2f8456950380d587a9f33ea7f00dd303d";

    #[test]
    fn on_a_hybrid_system_the_line_that_names_the_container_counts() {
        let text = format!("8:memory:/docker/{ID}\n1:name=systemd:/\n0::/system.slice/containerd.service\n");
        let (path, names) = Cgroups::parse(&text).telling();
        assert_eq!((path, names.container.as_deref()), (format!("/docker/{ID}"), Some(ID)));
    }

    #[test]
    fn a_path_that_says_something_is_better_than_the_root() {
        let cgroups = Cgroups::parse("4:memory:/process_api/4cb3\n1:cpu:/\n0::/\n");
        assert_eq!(cgroups.telling().0, "/process_api/4cb3");
        assert_eq!(Cgroups::parse("0::/\n").telling().0, "/");
        assert_eq!(Cgroups::parse("").telling(), (String::new(), Names::default()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PC\n:]{0,120}") {
            let _ = Cgroups::parse(&text).telling();
        }
    }
}
