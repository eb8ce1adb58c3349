//! Sets of operations, and what one of them does.

use super::super::program::{Place, Program};

/// A set of operations by their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Ops([u64; Program::MOST / 64]);

impl Ops {
    /// Adds one.
    pub(in super::super) fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Takes one out.
    pub(in super::super) fn remove(&mut self, at: usize) {
        self.0[at / 64] &= !(1 << (at % 64));
    }

    /// Whether it is in.
    pub(in super::super) fn contains(&self, at: usize) -> bool {
        self.0[at / 64] & 1 << (at % 64) != 0
    }

    /// Both together.
    pub(in super::super) fn with(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(mine, others)| *mine |= others);
        self
    }

    /// Without those of the other.
    pub(in super::super) fn without(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(mine, others)| *mine &= !others);
        self
    }

    /// Their indices.
    pub(in super::super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..Program::MOST).filter(|at| self.contains(*at))
    }
}

/// What one piece of work reads and writes, by cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct Effect {
    pub(in super::super) reads: Vec<u16>,
    pub(in super::super) writes: Vec<u16>,
}

/// An operation that is done.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Step {
    /// What it does to memory, one after the other.
    pub(in super::super) effects: Vec<Effect>,
    /// Goes on after the call.
    pub(in super::super) is_work: bool,
    /// Its call gives the GPU one thing after the other, so one that fails may have given some.
    pub(in super::super) is_many: bool,
    /// What its success proves to be done.
    pub(in super::super) proves: Ops,
    /// What is proven on the way there, device by device.
    pub(in super::super) stages: Vec<Ops>,
    /// Holds that are released before it, by their index.
    pub(in super::super) releases: Vec<usize>,
    /// Of a read: block and cell of the block, and the cell.
    pub(in super::super) reads: Vec<(Place, u16)>,
    /// The device on whose context it works.
    pub(in super::super) device: u8,
}
