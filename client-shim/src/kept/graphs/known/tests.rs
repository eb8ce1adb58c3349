//! Which graphs there are, after what was done to them.

use crate::cuda::moved::Moves;

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::plan::{Edge, Node, Plan, Work},
    Graphs,
};

fn node(handle: usize, work: Work) -> Node {
    Node { handle, work: Arc::new(work) }
}

fn edge(from: usize, to: usize) -> Edge {
    Edge { from, to, data: [0; 8] }
}

/// Two nodes, one after the other.
fn plan(first: usize) -> Plan {
    let nodes = [node(first, Work::Record { event: 0xe0 }), node(first + 1, Work::Empty)];
    Plan { nodes: nodes.into_iter().collect(), edges: [edge(first, first + 1)].into_iter().collect() }
}

/// One node.
fn alone(node: Node) -> Plan {
    Plan { nodes: [node].into_iter().collect(), ..Plan::default() }
}

#[test]
fn an_executable_graph_does_what_its_graph_did_when_it_was_made() {
    let mut graphs = Graphs::default();
    assert!(graphs.keep(1, plan(10)));
    assert!(graphs.instantiate(100, 1, 0xc0, 0));
    assert!(graphs.change(10, Work::Wait { event: 0xe1 }));
    assert!(graphs.add(1, node(12, Work::Empty), vec![edge(11, 12)]));
    let (all, executables) = graphs.all();
    assert_eq!((all[0].1.nodes.len(), executables[0].1.plan.clone()), (3, plan(10)));
    assert!(!executables[0].1.plan.has_nodes_of(&all[0].1));
    assert!(graphs.forget(1).is_some());
    assert_eq!(graphs.counts(), [0, 1]);
    graphs.forget_context(0xc0, &BTreeSet::new());
    assert_eq!((graphs.counts(), graphs.bytes), ([0, 0], 0));
}

/// Nothing of it can be made again in another context, and the program may still destroy it.
#[test]
fn a_graph_that_works_with_what_has_ended_with_a_context_has_no_nodes_any_more() {
    let mut graphs = Graphs::default();
    graphs.keep(1, plan(10));
    graphs.keep(2, alone(node(20, Work::Set { words: [0; 5], context: 0xc0 })));
    graphs.keep(3, alone(node(30, Work::Empty)));
    for (executable, graph, context) in [(100, 1, 0xc1), (101, 2, 0xc1), (102, 3, 0xc1), (103, 3, 0xc0)] {
        graphs.instantiate(executable, graph, context, 0);
    }
    assert_eq!(graphs.names(), BTreeSet::from([0xc0, 0xe0]));
    let before = graphs.changes();
    graphs.forget_context(0xc0, &BTreeSet::from([0xe0]));
    let (all, executables) = graphs.all();
    assert_eq!(
        all.iter().map(|(graph, plan)| (*graph, plan.nodes.len())).collect::<Vec<_>>(),
        [(1, 0), (2, 0), (3, 1)]
    );
    assert_eq!(executables.iter().map(|(executable, _)| *executable).collect::<Vec<_>>(), [102]);
    assert_eq!(graphs.changed_since(before), BTreeSet::from([1, 2]), "a spare copy makes them anew");
    (1..4).for_each(|graph| drop(graphs.forget(graph)));
    graphs.forget_executable(102);
    assert_eq!(graphs.bytes, 0);
}

#[test]
fn an_update_by_a_graph_that_is_alike_keeps_the_names_of_nodes() {
    let mut graphs = Graphs::default();
    graphs.keep(1, plan(10));
    graphs.instantiate(100, 1, 0xc0, 0);
    graphs.enable(100, 11, false);
    let mut other = plan(20);
    *other.work_of(20).unwrap() = Arc::new(Work::Wait { event: 0xe1 });
    graphs.keep(2, other);
    assert!(graphs.update(100, 2));
    let (_, executables) = graphs.all();
    let (_, updated) = &executables[0];
    assert_eq!((updated.of, updated.plan.nodes.get(10)), (1, Some(&node(10, Work::Wait { event: 0xe1 }))));
    assert_eq!((updated.plan.edges.iter().next(), updated.disabled.len()), (Some(edge(10, 11)), 1));
    let mut reversed = plan(30);
    reversed.edges = [edge(31, 30)].into_iter().collect();
    graphs.keep(3, reversed.clone());
    assert!(graphs.update(100, 3));
    assert_eq!((graphs.all().1[0].1.of, graphs.all().1[0].1.plan.clone()), (3, reversed));
    assert!(!graphs.update(100, 99), "nobody knows that graph");
}

