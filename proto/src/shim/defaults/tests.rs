//! What is written is read, by whom it is for and by nobody else.

use super::*;
use core::cell::Cell;
use proptest::prelude::*;

const NOTHING: ProgramDefaults = ProgramDefaults { keep: Keep::Nothing, recover: Recover::Nobody };
const MEMORY: ProgramDefaults = ProgramDefaults { keep: Keep::Memory, recover: Recover::Nobody };
const SPARE: ProgramDefaults = ProgramDefaults { keep: Keep::State, recover: Recover::Spare };

/// What is known of a program, and the namespaces that it was asked for.
#[derive(Debug, Clone, Default)]
struct Known {
    uid: Option<u32>,
    label: Option<Option<&'static str>>,
    cgroup: Option<&'static str>,
    asked: Cell<[Option<u64>; 2]>,
}

impl Program for Known {
    fn uid(&self, namespace: Option<u64>) -> Option<u32> {
        self.asked.set([namespace, self.asked.get()[1]]);
        self.uid
    }
    fn label(&self) -> Option<Option<String>> {
        self.label.map(|label| label.map(str::to_owned))
    }
    fn cgroup(&self, namespace: Option<u64>) -> Option<String> {
        self.asked.set([self.asked.get()[0], namespace]);
        self.cgroup.map(str::to_owned)
    }
}

/// One that is not to be asked who it is.
struct Nobody;

impl Program for Nobody {
    fn uid(&self, _: Option<u64>) -> Option<u32> {
        panic!("no user's name is in it")
    }
    fn label(&self) -> Option<Option<String>> {
        panic!("no label is in it")
    }
    fn cgroup(&self, _: Option<u64>) -> Option<String> {
        panic!("no cgroup is in it")
    }
}

fn user(uid: u32) -> Known {
    Known { uid: Some(uid), ..Known::default() }
}

fn of_user(uid: u32) -> Match {
    Match { uid: Some(uid), ..Match::default() }
}

fn of_label(label: &str) -> Match {
    Match { label: Some(label.to_owned()), ..Match::default() }
}

fn of_cgroup(cgroup: &str) -> Match {
    Match { cgroup: Some(cgroup.to_owned()), ..Match::default() }
}

fn read(text: &str, program: &dyn Program) -> Option<ProgramDefaults> {
    ProgramDefaults::read(text.as_bytes(), program).map(|found| found.defaults)
}

#[test]
fn what_is_written_is_read_and_recoveries_need_the_state() {
    for keep in Keep::ALL {
        for recover in Recover::ALL {
            let defaults = ProgramDefaults { keep, recover };
            let is_sound = keep == Keep::State || recover == Recover::Nobody;
            let file = DefaultsFile { all: defaults, ..DefaultsFile::default() };
            assert_eq!(read(&file.to_string(), &Nobody), is_sound.then_some(defaults));
            let file = DefaultsFile { domains: vec![(of_user(7), Some(defaults))], ..DefaultsFile::default() };
            assert_eq!(read(&file.to_string(), &user(7)), is_sound.then_some(defaults));
        }
    }
}

#[test]
fn the_first_table_that_fits_counts_also_where_it_says_nothing() {
    let both = Match { label: Some("a b=c".to_owned()), ..of_user(7) };
    let domains = vec![
        (both, Some(SPARE)),
        (of_label("quiet"), None),
        (of_user(7), Some(NOTHING)),
        (of_cgroup("/pods"), Some(SPARE)),
    ];
    let (users, cgroups) = (Some(17), Some(18));
    let file = DefaultsFile { all: MEMORY, domains, users, cgroups };
    let text = file.to_string();
    let who = |uid, label, cgroup| Known { cgroup: Some(cgroup), label: Some(label), ..user(uid) };
    for (program, wanted) in [
        (who(7, Some("a b=c"), "/"), SPARE),
        (who(8, Some("a b=c"), "/"), MEMORY),
        (who(8, Some("a b"), "/pods/one"), SPARE),
        (who(7, None, "/pods/one"), NOTHING),
        (who(7, Some("quiet"), "/pods"), MEMORY),
        (who(70, None, "/podsfull"), MEMORY),
    ] {
        let found = ProgramDefaults::read(text.as_bytes(), &program);
        assert_eq!(found, Some(Found { defaults: wanted, is_unsure: false }), "{program:?}");
    }
    let asked = who(70, None, "/");
    let _ = read(&text, &asked);
    assert_eq!(asked.asked.get(), [users, cgroups]);
    // What comes behind the last that says something is not told.
    let quiet = DefaultsFile { domains: vec![(of_user(7), None)], ..DefaultsFile { domains: vec![], ..file } };
    assert_eq!(read(&quiet.to_string(), &Nobody), Some(MEMORY));
}

