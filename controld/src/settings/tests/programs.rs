//! What programs with the preload library get that say nothing themselves.

use super::*;
use remps_proto::shim::ProgramDefaults;

#[test]
fn programs_are_not_recovered_by_default_and_only_where_their_state_is_kept() {
    assert_eq!(with_file("").expect("sound").file.told_to_programs(None, None, None), None);
    let replay = with_file("[replay]\nkeep = \"state\"\nrecover = \"in-place\"\n").expect("sound").file.replay;
    assert_eq!(replay.words().recover.word(), "in-place");
    for keep in ["", "keep = \"memory\"\n"] {
        let error = with_file(&format!("[replay]\n{keep}recover = \"spare\"\n")).expect_err("nothing to go by");
        assert!(error.to_string().contains("replay.recover"), "{error}");
    }
}

/// Who a program is that reads what it is told; the daemon's namespaces are 5 and 6.
#[derive(Clone, Copy)]
struct Reader(u32, Option<&'static str>, &'static str);

impl remps_proto::shim::Program for Reader {
    fn uid(&self, namespace: Option<u64>) -> Option<u32> {
        (namespace == Some(5)).then_some(self.0)
    }
    fn label(&self) -> Option<Option<String>> {
        Some(self.1.map(str::to_owned))
    }
    fn cgroup(&self, namespace: Option<u64>) -> Option<String> {
        (namespace == Some(6)).then(|| self.2.to_owned())
    }
}

#[test]
fn programs_have_what_the_first_table_says_that_the_daemon_finds_for_them() {
    let file = with_file(
        "[replay]\nkeep = \"state\"\nrecover = \"spare\"\n\
         [[domain]]\nlabel = \"batch\"\nuid = 7\nmax_clients = 1\nkeep = \"nothing\"\n\
         [[domain]]\nuid = 7\nmax_clients = 2\nkeep = \"memory\"\n\
         [[domain]]\ncgroup = \"/pods\"\nmax_clients = 3\n\
         [[domain]]\nlabel = \"batch\"\nmax_clients = 4\nrecover = \"in-place\"\n\
         [[domain]]\nuid = 9\nmax_clients = 5\n",
    )
    .expect("sound")
    .file;
    let told = file.told_to_programs(None, Some(5), Some(6)).expect("it says something");
    assert!(!told.contains("uid=9"), "nothing hangs on the last: {told}");
    for (uid, label, cgroup, table, gets) in [
        (7, Some("batch"), "/pods/a", Some(1), ("nothing", "nobody")),
        // Who keeps less is not recovered by what others have.
        (7, None, "/pods/a", Some(2), ("memory", "nobody")),
        (8, Some("batch"), "/pods/a", Some(3), ("state", "spare")),
        (8, Some("batch"), "/", Some(4), ("state", "in-place")),
        (9, Some("other"), "/podsy", Some(5), ("state", "spare")),
        (1, None, "/", None, ("state", "spare")),
    ] {
        let policy = file.policy.domains.find(uid, label, cgroup);
        assert_eq!(policy.group.max_clients, table, "{uid} {label:?} {cgroup}");
        let found = ProgramDefaults::read(told.as_bytes(), &Reader(uid, label, cgroup)).expect("it is sound");
        assert_eq!((found.defaults.keep.word(), found.defaults.recover.word()), gets, "{uid} {label:?} {cgroup}");
    }
    // A claim has its own in place of what all have, and the tables go before it.
    let claim = ProgramDefaults::parse("nothing nobody");
    let told = file.told_to_programs(claim, Some(5), Some(6)).expect("it says something");
    for (uid, label, gets) in
        [(1, None, "nothing nobody"), (7, None, "memory nobody"), (8, Some("batch"), "state in-place")]
    {
        let found = ProgramDefaults::read(told.as_bytes(), &Reader(uid, label, "/")).expect("it is sound");
        assert_eq!(found.defaults.to_string(), gets);
    }
    // A table's is told where nobody else has anything.
    let says = |text: &str| with_file(text).expect("sound").file.told_to_programs(None, None, None);
    let told = says("[[domain]]\nlabel = \"a b\"\nkeep = \"state\"\n");
    assert!(told.is_some_and(|told| told.contains("\ndomain=state nobody\tlabel=a b\n")));
    assert_eq!(says("[[domain]]\nuid = 7\nstandby = true\n"), None);
    assert_fault("[[domain]]\nuid = 7\nrecover = \"spare\"\n", 3, "domain[1].recover", "keep = \"state\"");
    assert_fault("[[domain]]\nlabel = \"a\"\nkeep = \"all\"\n", 3, "domain[1].keep", "`nothing`");
    assert_fault("[[domain]]\nuid = 7\nend_tainted = \"never\"\n", 3, "domain[1].end_tainted", "no such key");
    assert_fault("[[domain]]\nuid = 7\nburial_hold = 1\n", 3, "domain[1].burial_hold", "no such key");
    let many = |count: u32| -> String {
        (0..count).map(|uid| format!("[[domain]]\nuid = {uid}\nkeep = \"state\"\n")).collect()
    };
    with_file(&many(1024)).expect("there is room for them");
    assert_fault(&many(2048), 1, "domain", "room for 49152");
}
