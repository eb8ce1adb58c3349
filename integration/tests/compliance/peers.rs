//! The vendor's user interface with our daemon, and ours with the vendor's.

use integration::lab::Lab;
use integration::under_test::{Skipped, Subject};
use integration::vendor::Release;
use remps_proto::admin::Personality;

const LINES: &str = "get_default_active_thread_percentage\nset_default_active_thread_percentage 33.3\nps\nps -p 1\n\
                     terminate_client 1 2\nnonsense\n\nget_default_client_priority";
const ANSWERS: &str = "100.0\n33.3\nServer not found\nServer 1 not found\nServer 1 not found\n\nServer 1 not found\n\
                       Server 1 not found!\n1\nUnknown command \"nonsense\"\nUnknown command \"\"\n0\n";

fn talk(daemon: &Subject, interface: &Subject) {
    let lab = Lab::new(daemon);
    lab.start(&[]);
    let what = format!("{interface} to {daemon}");
    let finished = lab.finish(&mut lab.command_of(interface, &[]), LINES.as_bytes());
    assert_eq!(
        (finished.code, finished.stdout_text().as_str(), finished.stderr_text().as_str()),
        (Some(0), ANSWERS, ""),
        "{what}"
    );
    let pid = lab.running_daemon();
    let quit = lab.finish(&mut lab.command_of(interface, &[]), b"quit\n");
    assert_eq!((quit.code, quit.stdout_text().as_str(), quit.stderr_text().as_str()), (Some(0), "", ""), "{what}");
    lab.wait_gone(pid);
}

fn pairs() -> Result<Vec<(Subject, Subject)>, Skipped> {
    let ours = [Personality::V550, Personality::V580].map(Subject::ours);
    let theirs = Release::ALL.into_iter().map(Subject::theirs).collect::<Result<Vec<_>, _>>()?;
    let pairs = ours.iter().flat_map(|ours| theirs.iter().map(move |theirs| (ours.clone(), theirs.clone())));
    Ok(pairs.collect())
}

#[test]
fn ct_07_the_vendors_user_interface_talks_to_our_daemon() {
    match pairs() {
        Ok(pairs) => pairs.iter().for_each(|(ours, theirs)| talk(ours, theirs)),
        Err(skipped) => skipped.report(),
    }
}

#[test]
fn ct_07_the_vendors_user_interface_prints_why_a_command_of_ours_fails() {
    let told = |(ours, theirs): &(Subject, Subject)| {
        let lab = Lab::new(ours);
        lab.start(&[]);
        let lines = "get_client_state 1\nget_default_client_priority\nmetrics x\nget_default_client_priority\n";
        let finished = lab.finish(&mut lab.command_of(theirs, &[]), lines.as_bytes());
        let want =
            "Client 1 not found\n0\nmetrics: x is not understood\nUsage: metrics [-o table|wide|json] [--utc]\n0\n";
        assert_eq!(
            (finished.code, finished.stdout_text().as_str(), finished.stderr_text().as_str()),
            (Some(0), want, ""),
            "{theirs} to {ours}"
        );
    };
    match pairs() {
        Ok(pairs) => pairs.iter().for_each(told),
        Err(skipped) => skipped.report(),
    }
}

#[test]
fn ct_07_our_user_interface_talks_to_the_vendors_daemon() {
    match pairs() {
        Ok(pairs) => pairs.iter().for_each(|(ours, theirs)| talk(theirs, ours)),
        Err(skipped) => skipped.report(),
    }
}

#[test]
fn ct_07_the_vendors_two_releases_talk_to_each_other() {
    let theirs: Result<Vec<_>, _> = Release::ALL.into_iter().map(Subject::theirs).collect();
    match theirs {
        Ok(theirs) => {
            talk(&theirs[0], &theirs[1]);
            talk(&theirs[1], &theirs[0]);
        }
        Err(skipped) => skipped.report(),
    }
}
