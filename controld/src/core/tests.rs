//! The core in virtual time: directed tests of single rules, and a world of random servers, clients and operators that
//! checks the invariants of the module header after every step.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one effect among all")]

mod awaited_end;
mod barren;
mod behind;
mod blame;
mod bounds;
mod burials;
mod census;
mod early_end;
mod fate;
mod faults;
mod forged;
mod found;
mod gpus;
mod held;
mod joined;
mod late_identity;
mod named;
mod newcomers;
mod orders;
mod picture;
mod quarantine;
mod recoveries;
mod rest;
mod rules;
mod scene;
mod silence;
mod spares;
mod suspicion;
mod whereabouts;
mod world;

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use world::{Action, World};

/// How many cases of each random test the long run takes.
const LONG_CASES: u32 = 200_000;

fn action() -> impl Strategy<Value = Action> {
    let uid = prop::sample::select(vec![0u32, 1000, 1001]);
    prop_oneof![
        5 => (uid.clone(), 0u32..6).prop_map(|(uid, slot)| Action::ClientArrives { uid, slot }),
        3 => (0usize..8).prop_map(Action::ClientFinishes),
        2 => (0usize..8).prop_map(Action::ProcessEnds),
        4 => (0usize..4).prop_map(Action::ServerHello),
        4 => (0usize..8).prop_map(Action::ServerGreets),
        2 => (0usize..4, 0i32..3).prop_map(|(index, status)| Action::ServerDies { index, status }),
        1 => any::<bool>().prop_map(Action::SpawningWorks),
        6 => (0usize..8).prop_map(Action::ServerAnswers),
        1 => (0usize..8).prop_map(Action::ServerIsSilent),
        3 => (0usize..4).prop_map(Action::CatchesUp),
        4 => (uid, 0usize..world::COMMANDS.len()).prop_map(|(uid, command)| Action::Command { uid, command }),
        6 => (1u64..3000).prop_map(Action::TimePasses),
        1 => Just(Action::Restart),
        1 => (0usize..8).prop_map(Action::MemoryFault),
        1 => (0usize..4, 0usize..8).prop_map(|(server, named)| Action::Exception { server, named }),
        1 => (0usize..4, forged(), 0u16..60).prop_map(|(server, named, count)| Action::ForgedRecords {
            server,
            named,
            count
        }),
        1 => (0usize..8).prop_map(Action::IsolatedFault),
        3 => (0usize..8, any::<bool>()).prop_map(|(index, there)| Action::AddressSpace { index, there }),
        2 => (0usize..8).prop_map(Action::SuddenDeath),
        3 => (0usize..8, 0u32..6).prop_map(|(index, stage)| Action::RecoveryStands { index, stage }),
    ]
}

/// The same where root makes and removes servers and namespaces, and clients come to them.
fn named_action() -> impl Strategy<Value = Action> {
    let uid = prop::sample::select(vec![0u32, 1000, 1001]);
    prop_oneof![
        6 => action(),
        4 => (0usize..world::CHANGES.len()).prop_map(Action::Names),
        4 => (uid, 0u32..6, 0usize..4)
            .prop_map(|(uid, slot, entrance)| Action::ClientComesTo { uid, slot, entrance }),
        1 => any::<bool>().prop_map(Action::OpeningWorks),
    ]
}

/// What can happen where thin daemons join, and changes may be kept on disk.
fn joined_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => named_action(),
        3 => (0usize..world::CLAIMS.len(), any::<bool>())
            .prop_map(|(claim, is_same_place)| Action::Joins { claim, is_same_place }),
        1 => (0usize..3).prop_map(Action::ThinDies),
        1 => (0usize..3).prop_map(Action::ThinLeaves),
        2 => (0usize..3, 0usize..world::SAID.len()).prop_map(|(index, line)| Action::ThinIsTold { index, line }),
        1 => Just(Action::Keeps),
    ]
}

/// Whom a forged record names: anybody who may be a client, or nobody that exists.
fn forged() -> impl Strategy<Value = Option<Pid>> {
    prop::option::of(prop_oneof![3 => 1u32..7, 3 => 10_001u32..10_020, 1 => any::<u32>()])
}

fn sharing() -> impl Strategy<Value = Sharing> {
    prop::sample::select(vec![Sharing::PerUser, Sharing::Single, Sharing::MultiUser])
}

