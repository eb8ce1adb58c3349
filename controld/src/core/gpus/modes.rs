//! Which compute modes are changed, and given back.
//!
//! A mode is set when the GPU is seen for the first time, and given back at the end if it still is what was set. Whoever
//! else changes it has his way: the GPU is left alone from then on. What was there before is noted with the holder before
//! anything is changed, so that a successor goes on with it, and the holder gives it back when none comes. Of several
//! daemons of a machine the last one to end gives it back, which the driver finds out.

use super::{GpuSeen, Gpus};
use crate::core::effect::Turn;
use crate::core::events::ModeCause;
use crate::core::gpu::{ComputeMode, ManagedMode, ModeChange, ModeOutcome, ModeStage};
use crate::core::{Effect, JournalEvent};
use std::collections::BTreeMap;

/// What the daemon gives every GPU that it manages.
const WANTED: ComputeMode = ComputeMode::DEFAULT;

#[derive(Debug)]
struct Managed {
    original: ComputeMode,
    stage: ModeStage,
    /// Whether this daemon has tried to set it, and need not again.
    is_tried: bool,
}

impl Managed {
    fn is_owed(&self) -> bool {
        self.stage != ModeStage::Left && self.original != WANTED
    }
}

/// The GPUs whose modes are looked after, and whether they are being given back.
#[derive(Debug, Default)]
pub(super) struct Modes {
    gpus: BTreeMap<String, Managed>,
    is_giving_back: bool,
}

impl Modes {
    pub(super) fn found(modes: Vec<ManagedMode>) -> Self {
        let managed = |ManagedMode { uuid, original, stage }| (uuid, Managed { original, stage, is_tried: false });
        Self { gpus: modes.into_iter().map(managed).collect(), is_giving_back: false }
    }

    fn noted(&self) -> Vec<ManagedMode> {
        let note = |(uuid, managed): (&String, &Managed)| ManagedMode {
            uuid: uuid.clone(),
            original: managed.original,
            stage: managed.stage,
        };
        self.gpus.iter().map(note).collect()
    }

    /// The mode that is given back, of a GPU that has another one while the daemon runs.
    pub(super) fn original(&self, uuid: &str) -> Option<ComputeMode> {
        self.gpus.get(uuid).filter(|managed| managed.is_owed()).map(|managed| managed.original)
    }
}

impl Gpus {
    /// A GPU is seen for the first time.
    fn meet(&mut self, turn: &mut Turn, gpu: &GpuSeen, mode: ComputeMode) -> Option<ModeChange> {
        let why_left = if !mode.is_exclusive() {
            (mode != WANTED).then_some("nobody may use it, and that is not for the daemon to change")
        } else if !gpu.whole {
            Some("servers see a part of it only, and the mode is that of all of it")
        } else {
            None
        };
        if let Some(why) = why_left {
            turn.log(format!("{} stays in compute mode {mode}: {why}", gpu.name()));
        }
        let is_sound = why_left.is_none();
        if let Some(original) =
            gpu.before.filter(|before| is_sound && gpu.whole && mode == WANTED && before.is_exclusive())
        {
            turn.log(format!(
                "{} has compute mode {mode} since another daemon changed it from {original}; whichever ends last gives it \
                 back",
                gpu.name()
            ));
            let managed = Managed { original, stage: ModeStage::Set, is_tried: false };
            self.modes.gpus.insert(gpu.uuid.clone(), managed);
            return None;
        }
        let stage = match (is_sound, mode == WANTED) {
            (false, _) => ModeStage::Left,
            (true, true) => ModeStage::Set,
            (true, false) => ModeStage::Planned,
        };
        let managed = Managed { original: mode, stage, is_tried: stage == ModeStage::Planned };
        self.modes.gpus.insert(gpu.uuid.clone(), managed);
        (stage == ModeStage::Planned).then(|| ModeChange { uuid: gpu.uuid.clone(), from: mode, to: WANTED })
    }

    /// A GPU is seen again, by this daemon or after an earlier one.
    fn look_at_managed(&mut self, turn: &mut Turn, gpu: &GpuSeen, mode: ComputeMode) -> Option<ModeChange> {
        let managed = self.modes.gpus.get_mut(&gpu.uuid)?;
        match managed.stage {
            ModeStage::Planned if mode == managed.original && !managed.is_tried => {
                // The earlier daemon did not come to it.
                managed.is_tried = true;
                Some(ModeChange { uuid: gpu.uuid.clone(), from: mode, to: WANTED })
            }
            ModeStage::Planned if mode == WANTED => {
                managed.stage = ModeStage::Set;
                None
            }
            // Tried, and it is not known what came of it: that may still show.
            ModeStage::Planned if mode == managed.original => None,
            ModeStage::Set | ModeStage::Planned if mode != WANTED => {
                managed.stage = ModeStage::Left;
                let name = gpu.name();
                turn.log(format!("{name} has been given compute mode {mode} by somebody else, and is left alone"));
                let (gpu, cause) = (gpu.uuid.clone(), ModeCause::SomebodyElse);
                turn.record(JournalEvent::ComputeModeChanged { gpu, from: WANTED, to: mode, cause });
                None
            }
            ModeStage::Left | ModeStage::Set | ModeStage::Planned => None,
        }
    }

