//! The table against a list that is searched from end to end.

use super::*;
use proptest::prelude::*;

fn process(pid: Pid, start_time: u64) -> ProcessKey {
    ProcessKey { pid, start_time }
}

fn context(connection: u64) -> (Channel, Facts) {
    (Channel::Context(ConnectionId(connection)), Facts::Context(ServerEpoch(1)))
}

fn hardware(runlist: u32, channel: u32, va_space: u64) -> (Channel, Facts) {
    let name = HardwareChannel { gpu: "GPU-0".to_owned(), runlist: Some(runlist), channel };
    (Channel::Hardware(name), Facts::Hardware(HardwareFacts { va_space, ..HardwareFacts::default() }))
}

impl Channels {
    /// Whose a channel is.
    fn owner(&self, channel: &Channel) -> Option<ProcessKey> {
        let pid = self.entries.get(channel)?.pid;
        self.of_process.get(&pid).map(|owner| ProcessKey { pid, start_time: owner.start_time })
    }
}

#[test]
fn a_channel_has_one_owner_and_the_owner_has_the_channel() {
    let mut channels = Channels::default();
    let (first, first_facts) = context(1);
    let (second, second_facts) = hardware(0, 7, 3);
    assert!(channels.add(process(10, 5), first.clone(), first_facts));
    assert!(channels.add(process(10, 5), second.clone(), second_facts));
    assert_eq!(channels.owner(&second), Some(process(10, 5)));
    assert_eq!(channels.channels_of(10).collect::<Vec<_>>(), [&first, &second]);
    assert_eq!(channels.remove(&second), Some(process(10, 5)));
    assert_eq!(channels.owner(&second), None);
    assert_eq!(channels.channels_of(10).collect::<Vec<_>>(), [&first]);
    assert_eq!(channels.remove(&second), None);
}

#[test]
fn a_pid_that_came_again_inherits_nothing() {
    let mut channels = Channels::default();
    for connection in 1..=3 {
        let (channel, facts) = context(connection);
        channels.add(process(10, if connection == 2 { 0 } else { 5 }), channel, facts);
    }
    let (channel, facts) = context(4);
    channels.add(process(10, 99), channel, facts);
    // The one of unknown age had been told by the third to be of the first process.
    assert_eq!(channels.rows(Some(10)).map(|row| row.process.start_time).collect::<Vec<_>>(), [99]);
}

#[test]
fn a_start_time_that_is_learned_late_is_everybodys_of_that_pid() {
    let mut channels = Channels::default();
    let (channel, facts) = hardware(0, 1, 1);
    channels.add(process(10, 0), channel.clone(), facts);
    let (other, facts) = context(1);
    channels.add(process(10, 42), other, facts);
    assert_eq!(channels.owner(&channel), Some(process(10, 42)));
}

#[test]
fn a_snapshot_takes_the_hardwares_word_and_leaves_the_contexts() {
    let mut channels = Channels::default();
    let (kept, facts) = context(1);
    channels.add(process(10, 5), kept.clone(), facts);
    for number in 0..5 {
        let (channel, facts) = hardware(0, number, u64::from(number % 2));
        channels.add(process(10 + number, 5), channel, facts);
    }
    assert_eq!(channels.remove_va_space(1), 2);
    channels.forget_hardware();
    assert_eq!(channels.rows(None).map(|row| row.channel).collect::<Vec<_>>(), [kept]);
}

#[test]
fn a_greedy_process_is_stopped_and_counted_and_others_have_room() {
    let mut channels = Channels::default();
    for connection in 0..MAX_CHANNELS_OF_PROCESS as u64 + 3 {
        let (channel, facts) = context(connection);
        channels.add(process(10, 5), channel, facts);
    }
    assert_eq!(channels.entries.len(), MAX_CHANNELS_OF_PROCESS);
    assert_eq!(channels.refused, 3);
    let (channel, facts) = context(u64::MAX);
    assert!(channels.add(process(11, 5), channel, facts));
    assert_eq!(channels.remove_process(10), MAX_CHANNELS_OF_PROCESS);
    assert_eq!(channels.entries.len(), 1);
}

