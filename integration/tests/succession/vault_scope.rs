//! Memory in the vault is its owner's and not that of everybody who has the same number: other user namespaces, other
//! containers and other pods of the user list, adopt and discard nothing, under this daemon and the next.

use crate::kept_memory::{ROOT, start};
use integration::lab::place::{Container, PIDS, SANDBOX, ask_within, where_possible, within};
use integration::lab::process::Process;
use integration::lab::program::Program;
use integration::lab::stage::{Stage, VAULT_CLIENT};
use integration::under_test::Skipped;
use nix::unistd::Pid;
use prost::Message as _;
use remps_controld::parts::door::{NameNote, RegionNote};
use remps_controld::parts::holder::{HolderLink, Kind};
use std::process::Command;

const POD: &str = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340";
const OTHER_POD: &str = "2fc932ce-fdcc-454b-97bd-aadfdeb4c341";

/// A program that has memory to keep, in another place.
fn program_within(stage: &Stage, place: &[&str]) -> Program {
    let program = Program::started_as(within(place, &stage.command_as(ROOT, VAULT_CLIENT, &[])));
    program.expect("attached");
    program
}

/// The same in a container. It connects when it is first told something, and is there by then.
fn program_in(stage: &Stage, container: &Container) -> Program {
    let program = Program::with_memory(stage, ROOT);
    container.add(program.pid());
    program
}

/// Nothing of the name is seen, got or closed.
fn is_a_stranger(mut program: Program, name: &str) {
    program.does("list", "done 0");
    program.does(&format!("adopt {name}"), "failed NOT_FOUND");
    program.does(&format!("discard {name}"), "failed NOT_FOUND");
    program.does(&format!("succeed {name} 0"), "failed NOT_FOUND");
    program.does("hand-back", "done 0");
    program.leave();
}

/// A user namespace that lives as long as a process in it.
struct Sandbox(Process);

impl Sandbox {
    fn make() -> Self {
        let mut command = Command::new("unshare");
        Self(Process::start(command.args(["--user", "sleep", "600"])))
    }

    /// How a program gets there.
    fn entered(&self) -> [String; 5] {
        let target = self.0.pid().to_string();
        ["nsenter", "--target", &target, "--user", "--preserve-credentials"].map(str::to_owned)
    }

    /// Its number, once it is there.
    fn number(&self, stage: &Stage) -> String {
        let namespace = |pid: Pid| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        let own = namespace(Pid::this());
        stage.wait_for("another user namespace", || namespace(self.0.pid()).is_some_and(|it| Some(it) != own));
        format!("{:?}", namespace(self.0.pid()))
    }
}

fn program_of(stage: &Stage, sandbox: &Sandbox) -> Program {
    let words = sandbox.entered();
    program_within(stage, &words.each_ref().map(String::as_str))
}

#[test]
fn another_user_namespace_of_the_same_user_gets_nothing_and_learns_nothing() {
    where_possible(&[SANDBOX], |stage| {
        start(stage);
        let mut owner = Program::with_memory(stage, ROOT);
        owner.does("escrow 1 weights", "done 1");
        owner.does("commit weights 7", "done 0");
        is_a_stranger(program_within(stage, SANDBOX), "weights");
        owner.kill_9();
        is_a_stranger(program_within(stage, SANDBOX), "weights");
        stage.kill_daemon();
        start(stage);
        is_a_stranger(program_within(stage, SANDBOX), "weights");
        Program::with_memory(stage, ROOT).does("adopt weights", "1 intact, done 1");
    });
}

#[test]
fn what_a_user_namespace_keeps_is_found_from_it_alone_and_never_from_a_later_one_with_its_number() {
    where_possible(&[SANDBOX], |stage| {
        start(stage);
        let sandbox = Sandbox::make();
        let number = sandbox.number(stage);
        let mut owner = program_of(stage, &sandbox);
        owner.does("escrow 1 weights", "done 1");
        owner.kill_9();
        stage.kill_daemon();
        start(stage);
        is_a_stranger(Program::with_memory(stage, ROOT), "weights");
        let mut next = program_of(stage, &sandbox);
        next.does("adopt weights", "1 intact, done 1");
        next.kill_9();
        // All its processes end. The kernel would give its number to the next one, if nobody held it open.
        drop(sandbox);
        stage.kill_daemon();
        start(stage);
        for _ in 0..20 {
            let later = Sandbox::make();
            assert_ne!(later.number(stage), number);
            let mut stranger = program_of(stage, &later);
            stranger.does("list", "done 0");
            stranger.does("adopt weights", "failed NOT_FOUND");
        }
        assert_eq!(stage.ask("vault list --json\n").lines().count(), 1, "it is kept for its time");
    });
}

fn containers() -> Result<[Container; 3], Skipped> {
    Ok([Container::make(POD, 1)?, Container::make(POD, 2)?, Container::make(OTHER_POD, 3)?])
}

/// Runs a test with two containers of one pod and one of another, where these and the places can be made.
fn in_containers(places: &[&[&str]], test: impl FnOnce(&mut Stage, [Container; 3])) {
    where_possible(places, |stage| match containers() {
        Ok(containers) => test(stage, containers),
        Err(skipped) => skipped.report(),
    });
}

