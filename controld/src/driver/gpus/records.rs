//! Which modes are recorded where daemon and holder can be killed and it still is there ([`mode_records`]).
//!
//! [`mode_records`]: crate::io::mode_records

use super::Gpus;
use crate::core::{ComputeMode, GpuSeen, ManagedMode, ModeChange, ModeStage};
use crate::driver::successor::{Successor, keys};
use crate::holder::Kind;
use crate::io::blocking::MACHINE;
use crate::io::mode_records::{Joined, LeftBehind};
use std::collections::BTreeSet;
use std::fs::File;
use std::time::Duration;

/// How long a change of modes waits for its record to be on a disk, which matters when the machine loses its power.
const SYNC_LIMIT: Duration = Duration::from_secs(5);

/// Brings files to their disk, or no longer waits for that.
pub(super) async fn sync(files: Vec<File>) {
    if files.is_empty() {
        return;
    }
    let call = move || files.iter().for_each(|file| drop(file.sync_all()));
    if MACHINE.run(0, SYNC_LIMIT, call).await.is_err() {
        tracing::warn!("the record of a compute mode may not be on its disk");
    }
}

impl Gpus {
    /// The modes that daemons and holders before this one have not come to give back, which this one does: now, or when
    /// it ends if it is to manage them.
    pub(super) fn modes_left_behind(
        &mut self,
        known: &[ManagedMode],
        successor: &Successor,
        remarks: &mut Vec<String>,
    ) -> Vec<ManagedMode> {
        let known: BTreeSet<String> = known.iter().map(|mode| mode.uuid.clone()).collect();
        let (found, told) = self.records.left_behind(&known);
        remarks.extend(told);
        let then = if self.policy.manages() {
            "is gone on with, and given back when this daemon ends"
        } else {
            "is given back now"
        };
        for LeftBehind { uuid, record, path } in &found {
            let (mode, at) = (ComputeMode(record.mode), record.at());
            remarks.push(format!(
                "GPU {uuid} had compute mode {mode} until a daemon changed it at {at} that was killed with its holder ({}): \
                 that mode {then}",
                path.display()
            ));
        }
        self.hold_records(successor);
        // Whether that daemon had come to change it, its mode tells.
        let mode = |LeftBehind { uuid, record, .. }: LeftBehind| ManagedMode {
            uuid,
            original: ComputeMode(record.mode),
            stage: ModeStage::Planned,
        };
        found.into_iter().map(mode).collect()
    }

    /// What other daemons of this machine have to do with the mode of a GPU that is about to be managed.
    pub(super) fn with_other_daemons(
        &mut self,
        mut gpu: GpuSeen,
        managed: &[ManagedMode],
        successor: &Successor,
    ) -> GpuSeen {
        let is_known = || managed.iter().any(|managed| managed.uuid == gpu.uuid);
        let is_open = gpu.whole && gpu.mode == Some(ComputeMode::DEFAULT);
        if !self.policy.manages() || !is_open || is_known() {
            return gpu;
        }
        match self.records.join(&gpu.uuid) {
            Joined::Alone => {}
            // The next look finds the mode that it has then.
            Joined::Leaving => gpu.mode = None,
            Joined::Before(mode) => {
                gpu.before = Some(ComputeMode(mode));
                self.hold_records(successor);
            }
        }
        gpu
    }

    /// Records what is about to be set; the files are still to be synced.
    pub(super) fn record_modes(&mut self, changes: &[ModeChange], successor: &Successor) -> (Vec<File>, Vec<String>) {
        let (mut files, mut remarks) = (Vec::new(), Vec::new());
        for change in changes.iter().filter(|change| change.to == ComputeMode::DEFAULT) {
            let (new, told) = self.records.note(&change.uuid, change.from.0);
            files.extend(new);
            remarks.extend(told);
        }
        self.hold_records(successor);
        (files, remarks)
    }

    /// Whether a change is one that no other daemon of this machine is in the way of.
    pub(super) fn is_ours_to_change(&self, change: &ModeChange) -> bool {
        change.to == ComputeMode::DEFAULT || self.records.is_last(&change.uuid)
    }

    /// Forgets the record of a GPU whose mode is others' matter by now.
    pub(super) fn forget_mode(&mut self, uuid: &str, successor: &Successor) {
        if let Some(number) = self.records.forget(uuid) {
            successor.release(keys::mode_record(number));
        }
    }

    /// Has a record of every mode that is to be given back, which an earlier release's daemon has not made, and lets go of
    /// the records of GPUs that are not looked after any more. Those of modes that are given back are gone,
    /// and those of modes that could not be given back stay for the next daemon.
    pub(super) fn count_on_modes(&mut self, modes: &[ManagedMode], successor: &Successor) -> Vec<String> {
        let mut remarks = Vec::new();
        let counted = self.records.counted();
        let is_owed = |mode: &&ManagedMode| mode.stage == ModeStage::Set && mode.original != ComputeMode::DEFAULT;
        for mode in modes.iter().filter(is_owed).filter(|mode| !counted.contains(&mode.uuid)) {
            remarks.extend(self.records.note(&mode.uuid, mode.original.0).1);
        }
        self.hold_records(successor);
        for uuid in counted {
            match modes.iter().find(|mode| mode.uuid == uuid).map(|mode| mode.stage) {
                Some(ModeStage::Planned | ModeStage::Set) => {}
                Some(ModeStage::Left) => self.forget_mode(&uuid, successor),
                None => {
                    if let Some(number) = self.records.drop_part(&uuid) {
                        successor.release(keys::mode_record(number));
                    }
                }
            }
        }
        remarks
    }

    /// Gives the holder the parts in the machine's records: they last as long as either of the two.
    pub(in crate::driver) fn hold_records(&self, successor: &Successor) {
        for (number, uuid, part) in self.records.parts() {
            let key = keys::mode_record(number);
            successor.hold(key, Kind::MODE_RECORD, uuid.as_bytes(), &[part]);
        }
    }
}
