//! The reasons that events give.

use serde::Serialize;

/// Why a server was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StartReason {
    /// A client waits for it.
    Client,
    /// `start_server` asked for it.
    Command,
    /// To stand by.
    Standby,
    /// In place of one that a fault has tainted.
    Fault,
    /// Once more, after a start that failed.
    Retry,
}

/// Why a server is killed that a fault has spoilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EarlyEnd {
    /// Each of its clients has a spare copy to go on with.
    AllHaveSpares,
    /// The operator wants that whatever they have.
    Always,
}

/// Why a spoilt server is buried now, where that was held back on account of clients that recover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HoldEnd {
    /// None of them is waited for any more: each has its contexts again, does not recover or has ended.
    Over,
    /// The time for it is over.
    TimedOut,
    /// There is no GPU memory for one of them, or for another client of its user, and the dead hold some.
    Memory,
    /// The server has ended meanwhile.
    ServerEnded,
    /// The daemon ends.
    Quitting,
}

/// Why a server ended, as far as the daemon knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ExitReason {
    /// A fault had tainted it.
    Fault,
    /// It could not be started, or ended before it was of use.
    ExecFailed,
    /// It had no clients for long enough.
    Idle,
    /// Another user's clients waited, and only one server may run.
    UidSwitch,
    /// A command, a timeout or a signal of the daemon forced it.
    Forced,
    /// A command or the daemon's end asked for it, and its clients had left.
    Asked,
    /// Nobody asked for it.
    Crash,
}

/// Why a spare copy of the driver is no longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SpareEnd {
    /// Its program has given it up.
    GivenUp,
    /// Its server is tainted, is to end, or is gone.
    ServerLost,
    /// Its program is on that server with another copy.
    Moved,
    /// Its program is no client any more.
    NoClient,
    /// It may have none: it is ended or its like is set apart or refused, or its own server has limits of its own.
    Refused,
    /// The daemon ends.
    Quitting,
}

/// Who has changed a compute mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModeCause {
    /// The daemon.
    Daemon,
    /// An operator, or another program.
    SomebodyElse,
}

/// Why a client was sent away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RefusalReason {
    /// The daemon quits.
    Quitting,
    /// Too many of its user wait already.
    TooManyWaiting,
    /// All parts of what its domain may have are taken, or it can't be counted.
    Shares,
    /// It, or its like, has caused faults, and is refused for a while.
    Culprit,
    /// Its namespace is for another user, or gone.
    Namespace,
    /// Its server did not take it; the status is in the text.
    Server,
}

/// How a funeral came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FuneralEnd {
    /// The dead client's work is known to have ended.
    Drained,
    /// Nobody could know, and the configured time is over.
    TimedOut,
    /// Its server has ended.
    ServerEnded,
    /// The last other client of its server has left, so that nobody can be harmed.
    NobodyLeft,
    /// It had to make room for others.
    Evicted,
    /// They were kept only so that closing them would not hold up those who recover, and none is waited for any more.
    Recovered,
}

/// What was done to the process that a verdict names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sanction {
    /// Only reported.
    Report,
    /// Its work on the GPU was ended.
    Terminate,
    /// Its like get a domain of their own from now on.
    Quarantine,
    /// Its like are refused for a while.
    Refuse,
}
