//! What random tests have found and something like it, each as a story with a name: a seed means something else when
//! these tests change.

use super::*;

/// Found by chance: its first server is left for another one, and a forged record takes it back from there.
#[test]
fn a_process_between_two_servers_keeps_out_nobody_when_it_has_ended() {
    let actions = [
        Action::ClientArrives { uid: 0, slot: 5 },
        Action::ClientArrives { uid: 0, slot: 5 },
        Action::ServerHello(0),
        Action::ClientFinishes(0),
        Action::ClientArrives { uid: 1000, slot: 0 },
        Action::ClientArrives { uid: 0, slot: 0 },
        Action::TimePasses(2000),
        Action::CatchesUp(0),
        Action::ServerHello(0),
        Action::ForgedRecords { server: 1, named: Some(6), count: 1 },
        Action::ServerGreets(0),
        Action::SuddenDeath(0),
        Action::ClientFinishes(0),
    ];
    comes_to_its_end(world_after(Sharing::Single, Policy::default(), actions));
}

/// A process moves from a silent server to another one, and a successor is told of it by both.
#[test]
fn who_joins_a_process_that_two_servers_name_waits_until_its_server_is_known_to_be_sound() {
    let uid = 1000;
    let (mover, other, joiner) = (0, 1, 2);
    let actions = [
        Action::ClientArrives { uid, slot: mover },
        Action::ServerHello(0),
        Action::ServerGreets(0),
        Action::ClientFinishes(0),
        Action::ClientArrives { uid, slot: other },
        Action::TimePasses(12),
        Action::TimePasses(1000),
        Action::CatchesUp(0),
        Action::ServerHello(0),
        Action::ClientArrives { uid, slot: mover },
        Action::TimePasses(12),
        Action::ServerAnswers(2),
        Action::ServerGreets(0),
        Action::ServerGreets(0),
        Action::ClientFinishes(0),
        Action::ClientFinishes(0),
        Action::ProcessEnds(1),
        Action::Restart,
        Action::ServerAnswers(0),
        Action::ServerAnswers(0),
        Action::ClientArrives { uid, slot: joiner },
    ];
    comes_to_its_end(world_after(Sharing::PerUser, Policy::default(), actions));
}

/// Found by chance: a process with contexts on both GPUs carries the fault of one to the other, and then leaves for
/// another server, before anybody is told who was hit.
#[test]
fn where_a_process_has_carried_a_fault_stays_hit_when_it_has_gone_to_another_server() {
    let both = Action::ClientArrives { uid: 1000, slot: 1 };
    let newcomer = Action::ClientArrives { uid: 0, slot: 0 };
    let on_first_gpu = Action::Exception { server: 0, named: 0 };
    let mut world = World::with_gpus(Sharing::MultiUser, Policy::default());
    world.populate();
    for action in [both, on_first_gpu, newcomer, Action::ServerAnswers(0), Action::ServerHello(1)] {
        world.act(action);
    }
    comes_to_its_end(world);
}

/// Found by chance: its server has died, and it has left again before the next one, in a fault by then, knew of it.
#[test]
fn a_server_that_a_process_has_nothing_on_yet_is_not_kept_for_it() {
    let group = GroupPolicy { max_clients: Some(1), ..GroupPolicy::default() };
    let domains = DomainPolicies { default: DomainPolicy { group, ..DomainPolicy::default() }, overrides: vec![] };
    let mut world = World::with_gpus(Sharing::PerUser, Policy { domains, ..Policy::default() });
    world.populate();
    for action in [
        Action::ClientArrives { uid: 1000, slot: 0 },
        Action::ServerDies { index: 0, status: 0 },
        Action::Exception { server: 1, named: 0 },
        Action::ServerHello(0),
        Action::SpawningWorks(false),
        Action::Exception { server: 2, named: 0 },
        Action::TimePasses(500),
        Action::ClientArrives { uid: 0, slot: 0 },
        Action::ClientFinishes(0),
        Action::CatchesUp(1),
    ] {
        world.act(action);
    }
    comes_to_its_end(world);
}

/// Found by chance: it goes from a server in a fault to the standby, which dies before it has taken it in.
#[test]
fn who_comes_back_to_a_server_in_a_fault_has_what_he_had_there() {
    let group = GroupPolicy { standby: true, ..GroupPolicy::default() };
    let domains = DomainPolicies { default: DomainPolicy { group, ..DomainPolicy::default() }, overrides: vec![] };
    let mut world = World::with_gpus(Sharing::MultiUser, Policy { domains, ..Policy::default() });
    world.populate();
    for action in [
        Action::Exception { server: 0, named: 0 },
        Action::ClientArrives { uid: 1000, slot: 0 },
        Action::ServerAnswers(0),
        Action::ServerDies { index: 1, status: 0 },
        Action::TimePasses(500),
    ] {
        world.act(action);
    }
    comes_to_its_end(world);
}

/// Found by chance: its server has died, and the next one has its own connection and no context of it when that one says
/// nothing any more.
#[test]
fn a_process_whose_server_has_died_begins_anew_on_the_next_one() {
    let arrives = |uid, slot| Action::ClientArrives { uid, slot };
    let mut world = World::with_gpus(Sharing::MultiUser, Policy::default());
    world.populate();
    let before = [arrives(0, 1), Action::ServerDies { index: 0, status: 0 }, arrives(0, 0), arrives(1000, 0)];
    let then = [Action::ServerHello(0), Action::ServerGreets(2), arrives(0, 3), arrives(0, 0), arrives(0, 2)];
    let last = [arrives(1000, 0), Action::ClientFinishes(0), Action::ClientFinishes(1), Action::SuddenDeath(0)];
    for action in before.into_iter().chain(then).chain(last) {
        world.act(action);
    }
    for ms in [1274, 2313, 2454, 1209, 2750] {
        world.act(Action::TimePasses(ms));
    }
    comes_to_its_end(world);
}