fn policy() -> impl Strategy<Value = Policy> {
    // How many clients a domain may have, and whether one more is refused.
    let most = prop::option::weighted(0.3, (1usize..4, any::<bool>()));
    let ends_early = prop::sample::select(vec![EndTainted::WhenSpared, EndTainted::Always]);
    (most, any::<bool>(), any::<bool>(), any::<bool>(), ends_early).prop_map(
        |(most, standby, ends, breaks, end_tainted)| {
            let max_clients = most.filter(|(_, shared)| !shared).map(|(most, _)| most);
            let shared_by = most.filter(|(_, shared)| *shared).map(|(most, _)| most);
            let faults = FaultPolicy {
                culprit: if ends { CulpritAction::Terminate } else { CulpritAction::Report },
                victims: if ends { VictimAction::Terminate } else { VictimAction::Wait },
                quarantine_after: 2,
                ..FaultPolicy::default()
            };
            let failures = if breaks { 3 } else { 0 };
            let pause = Duration::from_secs(5);
            let constants = Constants { breaker_failures: failures, breaker_pause: pause, ..Constants::default() };
            let group = GroupPolicy { max_clients, shared_by, standby, ..GroupPolicy::default() };
            let default = DomainPolicy { group, faults };
            let domains = DomainPolicies { default, overrides: Vec::new() };
            Policy { domains, constants, end_tainted, ..Policy::default() }
        },
    )
}

/// The same cases in every run of `cargo test`, whose seed `.cargo/config.toml` has, and others when the environment
/// says so; the long run takes many that nobody has seen, and says how to see them again.
fn config(cases: u32) -> ProptestConfig {
    let is_long = std::env::var_os("REMPS_LONG").is_some_and(|value| value == "1");
    let mut config = ProptestConfig { source_file: Some(file!()), ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = if is_long { LONG_CASES } else { cases };
    }
    // Each step to a smaller counterexample is a case, too.
    config.max_shrink_iters = 10_000;
    if is_long {
        let seed = RandomState::new().build_hasher().finish();
        // Not by `println`, which is shown of a test that fails alone.
        let again = format!("the same again: PROPTEST_CASES={} PROPTEST_RNG_SEED={seed}", config.cases);
        writeln!(std::io::stderr(), "{again}").expect("standard error is open");
        config.rng_seed = RngSeed::Fixed(seed);
    }
    config
}

/// A counterexample is kept in `proptest-regressions/core/tests.txt`, and is tried first from then on.
fn holds<S: Strategy>(cases: u32, values: &S, test: impl Fn(S::Value)) {
    let mut runner = TestRunner::new(config(cases));
    let outcome = runner.run(values, |value| {
        test(value);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}\n{runner}"));
}

fn worlds(longest: usize) -> impl Strategy<Value = (Sharing, Policy, Vec<Action>)> {
    (sharing(), policy(), prop::collection::vec(action(), 1..longest))
}

fn world_after(sharing: Sharing, policy: Policy, actions: impl IntoIterator<Item = Action>) -> World {
    let mut world = World::new(sharing, policy);
    for action in actions {
        world.act(action);
    }
    world
}

fn comes_to_its_end(mut world: World) {
    world.settle();
    world.check_nobody_waits();
    world.check_nothing_is_held();
}

#[test]
fn no_order_of_events_breaks_an_invariant() {
    holds(400, &worlds(120), |(sharing, policy, actions)| comes_to_its_end(world_after(sharing, policy, actions)));
}

/// Some clients are on one GPU, some on another, some on both; which server has whom is as random as everything else.
#[test]
fn on_two_gpus_no_order_of_events_harms_who_has_nothing_on_the_gpu_of_a_fault() {
    holds(400, &worlds(120), |(sharing, policy, actions)| {
        let mut world = World::with_gpus(sharing, policy);
        world.populate();
        actions.into_iter().for_each(|action| world.act(action));
        comes_to_its_end(world);
    });
}

/// Namespaces come and go, with clients, faults, restarts and full disks.
#[test]
fn no_order_of_events_leads_a_namespaces_clients_elsewhere() {
    let worlds = (sharing(), policy(), prop::collection::vec(named_action(), 1..120));
    holds(400, &worlds, |(sharing, policy, actions)| comes_to_its_end(world_after(sharing, policy, actions)));
}

/// The same with thin daemons that join, die and come back, and with changes that are kept on disk before they are made.
#[test]
fn no_order_of_events_leaves_a_claim_without_its_socket_or_with_two_daemons() {
    let worlds = (sharing(), policy(), prop::collection::vec(joined_action(), 1..120));
    holds(400, &worlds, |(sharing, policy, actions)| comes_to_its_end(world_after(sharing, policy, actions)));
}

#[test]
fn quitting_always_ends() {
    holds(400, &(worlds(60), 0u64..5), |((sharing, policy, actions), timeout)| {
        world_after(sharing, policy, actions).quit_and_end(timeout);
    });
}
