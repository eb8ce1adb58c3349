//! Whom to tell in a cluster, from the table `[cluster]` and the variables that Kubernetes gives a container.
//!
//! NVIDIA's device plugin starts the daemon with two variables of its own and no others, so whatever is a variable here can
//! be said in the file as well.

use super::Settings;
use super::check::UNIX_PREFIX;
use crate::observe::cluster::{ApiServer, Config};
use crate::sys::proc::HOST_NAME;
use std::path::PathBuf;

/// The API server's name in every cluster.
const USUAL_HOST: &str = "kubernetes.default.svc";
const SCHEME: &str = "https://";
const HTTPS_PORT: u16 = 443;

/// What the environment says of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Surroundings {
    /// `NODE_NAME`, or the host's name.
    pub node: String,
    /// `KUBERNETES_SERVICE_HOST` and `KUBERNETES_SERVICE_PORT`.
    pub api_server: Option<(String, u16)>,
}

impl Surroundings {
    pub(super) fn read(text: impl Fn(&str) -> Option<String>) -> Self {
        let said = |name: &str| text(name).filter(|value| !value.is_empty());
        let host = || Some(std::fs::read_to_string(HOST_NAME).ok()?.trim_end().to_owned());
        let port = said("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse().ok()).unwrap_or(HTTPS_PORT);
        Self {
            node: said("NODE_NAME").or_else(host).unwrap_or_default(),
            api_server: said("KUBERNETES_SERVICE_HOST").map(|host| (host, port)),
        }
    }
}

impl Settings {
    /// Whom to tell of verdicts.
    pub(crate) fn cluster(&self) -> Config {
        let table = &self.file.cluster;
        let known = || self.surroundings.api_server.clone().unwrap_or_else(|| (USUAL_HOST.to_owned(), HTTPS_PORT));
        let (host, port) = host_and_port(&table.api_server).unwrap_or_else(known);
        let api = || ApiServer { host, port, token: PathBuf::from(&table.token), ca: PathBuf::from(&table.ca) };
        Config {
            node: if table.node.is_empty() { self.surroundings.node.clone() } else { table.node.clone() },
            api: table.events.then(api),
            sentinel: table.nvsentinel.strip_prefix(UNIX_PREFIX).map(PathBuf::from),
        }
    }
}

/// The host and the port of `https://host:port`; an address of IPv6 is in brackets.
pub(super) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let rest = text.strip_prefix(SCHEME)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))?)
        }
        None => rest.split_once(':').unwrap_or((rest, "")),
    };
    let port = if port.is_empty() { HTTPS_PORT } else { port.parse().ok().filter(|port| *port != 0)? };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
    (!host.is_empty() && host.bytes().all(is_letter)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_names_and_numbers_over_tls_and_nothing_else() {
        let sound = [
            ("https://10.96.0.1", "10.96.0.1", 443),
            ("https://api.example:6443/", "api.example", 6443),
            ("https://[fd00::1]:6443", "fd00::1", 6443),
            ("https://[fd00::1]", "fd00::1", 443),
        ];
        for (text, host, port) in sound {
            assert_eq!(host_and_port(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in [
            "http://10.96.0.1",
            "10.96.0.1:443",
            "https://",
            "https://a:0",
            "https://a/b",
            "https://[::1",
            "https://a\r\nb",
        ] {
            assert_eq!(host_and_port(text), None, "{text}");
        }
    }
}
