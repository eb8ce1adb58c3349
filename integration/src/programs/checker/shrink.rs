//! A shorter program that shows the same mistake: first without whole pieces of its list, then with smaller numbers.

use super::program::{Op, Program, Queue, What};

/// Tries to make a program smaller as long as `still` says of a candidate that it shows the mistake; at most so many.
pub(super) fn shrink(program: &Program, mut tries: usize, mut still: impl FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    let mut ask = |candidate: &Program| {
        let may = tries > 0;
        tries = tries.saturating_sub(1);
        may && still(candidate)
    };
    let mut piece = best.ops.len().next_power_of_two();
    while piece > 0 {
        let mut at = 0;
        let mut is_smaller = false;
        while at < best.ops.len() {
            let end = (at + piece).min(best.ops.len());
            let mut candidate = best.clone();
            candidate.ops.drain(at..end);
            if ask(&candidate) {
                best = candidate;
                is_smaller = true;
            } else {
                at = end;
            }
        }
        if !is_smaller || piece > 1 {
            piece /= 2;
        }
    }
    for at in 0..best.ops.len() {
        for op in simpler(&best.ops[at]) {
            let mut candidate = best.clone();
            candidate.ops[at] = op;
            if ask(&candidate) {
                best = candidate;
            }
        }
    }
    best
}

/// Operations that say less.
fn simpler(op: &Op) -> Vec<Op> {
    let mut found = Vec::new();
    if op.thread != 0 {
        found.push(Op { thread: 0, what: op.what.clone() });
    }
    let with = |what: What| Op { thread: op.thread, what };
    let one = |on: Queue| if on == Queue::Null(0) { None } else { Some(Queue::Null(0)) };
    if let What::Mix { to, from, cells, key, on } = op.what {
        if cells > 1 {
            found.push(with(What::Mix { to, from, cells: 1, key, on }));
        }
        found.extend(one(on).map(|on| with(What::Mix { to, from, cells, key, on })));
    }
    if let What::MixBesides { to, from, cells, key, on, ended, begun, is_early } = op.what {
        let besides = |ended, begun, is_early| What::MixBesides { to, from, cells, key, on, ended, begun, is_early };
        found.push(with(What::Mix { to, from, cells, key, on }));
        found.push(with(besides(None, begun, is_early)));
        found.push(with(besides(ended, None, is_early)));
        found.push(with(besides(ended, begun, false)));
    }
    if let What::RecordAll { event, is_away: true } = op.what {
        found.push(with(What::RecordAll { event, is_away: false }));
    }
    if let What::AwaitAll { event, is_away: true } = op.what {
        found.push(with(What::AwaitAll { event, is_away: false }));
    }
    if let What::Copy { to, from, cells, on, is_async, is_generic } = op.what {
        if cells > 1 {
            found.push(with(What::Copy { to, from, cells: 1, on, is_async, is_generic }));
        }
        if is_generic {
            found.push(with(What::Copy { to, from, cells, on, is_async, is_generic: false }));
        }
    }
    if let What::Batch { copies, stream } = &op.what {
        for left_out in 0..copies.len() {
            let mut copies = copies.clone();
            copies.remove(left_out);
            found.push(with(What::Batch { copies, stream: *stream }));
        }
    }
    if let What::MakeGraph { graph, stream, is_captured, nodes } = &op.what {
        for left_out in 0..nodes.len() {
            let mut nodes = nodes.clone();
            nodes.remove(left_out);
            found.push(with(What::MakeGraph { graph: *graph, stream: *stream, is_captured: *is_captured, nodes }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_mistake_needs_is_left() {
        let release = |which| Op { thread: 1, what: What::Release { which } };
        let program = Program { ops: (0..100).map(release).collect() };
        let has = |program: &Program, which| program.ops.iter().any(|op| op.what == What::Release { which });
        let small = shrink(&program, 1000, |candidate| has(candidate, 17) && has(candidate, 80));
        let ops: Vec<Op> = [17, 80].map(|which| Op { thread: 0, what: What::Release { which } }).to_vec();
        assert_eq!(small.ops, ops);
        assert_eq!(shrink(&program, 0, |_| true).ops.len(), 100);
    }
}
