//! `[replay]` of a claim: what the thin daemon's own configuration has goes before what the node's has for all, and the
//! node's tables `[[domain]]` before both.

use super::tables::{is_lost, is_recovered};
use super::{IN_PLACE, is_hit, is_hit_in, replaced};
use integration::lab::LIMIT;
use integration::lab::watch::wait_for;
use integration::sim::Sim;
use integration::under_test::once;
use remps_proto::shim::DEFAULTS_NAME;
use std::fs;
use std::path::Path;

const NOTHING: &str = "[replay]\nkeep = \"nothing\"\n";
const QUIET: &str = "[[domain]]\nlabel = \"quiet\"\nkeep = \"nothing\"\n";

/// Runs a control program in the directory of a claim, whose configuration is there.
fn in_claim(sim: &Sim, claim: &Path, words: &[&str], lines: &str) -> String {
    let mut command = sim.lab.command(words);
    command.env("CUDA_MPS_PIPE_DIRECTORY", claim).env("CUDA_MPS_LOG_DIRECTORY", claim);
    command.env("MPS_CONTROL_CONFIG", claim.join("own.toml"));
    let done = sim.lab.finish(&mut command, lines.as_bytes());
    assert_eq!((done.code, done.stderr_text()), (Some(0), String::new()), "{words:?}");
    done.stdout_text()
}

#[test]
fn programs_of_a_claim_get_what_its_own_daemon_has_for_them_where_no_table_of_the_node_says_anything() {
    once(|subject| {
        let sim = Sim::new(subject, &[]);
        sim.config(QUIET);
        sim.lab.start(&[]);
        let [claim, other] = ["claim", "other"].map(|name| sim.lab.dir().join(name));
        for (folder, own) in [(&claim, IN_PLACE), (&other, NOTHING)] {
            fs::create_dir_all(folder).and_then(|()| fs::write(folder.join("own.toml"), own)).expect("our folder");
            let node = sim.lab.pipe_dir().to_str().expect("ours");
            in_claim(&sim, folder, &["-d", "--join", node], "");
        }
        let status = |folder: &Path| in_claim(&sim, folder, &[], "status\n");
        assert!(status(&claim).contains("keep state, recover in-place"), "{}", status(&claim));
        assert!(status(&other).contains("keep nothing, recover nobody"), "{}", status(&other));
        is_recovered(&is_hit_in(&sim, &claim, &[]), "the claim's own");
        is_lost(&is_hit_in(&sim, &claim, &[("MPS_DOMAIN", "quiet")]), "the node's table");
        is_lost(&is_hit(&sim, &[]), "no claim");
        // The node's next daemon is told again, also by who wants nothing where all others are recovered.
        replaced(&sim, IN_PLACE);
        let said = |folder: &Path| fs::read_to_string(folder.join(DEFAULTS_NAME)).ok();
        let is_told = || said(&claim).is_some_and(|said| !said.contains("quiet")) && said(&other).is_none();
        wait_for(sim.lab.dir(), sim.lab.log_dir(), LIMIT, "what is said of the claims", is_told);
        is_recovered(&is_hit(&sim, &[]), "no claim");
        is_recovered(&is_hit_in(&sim, &claim, &[]), "the claim's own, again");
        is_lost(&is_hit_in(&sim, &other, &[]), "a claim that wants nothing");
        for folder in [&claim, &other] {
            in_claim(&sim, folder, &["quit"], "");
        }
    });
}