    pub(in crate::core) fn modes_changed(&mut self, turn: &mut Turn, outcomes: Result<Vec<ModeOutcome>, String>) {
        self.is_changing = false;
        self.is_outdated = self.is_looking;
        let gives_back = self.modes.is_giving_back;
        match outcomes {
            Ok(outcomes) => outcomes.into_iter().for_each(|outcome| match gives_back {
                true => self.given_back(turn, outcome),
                false => self.mode_set(turn, outcome),
            }),
            Err(reason) if gives_back => turn.log(format!("Compute modes may not have been given back: {reason}")),
            Err(reason) => turn.log(format!("Compute modes may not have been changed: {reason}")),
        }
        if gives_back {
            self.modes = Modes::default();
        }
        self.hold_modes(turn);
        self.tell_exclusive(turn);
    }

    fn mode_set(&mut self, turn: &mut Turn, ModeOutcome { uuid, mode, is_others: _ }: ModeOutcome) {
        let Some(managed) = self.modes.gpus.get_mut(&uuid) else { return };
        let original = managed.original;
        managed.stage = if mode == Ok(WANTED) { ModeStage::Set } else { ModeStage::Left };
        match mode {
            Ok(mode) => {
                self.mode_is(&uuid, mode);
                let cause = if mode == WANTED { ModeCause::Daemon } else { ModeCause::SomebodyElse };
                let said = if mode == WANTED { "while the daemon runs" } else { "by somebody else, and is left alone" };
                turn.log(format!("GPU {uuid} has compute mode {mode} {said}; it was {original}"));
                turn.record(JournalEvent::ComputeModeChanged { gpu: uuid, from: original, to: mode, cause });
            }
            Err(reason) => turn.log(format!(
                "GPU {uuid} stays in compute mode {original}, which can't be changed: {reason}; the daemon goes on as \
                 with compute_mode = \"leave\""
            )),
        }
    }

    fn given_back(&mut self, turn: &mut Turn, ModeOutcome { uuid, mode, is_others }: ModeOutcome) {
        let Some(managed) = self.modes.gpus.get(&uuid) else { return };
        let original = managed.original;
        if is_others {
            let line = "stays as it is for another daemon of this machine, which gives it back";
            return turn.log(format!("The compute mode of GPU {uuid} {line}; it was {original}"));
        }
        match mode {
            Ok(mode) => {
                self.mode_is(&uuid, mode);
                let is_back = mode == original;
                let said = if is_back { "again" } else { "from somebody else, and is left alone" };
                turn.log(format!("GPU {uuid} has compute mode {mode} {said}"));
                let cause = if is_back { ModeCause::Daemon } else { ModeCause::SomebodyElse };
                turn.record(JournalEvent::ComputeModeChanged { gpu: uuid, from: WANTED, to: mode, cause });
            }
            Err(reason) => turn.log(format!("GPU {uuid} is not given back its compute mode {original}: {reason}")),
        }
    }

    fn mode_is(&mut self, uuid: &str, mode: ComputeMode) {
        for gpu in self.seen.iter_mut().filter(|gpu| gpu.uuid == uuid) {
            gpu.mode = Some(mode);
        }
    }

    /// What an earlier daemon has set and this one is not to manage goes back at once.
    pub(super) fn give_back_unwanted(&mut self, turn: &mut Turn) {
        if !turn.policy.gpus.manages() && !self.is_changing && !self.modes.gpus.is_empty() {
            self.give_back(turn);
        }
    }

    fn give_back(&mut self, turn: &mut Turn) {
        let modes = &mut self.modes;
        let owed = modes.gpus.iter().filter(|(_, managed)| managed.is_owed());
        let back = |(uuid, managed): (&String, &Managed)| ModeChange {
            uuid: uuid.clone(),
            from: WANTED,
            to: managed.original,
        };
        let changes: Vec<ModeChange> = owed.map(back).collect();
        if changes.is_empty() {
            self.modes = Modes::default();
            self.hold_modes(turn);
        } else {
            modes.is_giving_back = true;
            // Whoever follows a daemon that dies now finds either mode, and neither is somebody else's doing.
            for managed in modes.gpus.values_mut().filter(|managed| managed.is_owed()) {
                managed.stage = ModeStage::Planned;
            }
            self.hold_modes(turn);
            self.is_changing = true;
            turn.push(Effect::ChangeModes(changes));
        }
    }

    /// At the daemon's end: gives back what is to be given back; whether that is done.
    pub(in crate::core) fn modes_are_given_back(&mut self, turn: &mut Turn) -> bool {
        if !self.is_changing && !self.modes.gpus.is_empty() {
            self.give_back(turn);
        }
        !self.is_changing
    }

    fn hold_modes(&mut self, turn: &mut Turn) {
        turn.push(Effect::HoldModes(self.modes.noted()));
    }
}

impl Gpus {
    /// Takes in the modes that a look has found.
    pub(super) fn look_at_modes(&mut self, turn: &mut Turn, seen: &[GpuSeen]) {
        if !turn.policy.gpus.manages() {
            return self.give_back_unwanted(turn);
        }
        if self.is_changing || turn.quit.is_some() {
            return;
        }
        let (before, mut changes) = (self.modes.noted(), Vec::new());
        for gpu in seen {
            let Some(mode) = gpu.mode else { continue };
            changes.extend(match self.modes.gpus.contains_key(&gpu.uuid) {
                true => self.look_at_managed(turn, gpu, mode),
                false => self.meet(turn, gpu, mode),
            });
        }
        if self.modes.noted() != before {
            self.hold_modes(turn);
        }
        if !changes.is_empty() {
            self.is_changing = true;
            turn.push(Effect::ChangeModes(changes));
        }
    }

    /// What the holder is to keep, for one that knows nothing yet.
    pub(in crate::core) fn managed_modes(&self) -> Vec<ManagedMode> {
        self.modes.noted()
    }
}