#[test]
fn parts_are_found_at_any_depth_and_everything_is_renamed() {
    let mut graphs = Graphs::default();
    let child = Work::Child { graph: 5, plan: plan(50) };
    graphs.keep(1, alone(node(10, child)));
    assert_eq!([1, 10, 5, 51, 99].map(|handle| graphs.around(handle)), [Some(1), Some(1), Some(1), Some(1), None]);
    graphs.instantiate(100, 1, 0xc0, 7);
    graphs.rename(|handle| handle + 0x1000, &Moves::default());
    assert_eq!(graphs.around(0x1000 + 51), Some(0x1001));
    let (_, executables) = graphs.all();
    assert_eq!((executables[0].0, executables[0].1.of, executables[0].1.context), (0x1064, 0x1001, 0x10c0));
    let bytes = graphs.bytes;
    assert!(bytes > 0);
    graphs.keep(0x1001, Plan::default());
    graphs.forget(0x1001);
    graphs.forget_executable(0x1064);
    assert_eq!(graphs.bytes, 0);
}

#[test]
fn what_changes_again_and_again_does_not_hide_what_stays() {
    let mut graphs = Graphs::default();
    graphs.keep(1, plan(10));
    graphs.instantiate(100, 1, 0xc0, 0);
    graphs.instantiate(200, 1, 0xc0, 0);
    let before = graphs.changes();
    let seen = graphs.last_until(before);
    assert_eq!((seen, graphs.changed_since(before).len(), graphs.last_until(0)), (before, 0, 0));
    assert_eq!(graphs.changed_since(0).into_iter().collect::<Vec<_>>(), [1, 100, 200]);
    let mut last = before;
    let mut looks = Vec::new();
    for round in 0..3 {
        graphs.change_executable(200, 10, Arc::new(Work::Wait { event: 0xe1 + round }));
        graphs.instantiate(300, 1, 0xc0, 0);
        graphs.forget_executable(300);
        looks.push((graphs.last_until(last), graphs.changed_since(last)));
        last = graphs.changes();
    }
    // That executable graph has counted for the last change before.
    assert!(looks.iter().all(|look| *look == (looks[0].0, [].into())) && looks[0].0 < seen);
    assert_eq!(
        (graphs.last_until(last), graphs.changed_since(last).len()),
        (last, 0),
        "an end counts once it is quiet"
    );
    graphs.change(10, Work::Empty);
    graphs.instantiate(100, 1, 0xc0, 0);
    assert_eq!(graphs.changed_since(last), [1, 100].into());
}

/// What is known of a graph that embeds another one, and of that, after each kind of edit of either.
#[test]
fn an_edit_changes_what_it_says_at_any_depth_and_an_executable_form_keeps_what_it_had() {
    let mut graphs = Graphs::default();
    let child = |plan| Work::Child { graph: 5, plan };
    graphs.keep(1, alone(node(10, child(plan(50)))));
    graphs.instantiate(100, 1, 0xc0, 0);
    let (before, bytes) = (graphs.changes(), graphs.bytes);
    assert!(graphs.add(5, node(52, Work::Empty), vec![edge(51, 52)]));
    assert!(graphs.change(50, Work::Set { words: [0; 5], context: 0xc1 }));
    assert!(graphs.connect(5, &[edge(50, 52), edge(50, 52)]));
    graphs.disconnect(5, &[edge(50, 51), edge(52, 50)]);
    let expected = Plan {
        nodes: [node(50, Work::Set { words: [0; 5], context: 0xc1 }), node(51, Work::Empty), node(52, Work::Empty)]
            .into_iter()
            .collect(),
        edges: [edge(51, 52), edge(50, 52)].into_iter().collect(),
    };
    assert_eq!(graphs.described(5), Some(&expected));
    assert_eq!((graphs.around(52), graphs.changed_since(before)), (Some(1), [1].into()));
    let (graph, taken) = graphs.take_node(51).unwrap();
    assert_eq!((graph, graphs.around(51), graphs.described(5).unwrap().edges.len()), (5, None, 1));
    graphs.put_node_back(graph, taken);
    assert_eq!(graphs.described(5), Some(&expected), "it is where it was");
    assert!(graphs.take_node(52).is_some() && graphs.take_node(52).is_none());
    assert!(graphs.take_node(10).is_some());
    assert_eq!((graphs.around(5), graphs.around(50), graphs.plan(1)), (None, None, Some(&Plan::default())));
    assert_eq!(graphs.all().1[0].1.plan, alone(node(10, child(plan(50)))));
    graphs.forget_executable(100);
    assert_eq!((graphs.bytes, bytes > 0), (0, true));
}

#[test]
fn a_graph_that_is_not_kept_is_edited_without_a_trace() {
    let mut graphs = Graphs::default();
    assert!(graphs.add(1, node(10, Work::Empty), Vec::new()) && graphs.change(10, Work::Empty));
    assert!(graphs.connect(1, &[edge(10, 11)]) && graphs.take_node(10).is_none());
    graphs.disconnect(1, &[edge(10, 11)]);
    assert_eq!((graphs.around(10), graphs.bytes), (None, 0));
}