#[test]
fn another_container_of_the_same_user_gets_nothing_and_learns_nothing() {
    in_containers(&[], |stage, [first, second, other_pod]| {
        start(stage);
        let mut owner = program_in(stage, &first);
        owner.does("escrow 1 weights", "done 1");
        owner.does("commit weights 7", "done 0");
        owner.kill_9();
        for turn in 0..2 {
            for place in [&second, &other_pod] {
                is_a_stranger(program_in(stage, place), "weights");
            }
            is_a_stranger(Program::with_memory(stage, ROOT), "weights");
            if turn == 0 {
                stage.kill_daemon();
                start(stage);
            }
        }
        let mut next = program_in(stage, &first);
        next.does("list", "1 orphaned, done 1");
        next.does("adopt weights", "1 intact, done 1");
    });
}

#[test]
fn with_the_scope_of_a_pod_its_next_container_finds_the_memory_and_another_pod_does_not() {
    in_containers(&[], |stage, [first, second, other_pod]| {
        stage.config("[vault]\nscope = \"pod\"\n");
        start(stage);
        let mut owner = program_in(stage, &first);
        owner.does("escrow 1 weights", "done 1");
        owner.kill_9();
        is_a_stranger(program_in(stage, &other_pod), "weights");
        is_a_stranger(Program::with_memory(stage, ROOT), "weights");
        let mut next = program_in(stage, &second);
        next.does("list", "1 orphaned, done 1");
        next.does("adopt weights", "1 intact, done 1");
    });
}

#[test]
fn memory_is_shared_between_containers_where_its_owner_named_it_so() {
    in_containers(&[], |stage, [first, second, other_pod]| {
        start(stage);
        let mut owner = program_in(stage, &first);
        for (key, name) in [(1, "pod:weights"), (2, "user:weights"), (3, "weights")] {
            owner.does(&format!("escrow {key} {name}"), "done 1");
        }
        owner.kill_9();
        let mut elsewhere = program_in(stage, &other_pod);
        elsewhere.does("list", "2 orphaned, done 1");
        elsewhere.does("adopt pod:weights", "failed NOT_FOUND");
        elsewhere.does("adopt user:weights", "2 intact, done 1");
        let mut sibling = program_in(stage, &second);
        sibling.does("adopt weights", "failed NOT_FOUND");
        sibling.does("adopt pod:weights", "1 intact, done 1");
    });
}

/// Takes out of the holder's notes what an earlier release does not write.
fn as_an_earlier_release_noted(stage: &Stage) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (holder, held) = HolderLink::attach(stage.pipe_dir()).await.expect("the holder");
        for held in held.into_iter().filter(|held| [Kind::REGION, Kind::NAME].contains(&held.kind)) {
            let state = match held.kind {
                Kind::REGION => {
                    let note = RegionNote::decode(held.state.as_slice()).expect("a note");
                    RegionNote { scope: None, ..note }.encode_to_vec()
                }
                _ => {
                    let note = NameNote::decode(held.state.as_slice()).expect("a note");
                    NameNote { scope: None, ..note }.encode_to_vec()
                }
            };
            holder.update(held.key, &state).expect("it is told");
        }
    });
}

#[test]
fn what_an_earlier_release_kept_stays_in_the_hands_of_who_had_it() {
    in_containers(&[SANDBOX], |stage, [first, second, _]| {
        start(stage);
        let (mut living, mut dead) = (program_in(stage, &first), program_in(stage, &first));
        living.does("escrow 1 living", "done 1");
        living.does("commit living 7", "done 0");
        dead.does("escrow 2 dead", "done 1");
        dead.kill_9();
        let sandbox = Sandbox::make();
        sandbox.number(stage);
        let mut hidden = program_of(stage, &sandbox);
        hidden.does("escrow 3 hidden", "done 1");
        stage.kill_daemon();
        as_an_earlier_release_noted(stage);
        start(stage);
        living.does("hand-back", "1 intact, done 1");
        hidden.does("hand-back", "3 intact, done 1");
        living.kill_9();
        hidden.kill_9();
        for name in ["living", "dead", "hidden"] {
            program_in(stage, &second).does(&format!("adopt {name}"), "failed NOT_FOUND");
        }
        Program::with_memory(stage, ROOT).does("adopt hidden", "failed NOT_FOUND");
        program_of(stage, &sandbox).does("adopt hidden", "3 intact, done 1");
        let mut next = program_in(stage, &first);
        next.does("adopt dead", "2 intact, done 1");
        next.does("adopt living", "1 intact, done 1");
    });
}

#[test]
fn root_of_a_container_reads_nothing_of_others_out_of_vault_list() {
    in_containers(&[PIDS], |stage, [first, ..]| {
        start(stage);
        let mut owner = program_in(stage, &first);
        owner.does("escrow 1 weights", "done 1");
        assert_eq!(ask_within(stage, PIDS, "vault list --json\n"), "", "root's number, in no container");
        assert_eq!(stage.ask("vault list --json\n").lines().count(), 1, "the owner sees all");
    });
}
