//! What the daemon does without, gathered for `status`: nothing of it keeps a client away, so nobody would notice.
//!
//! Log and journal know of their own trouble, and the server's program is looked for when somebody asks. What is found
//! out once, at the start or with the first client whom it concerns, is kept here.

use crate::core::picture::Degradation;
use remps_proto::admin::Personality;

/// What was found out and stays so.
#[derive(Debug, Default)]
pub(super) struct Degraded {
    metrics: Option<String>,
    servers: Option<String>,
    hidden: Option<String>,
    personality: Option<String>,
    partitions: Option<String>,
}

impl Degraded {
    /// Of a daemon that plays this release, where `MPS_PERSONALITY` says `chosen` and the driver is `installed`.
    pub(super) fn playing(played: Personality, chosen: Option<&str>, installed: Option<&str>) -> Self {
        Self { personality: mismatch(played, chosen, installed), ..Self::default() }
    }

    /// What the daemon does without now; `server` is why no server can be started, `successor` why not all of the state is
    /// left to one.
    pub(super) fn all(
        &self,
        server: Option<String>,
        successor: Option<String>,
        journal: Option<String>,
        log: Vec<String>,
    ) -> Vec<Degradation> {
        let own = [
            ("server", server),
            ("holder", successor),
            ("personality", self.personality.clone()),
            ("partitions", self.partitions.clone()),
            ("metrics", self.metrics.clone()),
            ("named servers", self.servers.clone()),
            ("pids", self.hidden.clone()),
            ("journal", journal),
        ];
        let own = own.into_iter().filter_map(|(part, text)| Some(Degradation { part, text: text? }));
        own.chain(log.into_iter().map(|text| Degradation { part: "log", text })).collect()
    }

    /// Static SM partitions were asked for, which nothing is told of: clients go on without them.
    pub(super) fn without_partitions(&mut self) {
        let text = "-S has no effect: no SM partition is made, and clients share all SMs, whatever they name";
        self.partitions = Some(text.to_owned());
    }

    /// Metrics and health are not served.
    pub(super) fn without_metrics(&mut self, why: String) {
        self.metrics = Some(why);
    }

    /// Clients have come that have no pid here.
    pub(super) fn with_hidden_clients(&mut self, what: String) {
        self.hidden = Some(what);
    }

    /// Whether any have come.
    pub(super) const fn has_hidden_clients(&self) -> bool {
        self.hidden.is_some()
    }

    /// Named servers can't be kept on disk.
    pub(super) fn without_kept_servers(&mut self, why: String) {
        self.servers = Some(why);
    }
}

/// Why the answers are not those of the release that was asked for, or else of the installed one.
fn mismatch(played: Personality, chosen: Option<&str>, installed: Option<&str>) -> Option<String> {
    let is_played = |version: &str| version.trim().split('.').next() == Some(played.branch().to_string().as_str());
    let chosen = chosen.map(str::trim).filter(|text| !text.is_empty());
    // The operator may name a release as the program's own `-v` does, such as 13000.
    let is_binary = |version: &str| version.parse().ok().and_then(Personality::from_binary_version) == Some(played);
    match chosen {
        Some(chosen) if is_played(chosen) || is_binary(chosen) => None,
        Some(chosen) if Personality::from_driver_version(chosen).is_none() => {
            Some(format!("MPS_PERSONALITY={chosen} names no release, answers are those of {played}"))
        }
        Some(chosen) => {
            Some(format!("release {chosen} of MPS_PERSONALITY is not known, answers are those of {played}"))
        }
        None => {
            let other = installed.filter(|&version| !is_played(version))?;
            Some(format!("the release of driver {other} is not known, answers are those of {played}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_that_is_played_as_another_one_is_told() {
        let told = |played, chosen, installed| mismatch(played, chosen, installed).unwrap_or_default();
        for (played, chosen, installed) in [
            (Personality::V580, None, None),
            (Personality::V580, None, Some("580.159.04")),
            (Personality::V535, Some(" 535 "), Some("580.159.04")),
            (Personality::V580, Some(" "), Some("580.159.04")),
            (Personality::V580, Some("13000"), None),
        ] {
            assert_eq!(told(played, chosen, installed), "");
        }
        let text = told(Personality::V580, Some("foo"), Some("535.309.01"));
        assert_eq!(text, "MPS_PERSONALITY=foo names no release, answers are those of 580");
        let text = told(Personality::V595, Some("615"), None);
        assert_eq!(text, "release 615 of MPS_PERSONALITY is not known, answers are those of 595");
        let text = told(Personality::V555, None, Some("570.86.15"));
        assert_eq!(text, "the release of driver 570.86.15 is not known, answers are those of 555");
    }
}
