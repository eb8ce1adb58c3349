//! A daemon that is out of descriptors.

use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage, descriptors, limit_descriptors};
use integration::lab::{LIMIT, watch};

/// More than a client can cost the daemon.
const MOST_FOR_A_CLIENT: usize = 16;
const ENOUGH: usize = 4096;

#[test]
fn a_client_that_the_daemon_has_no_descriptor_left_to_watch_is_a_client_as_long_as_it_lives() {
    let mut served = 0;
    // Where the descriptors end is another step of a client's way each time.
    for more in 1..=MOST_FOR_A_CLIENT {
        Stage::run(|stage| {
            stage.start(&[]);
            let mut first = Program::attached(stage, 0);
            let server = stage.only(Part::Server);
            let daemon = stage.daemon().pid();
            limit_descriptors(daemon, descriptors(daemon).expect("it runs") + more);
            let mut second = Program::start(stage, 0);
            let is_attached = second.is_served();
            limit_descriptors(daemon, ENOUGH);
            if is_attached {
                served += 1;
                let pid = format!("\"pid\":{},", second.pid());
                let is_live = |line: &str| line.contains(&pid) && line.contains("\"phase\":\"live\"");
                let is_listed = || stage.ask("status --json\n").lines().any(is_live);
                // Asked twice, since the news of an end comes beside the answers.
                assert!(is_listed() && is_listed(), "{more} descriptors more");
                second.ping();
                drop(second);
                watch::wait_for(stage.pipe_dir(), stage.pipe_dir(), LIMIT, "its end", || !is_listed());
            }
            first.ping();
            assert!(stage.servers().contains(&server), "{more} descriptors more");
        });
    }
    assert!(served > 0);
}
