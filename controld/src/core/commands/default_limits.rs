//! `set_default_…`: what servers to come start with, kept over the daemon's end where its operator wants that.

use super::keeping::Step;
use crate::core::Core;
use crate::core::ids::SessionId;
use crate::core::kept_defaults::{KeptDefaults, Said};
use remps_proto::admin::command::Command;
use remps_proto::admin::defaults::{Applied, Defaults};

impl Core {
    /// Answers a command about the defaults, or has it wait until it is kept; whether it was one.
    pub(super) fn perform_default(&mut self, session: SessionId, command: &Command) -> bool {
        let Some((after, said, applied)) = self.defaults_after(command) else { return false };
        if after == self.defaults && said == self.commands.keeping.said {
            self.applied(session, applied);
        } else {
            self.make(Some(session), Step::Default(Box::new(command.clone())));
        }
        true
    }

    /// What a command makes of the defaults.
    fn defaults_after(&self, command: &Command) -> Option<(Defaults, Said, Applied)> {
        let mut after = self.defaults.clone();
        let applied = after.apply(command)?;
        // One for which there was no room says nothing.
        let said = if applied.remark.is_none() { Said::by(command) } else { Said::default() };
        Some((after, self.commands.keeping.said.or(said), applied))
    }

    /// Makes the change of a command that is kept, if it is to be.
    pub(super) fn set_default(&mut self, session: Option<SessionId>, command: &Command) {
        let Some((after, said, applied)) = self.defaults_after(command) else { return };
        self.commands.keeping.said = said;
        let is_priority = after.priority() != self.defaults.priority();
        self.defaults = after;
        if is_priority {
            self.tell_priority();
        }
        self.turn.save();
        if let Some(session) = session {
            self.applied(session, applied);
        }
    }

    /// What is to be kept of the defaults after a change.
    pub(super) fn kept_defaults_after(&self, step: &Step) -> KeptDefaults {
        let after = match step {
            Step::Default(command) => self.defaults_after(command),
            Step::Open { .. } | Step::Set { .. } | Step::Delete { .. } | Step::Again => None,
        };
        after.map_or_else(|| self.kept_defaults(), |(after, said, _)| KeptDefaults::of(&after, said))
    }

    /// What is to be kept of the defaults as they are.
    pub(crate) fn kept_defaults(&self) -> KeptDefaults {
        KeptDefaults::of(&self.defaults, self.commands.keeping.said)
    }

    /// Goes on with defaults that were kept, but for those that this daemon was started with, which come back. One that
    /// goes on where another one was killed has what that one had.
    pub(crate) fn take_kept_defaults(&mut self, kept: KeptDefaults, started_with: Said) -> Vec<&'static str> {
        if self.commands.keeping.goes_on { Vec::new() } else { self.go_on_with(kept, started_with) }
    }

    /// No server of the daemon that was here before has lived on: what this one was started with holds, and beside it what
    /// commands have said of the rest. Gives the variables that have another value than was said.
    pub(crate) fn begin_anew(&mut self, own: &Defaults, started_with: Said) -> Vec<&'static str> {
        let kept = self.kept_defaults();
        self.defaults = own.clone();
        self.go_on_with(kept, started_with)
    }

    fn go_on_with(&mut self, mut kept: KeptDefaults, started_with: Said) -> Vec<&'static str> {
        let mut passed_over = Vec::new();
        if started_with.threads && kept.percentage.take().is_some_and(|it| it != self.defaults.percentage()) {
            passed_over.push("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
        }
        if started_with.priority && kept.priority.take().is_some_and(|it| it != self.defaults.priority()) {
            passed_over.push("CUDA_MPS_CLIENT_PRIORITY");
        }
        if started_with.memory && kept.limits.take().is_some_and(|it| it != self.defaults.limits()) {
            passed_over.push("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
        }
        kept.put_into(&mut self.defaults);
        self.commands.keeping.said = kept.said();
        passed_over
    }

    /// Goes on with what commands had said to the daemon that was here before. One of an earlier release has not noted
    /// it: what is other than that daemon's successor would start with was said, then.
    pub(crate) fn restore_said(&mut self, saved: Option<u32>, started_with: &Defaults) {
        self.commands.keeping.goes_on = true;
        self.commands.keeping.said = saved.map_or_else(|| Said::between(started_with, &self.defaults), Said::restored);
    }
}