/// Found by chance: its own connection was under way at the fault, is let in all the same, and has no context yet when the
/// verdict is given. That another client's fault was isolated before changes nothing.
#[test]
fn who_was_let_in_during_a_fault_and_has_no_context_yet_is_no_victim() {
    for sharing in [Sharing::PerUser, Sharing::MultiUser, Sharing::Single] {
        for (before, answer) in [(None, 0), (Some(Action::IsolatedFault(0)), 1)] {
            let mut world = World::with_gpus(sharing, Policy::default());
            world.populate();
            before.into_iter().for_each(|action| world.act(action));
            for action in [
                Action::ClientArrives { uid: 1000, slot: 3 },
                Action::ServerGreets(0),
                Action::ServerAnswers(answer),
                Action::Exception { server: 0, named: 0 },
            ] {
                world.act(action);
            }
            comes_to_its_end(world);
        }
    }
}

/// Found by chance: the kernel tells of a fault on the first GPU, its server says nothing for as long as signs are kept,
/// and then one of its clients faults on the second.
#[test]
fn a_fault_of_which_a_server_has_said_nothing_is_not_forgotten_for_one_elsewhere() {
    for last in [Action::SpawningWorks(true), Action::Restart] {
        let mut world = World::with_gpus(Sharing::PerUser, Policy::default());
        world.populate();
        for action in [
            Action::ClientArrives { uid: 1000, slot: 2 },
            Action::Exception { server: 0, named: 0 },
            Action::SuddenDeath(1),
            Action::TimePasses(10_000),
            Action::MemoryFault(0),
            last,
        ] {
            world.act(action);
        }
        comes_to_its_end(world);
    }
}

/// Found by chance: a client that a fault has left alone makes one itself right after the daemon was killed, and the
/// successor does not know yet whose word of it that is.
#[test]
fn a_fault_that_a_successor_could_not_hear_of_has_hit_nobody_for_all_that_it_knows() {
    let mut world = World::with_gpus(Sharing::MultiUser, Policy::default());
    world.populate();
    for action in [
        Action::ProcessEnds(1),
        Action::MemoryFault(0),
        Action::ClientArrives { uid: 1000, slot: 2 },
        Action::Restart,
        Action::MemoryFault(1),
    ] {
        world.act(action);
    }
    comes_to_its_end(world);
}

/// Found by chance: a silent server is in a fault on the second GPU, which a client has carried to the first one and died
/// long before the server says so.
#[test]
fn where_a_fault_was_carried_is_not_forgotten_when_its_server_says_so_late() {
    let group = GroupPolicy { standby: true, ..GroupPolicy::default() };
    let domains = DomainPolicies { default: DomainPolicy { group, ..DomainPolicy::default() }, overrides: vec![] };
    let mut world = World::with_gpus(Sharing::MultiUser, Policy { domains, ..Policy::default() });
    world.populate();
    for action in [
        Action::ClientArrives { uid: 0, slot: 0 },
        Action::ProcessEnds(0),
        Action::TimePasses(1000),
        Action::CatchesUp(0),
        Action::Exception { server: 0, named: 1 },
        Action::ClientArrives { uid: 1000, slot: 2 },
        Action::SuddenDeath(1),
        Action::ProcessEnds(0),
        Action::TimePasses(2001),
    ] {
        world.act(action);
    }
    comes_to_its_end(world);
}

/// Hardly found by chance: its pid was that of a client that has ended there, and it has nothing on the GPU of the fault.
#[test]
fn who_has_the_pid_of_one_that_was_there_before_is_no_victim_of_a_fault_elsewhere() {
    let mut world = World::with_gpus(Sharing::PerUser, Policy::default());
    world.populate();
    // The first of the two would carry the fault to the other's GPU.
    for _ in 0..2 {
        world.act(Action::ProcessEnds(1));
    }
    for _ in 0..2 {
        world.act(Action::ClientArrives { uid: 1000, slot: 2 });
        world.settle();
    }
    world.act(Action::MemoryFault(0));
    comes_to_its_end(world);
}

/// Found by chance: of what a process that has died had open, one is sent on when the one before it is closed.
#[test]
fn what_a_process_has_left_open_may_be_sent_on_before_it_is_closed_too() {
    let (uid, slot, entrance) = (0, 1, 0);
    let actions = [
        Action::Names(3),
        Action::ClientComesTo { uid, slot, entrance },
        Action::ClientArrives { uid, slot },
        Action::ServerHello(0),
        Action::ClientArrives { uid, slot },
        Action::Exception { server: 0, named: 0 },
        Action::ClientComesTo { uid, slot, entrance },
        Action::ServerHello(0),
        Action::ServerAnswers(0),
        Action::SuddenDeath(0),
    ];
    let group = GroupPolicy { standby: true, ..GroupPolicy::default() };
    let default = DomainPolicy { group, ..DomainPolicy::default() };
    let domains = DomainPolicies { default, overrides: Vec::new() };
    comes_to_its_end(world_after(Sharing::PerUser, Policy { domains, ..Policy::default() }, actions));
}
