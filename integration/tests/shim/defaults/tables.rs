//! `keep` and `recover` of the tables `[[domain]]`: a program is in the first that fits it by user, label or cgroup, as the
//! daemon has it.

use super::{COLD, IN_PLACE, is_hit, is_hit_as, replaced, ways};
use crate::replay::is_whole;
use integration::lab::place::{Container, USERS, within};
use integration::lab::process::Finished;
use integration::sim::{Sim, error_of};
use integration::under_test::{Skipped, once};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// It was recovered in place, as the table says, and not otherwise.
#[track_caller]
pub(super) fn is_recovered(finished: &Finished, what: &str) {
    is_whole(finished, 1, what);
    assert_eq!(ways(finished), [COLD], "{what}: {finished:?}");
}

/// It had its error.
#[track_caller]
pub(super) fn is_lost(finished: &Finished, what: &str) {
    assert!(error_of(finished).is_some() && ways(finished).is_empty(), "{what}: {finished:?}");
}

/// The user that owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn programs_of_a_user_get_what_is_said_of_him_and_nobody_elses_do() {
    if !nix::unistd::geteuid().is_root() {
        return Skipped("only root starts programs of others".to_owned()).report();
    }
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let own = format!("[[domain]]\nuid = {NOBODY}\nkeep = \"state\"\nrecover = \"in-place\"\n");
        sim.config(&own);
        sim.lab.start(&[]);
        let status = sim.lab.ask("status\n");
        let said = status.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("keep nothing, recover nobody, unless they say otherwise; those of one [[domain]]"),
            "{status}"
        );
        let nobodys = |mut command: Command| {
            command.uid(NOBODY).gid(NOBODY);
            command
        };
        let finished = is_hit_as(&sim, &nobodys, &[]);
        is_whole(&finished, 1, &subject.to_string());
        assert_eq!(ways(&finished), [COLD], "{subject}: {finished:?}");
        let finished = is_hit(&sim, &[]);
        assert!(error_of(&finished).is_some() && ways(&finished).is_empty(), "{subject}: {finished:?}");
        // He is the same user in a namespace where he calls himself root.
        let tried = nobodys(within(USERS, &Command::new("true"))).stderr(Stdio::null()).status();
        if tried.is_ok_and(|status| status.success()) {
            let finished = is_hit_as(&sim, &|command| nobodys(within(USERS, &command)), &[]);
            is_whole(&finished, 1, &subject.to_string());
            assert_eq!(ways(&finished), [COLD], "{subject}: {finished:?}");
        } else {
            Skipped("an ordinary user may make no user namespace".to_owned()).report();
        }
        // The other way round: all but him.
        replaced(&sim, &format!("{IN_PLACE}[[domain]]\nuid = {NOBODY}\nkeep = \"nothing\"\n"));
        let finished = is_hit(&sim, &[]);
        is_whole(&finished, 1, &subject.to_string());
        let finished = is_hit_as(&sim, &nobodys, &[]);
        assert!(error_of(&finished).is_some() && ways(&finished).is_empty(), "{subject}: {finished:?}");
    });
}

#[test]
fn programs_of_a_label_get_what_the_first_table_says_that_fits_and_a_label_gains_nothing_else() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        let uid = nix::unistd::getuid();
        sim.config(&format!(
            "[[domain]]\nlabel = \"batch job\"\nkeep = \"state\"\nrecover = \"in-place\"\n\
             [[domain]]\nuid = {uid}\nlabel = \"quiet\"\n\
             [[domain]]\nlabel = \"quiet\"\nkeep = \"state\"\nrecover = \"in-place\"\n"
        ));
        sim.lab.start(&[]);
        // As others on this server: the one with the label is alone in having been told to keep its state.
        is_recovered(&is_hit(&sim, &[("MPS_DOMAIN", "batch job")]), "batch job");
        for label in ["batch", "batch job ", "quiet", ""] {
            is_lost(&is_hit(&sim, &[("MPS_DOMAIN", label)]), label);
        }
        is_lost(&is_hit(&sim, &[]), "no label");
        // What the environment says goes before the table, with a label as without one.
        is_lost(&is_hit(&sim, &[("MPS_DOMAIN", "batch job"), ("MPS_SHIM_KEEP", "0")]), "its own word");
    });
}

#[test]
fn programs_of_a_cgroup_get_what_is_said_of_it_and_those_that_cannot_see_theirs_what_all_have() {
    once(|subject| {
        let made = [Container::make("1f", 0x1f), Container::make("2f", 0x2f)];
        let [Ok(one), Ok(two)] = made else {
            return Skipped("no right to make a cgroup".to_owned()).report();
        };
        let sim = Sim::new(subject, &[]);
        let of = |cgroup: &str, values: &str| format!("[[domain]]\ncgroup = \"{cgroup}\"\n{values}");
        let in_place = "keep = \"state\"\nrecover = \"in-place\"\n";
        sim.config(&of(&one.pod(), in_place));
        sim.lab.start(&[]);
        let enters = |container: &Container, namespace: &[&str], command: &Command| {
            let entered = container.entered();
            let place: Vec<&str> = entered.iter().map(String::as_str).chain(namespace.iter().copied()).collect();
            // The first word after a script is its `$0`.
            within(&place, command)
        };
        is_recovered(&is_hit_as(&sim, &|command| enters(&one, &[], &command), &[]), "in it");
        is_lost(&is_hit_as(&sim, &|command| enters(&two, &[], &command), &[]), "in another one");
        let own = ["unshare", "--cgroup"];
        let log = [("MPS_SHIM_LOG", "1")];
        let tried = Command::new("unshare").args(["--cgroup", "true"]).stderr(Stdio::null()).status();
        if !tried.is_ok_and(|status| status.success()) {
            return Skipped("no right to make a cgroup namespace".to_owned()).report();
        }
        let finished = is_hit_as(&sim, &|command| enters(&one, &own, &command), &log);
        is_lost(&finished, "in it, unseen");
        assert!(finished.stderr_text().contains("can't be known here"), "{finished:?}");
        // Where every table that may be its own says the same, it has that.
        replaced(&sim, &format!("{}{}", of(&two.pod(), in_place), of("/", in_place)));
        is_recovered(&is_hit_as(&sim, &|command| enters(&one, &[], &command), &[]), "below the root");
        replaced(&sim, &format!("{}{}{IN_PLACE}", of(&two.pod(), ""), of(&one.pod(), in_place)));
        is_recovered(&is_hit_as(&sim, &|command| enters(&one, &own, &command), &[]), "it makes no difference");
    });
}