#[test]
fn who_does_not_know_which_table_is_his_has_what_all_have_unless_it_makes_no_difference() {
    let gets = |domains: &[(Match, Option<ProgramDefaults>)], program: &Known| {
        let file = DefaultsFile { all: MEMORY, domains: domains.to_vec(), ..DefaultsFile::default() };
        ProgramDefaults::read(file.to_string().as_bytes(), program).map(|it| (it.defaults, it.is_unsure))
    };
    let pods = |own| (of_cgroup("/pods"), own);
    let his = (of_user(7), Some(SPARE));
    // Nobody knows his cgroup.
    assert_eq!(gets(&[pods(Some(SPARE))], &user(7)), Some((MEMORY, true)));
    assert_eq!(gets(&[pods(Some(NOTHING)), his.clone()], &user(7)), Some((MEMORY, true)));
    assert_eq!(gets(&[pods(Some(SPARE)), his.clone()], &user(7)), Some((SPARE, false)));
    assert_eq!(gets(&[his.clone(), pods(Some(NOTHING))], &user(7)), Some((SPARE, false)));
    assert_eq!(gets(&[pods(None), (of_user(8), Some(SPARE))], &user(7)), Some((MEMORY, false)));
    // Nor who he is, nor his label.
    assert_eq!(gets(core::slice::from_ref(&his), &Known::default()), Some((MEMORY, true)));
    assert_eq!(gets(&[(of_label("a"), Some(SPARE)), his], &user(8)), Some((MEMORY, true)));
}

#[test]
fn words_of_a_later_release_for_somebody_else_are_his() {
    let file = "remps-shim-defaults 1\nkeep=memory\nrecover=nobody\ndomain=more words here\tuid=7\n\
                domain=state spare\tuid=8\ndomain=state spare\tuid=9\tpod=x\n";
    assert_eq!(read(file, &user(8)), Some(SPARE));
    assert_eq!(read(file, &user(10)), Some(MEMORY));
    assert_eq!(read(file, &user(7)), None);
    assert_eq!(read(file, &user(9)), Some(MEMORY), "whether the table is his is not known");
}

#[test]
fn what_is_written_otherwise_says_nothing() {
    let sound = "remps-shim-defaults 1\nkeep=state\nlater=1\nrecover=spare\n";
    assert_eq!(read(sound, &Nobody), Some(SPARE));
    for odd in [
        "",
        "keep=state\n",
        "remps-shim-defaults 2\nkeep=state\n",
        "remps-shim-defaults 1\nkeep=everything\n",
        "remps-shim-defaults 1\nkeep=state\nrecover=sp",
        "remps-shim-defaults 1\nrecover=spare\n",
        "remps-shim-defaults 1\ndomain=state spare\n",
        "remps-shim-defaults 1\ndomain=state\tuid=5\n",
        "remps-shim-defaults 1\ndomain=memory spare\tuid=5\n",
    ] {
        assert_eq!(read(odd, &user(5)), None, "{odd:?}");
    }
    let long = format!("{sound}{}\n", "#".repeat(MAX_DEFAULTS_BYTES));
    assert_eq!(read(&long, &Nobody), None);
}

proptest! {
    #[test]
    fn any_bytes_are_defaults_or_none(bytes in prop::collection::vec(any::<u8>(), 0..600), uid in any::<u32>()) {
        let _ = ProgramDefaults::read(&bytes, &user(uid));
        let lines = [b"remps-shim-defaults 1\ndomain=".as_slice(), bytes.as_slice(), b"\n"].concat();
        let _ = ProgramDefaults::read(&lines, &user(uid));
    }
}