#[test]
fn a_name_and_facts_that_do_not_belong_together_are_not_noted() {
    let mut channels = Channels::default();
    assert!(!channels.add(process(1, 1), context(1).0, hardware(0, 1, 1).1));
    assert!(channels.entries.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Add(ProcessKey, Channel, Facts),
    Remove(Channel),
    RemoveProcess(Pid),
    RemoveVaSpace(u64),
    ForgetHardware,
}

fn any_channel() -> impl Strategy<Value = (Channel, Facts)> {
    prop_oneof![
        (0..8_u64).prop_map(context),
        (0..2_u32, 0..6_u32, 0..4_u64).prop_map(|(runlist, channel, va_space)| hardware(runlist, channel, va_space)),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let process = (1..5_u32, 0..3_u64).prop_map(|(pid, start_time)| process(pid, start_time));
    prop_oneof![
        8 => (process, any_channel()).prop_map(|(process, (channel, facts))| Step::Add(process, channel, facts)),
        3 => any_channel().prop_map(|(channel, _)| Step::Remove(channel)),
        1 => (1..5_u32).prop_map(Step::RemoveProcess),
        1 => (0..4_u64).prop_map(Step::RemoveVaSpace),
        1 => Just(Step::ForgetHardware),
    ]
}

/// A list without any index.
#[derive(Debug, Default)]
struct Model(Vec<Row>);

impl Model {
    fn perform(&mut self, step: Step) {
        match step {
            Step::Add(mut process, channel, facts) => {
                let is_other = |row: &Row| {
                    let times = [row.process.start_time, process.start_time];
                    row.process.pid == process.pid && !times.contains(&0) && times[0] != times[1]
                };
                self.0.retain(|row| !is_other(row) && row.channel != channel);
                let of_pid = self.0.iter_mut().filter(|row| row.process.pid == process.pid);
                let of_pid: Vec<&mut Row> = of_pid.collect();
                let known = of_pid.iter().map(|row| row.process.start_time).max().unwrap_or(0);
                process.start_time = known.max(process.start_time);
                for row in of_pid {
                    row.process = process;
                }
                self.0.push(Row { process, channel, facts });
            }
            Step::Remove(channel) => self.0.retain(|row| row.channel != channel),
            Step::RemoveProcess(pid) => self.0.retain(|row| row.process.pid != pid),
            Step::RemoveVaSpace(va_space) => {
                self.0.retain(|row| !matches!(row.facts, Facts::Hardware(facts) if facts.va_space == va_space));
            }
            Step::ForgetHardware => self.0.retain(|row| matches!(row.facts, Facts::Context(_))),
        }
        self.0.sort_by(|a, b| (a.process.pid, &a.channel).cmp(&(b.process.pid, &b.channel)));
    }
}

proptest! {
    #[test]
    fn the_table_says_what_a_plain_list_says(steps in prop::collection::vec(any_step(), 0..80)) {
        let mut channels = Channels::default();
        let mut model = Model::default();
        for step in steps {
            match step.clone() {
                Step::Add(process, channel, facts) => prop_assert!(channels.add(process, channel, facts)),
                Step::Remove(channel) => {
                    let owner = model.0.iter().find(|row| row.channel == channel).map(|row| row.process);
                    prop_assert_eq!(channels.remove(&channel), owner);
                }
                Step::RemoveProcess(pid) => {
                    let there = model.0.iter().filter(|row| row.process.pid == pid).count();
                    prop_assert_eq!(channels.remove_process(pid), there);
                }
                Step::RemoveVaSpace(va_space) => drop(channels.remove_va_space(va_space)),
                Step::ForgetHardware => channels.forget_hardware(),
            }
            model.perform(step);

            prop_assert_eq!(&channels.rows(None).collect::<Vec<_>>(), &model.0);
            prop_assert_eq!(channels.entries.len(), model.0.len());
            for row in &model.0 {
                prop_assert_eq!(channels.owner(&row.channel), Some(row.process));
            }
            for pid in 0..6 {
                let expected: Vec<&Channel> =
                    model.0.iter().filter(|row| row.process.pid == pid).map(|row| &row.channel).collect();
                prop_assert_eq!(channels.channels_of(pid).collect::<Vec<_>>(), expected);
            }
            // Nothing empty is left in an index.
            let of_process = channels.of_process.values().map(|owner| &owner.channels);
            prop_assert!(of_process.chain(channels.of_va_space.values()).all(|set| !set.is_empty()));
        }
    }
}
