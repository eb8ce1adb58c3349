//! `vault list`: whose GPU memory is kept, and until when.

use super::table::aligned;
use super::text::{NOTHING, harmless, mebibytes, span};
use super::{Viewer, fitted};
use crate::core::picture::RegionFacts;
use remps_proto::admin::Form;

const HEADING: [&str; 8] = ["OWNER", "UID", "NAME", "SIZE", "LEFT", "GPU", "ADDRESS", "CGROUP"];

/// The answer to `vault list`: a row for each region, oldest first. A user sees his own.
pub(crate) fn vault_list(regions: &[RegionFacts], viewer: Viewer, form: Form) -> Vec<String> {
    let seen = regions.iter().filter(|region| viewer.may_see(region.uid));
    if form == Form::Json {
        return seen.map(fitted).collect();
    }
    let rows: Vec<Vec<String>> = seen
        .map(|region| {
            vec![
                if region.left.is_none() { region.process.pid.to_string() } else { NOTHING.to_owned() },
                region.uid.to_string(),
                harmless(&region.name),
                mebibytes(region.bytes),
                region.left.map_or_else(|| NOTHING.to_owned(), span),
                harmless(&region.gpu),
                if region.address == 0 { NOTHING.to_owned() } else { format!("{:#x}", region.address) },
                harmless(&region.cgroup),
            ]
        })
        .collect();
    aligned(&HEADING, &rows, form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ProcessKey;
    use core::time::Duration;

    fn region(uid: u32, name: &str, left: Option<Duration>) -> RegionFacts {
        RegionFacts {
            process: ProcessKey { pid: 42, start_time: 7 },
            uid,
            cgroup: "/a".into(),
            key: 1,
            name: name.into(),
            gpu: "GPU-1".into(),
            bytes: 2 << 20,
            address: 0x7000_0000_0000,
            device_held: true,
            left,
        }
    }

    #[test]
    fn a_user_sees_his_own_regions_and_the_owner_all() {
        let regions = [region(1000, "weights", None), region(1001, "", Some(Duration::from_secs(90)))];
        let list = |uid, privileged| vault_list(&regions, Viewer { uid, privileged, within: None }, Form::Table);
        assert_eq!(
            list(0, true),
            [
                "OWNER  UID   NAME     SIZE   LEFT   GPU    ADDRESS         CGROUP",
                "42     1000  weights  2 MiB  -      GPU-1  0x700000000000  /a",
                "-      1001  -        2 MiB  1m30s  GPU-1  0x700000000000  /a",
            ]
        );
        assert_eq!(list(1001, false).len(), 2);
        assert_eq!(list(1002, false).len(), 1, "a heading and nothing else");
        let json = vault_list(&regions, Viewer { uid: 1001, privileged: false, within: None }, Form::Json);
        let [line] = json.as_slice() else { panic!("{json:?}") };
        let told: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&told["uid"], &told["left_s"], &told["bytes"]), (&1001.into(), &90.0.into(), &(2 << 20).into()));
    }
}
