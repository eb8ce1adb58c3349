//! The options: every spelling of every release, and what each stands for.

use remps_proto::admin::Personality;

/// What an option asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Be the daemon, in the background.
    Daemon,
    /// Be the daemon, in the foreground.
    Foreground,
    /// Show the help text.
    Help,
    /// Show the version.
    Version,
    /// Serve all users with one server.
    Multiuser,
    /// Clients must name a static SM partition.
    StaticPartitioning,
    /// Ask for the devices at the start.
    ReadyDevices,
    /// End the daemon.
    Quit,
    /// `-q`: [`Flag::ReadyDevices`] of 580 for a daemon, [`Flag::Quit`] of 615 when it stands alone.
    QuitOrReadyDevices,
    /// Check the configuration file.
    CheckConfig,
    /// Which interface the daemon is started for; its value follows.
    Protocol,
    /// Which servers the daemon has from its start on; the file follows.
    Apply,
    /// Be a thin daemon of another one; where that is follows.
    Join,
    /// As what; the name follows.
    JoinName,
}

impl Flag {
    /// Whether a value goes with it.
    pub(super) const fn takes_value(self) -> bool {
        matches!(self, Self::Protocol | Self::Apply | Self::Join | Self::JoinName)
    }
}

/// An option and its spellings.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// What it asks for.
    pub flag: Flag,
    /// The letters after one dash.
    pub letters: &'static [char],
    /// The words, with their dashes. The first is the one in the help text.
    pub words: &'static [&'static str],
    /// The first release measured that has it; the help text of an older one leaves it out.
    pub since: Personality,
    /// What it does, in one line.
    pub help: &'static str,
}

/// Every option, in the order of the help text.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        flag: Flag::Help,
        letters: &['h'],
        words: &["--help"],
        since: Personality::V535,
        help: "Print this text.",
    },
    OptionSpec {
        flag: Flag::Version,
        letters: &['v'],
        words: &["--version"],
        since: Personality::V580,
        help: "Print the version.",
    },
    OptionSpec {
        flag: Flag::Daemon,
        letters: &['d'],
        words: &["--daemon"],
        since: Personality::V535,
        help: "Start the daemon in the background.",
    },
    OptionSpec {
        flag: Flag::Foreground,
        letters: &['f'],
        // The vendor's misspelling is what scripts written for 580 contain.
        words: &["--foreground", "--forground"],
        since: Personality::V535,
        help: "Start the daemon in the foreground, with its log on standard output.",
    },
    OptionSpec {
        flag: Flag::Multiuser,
        letters: &['M', 'm'],
        words: &["--multiuser-server", "-multiuser-server", "--multiuser"],
        since: Personality::V555,
        help: "Serve all users with one server, run by root.",
    },
    OptionSpec {
        flag: Flag::QuitOrReadyDevices,
        letters: &['q'],
        words: &[],
        since: Personality::V580,
        help: "With -d or -f as --ready-devices, otherwise as --quit.",
    },
    OptionSpec {
        flag: Flag::ReadyDevices,
        letters: &[],
        words: &["--ready-devices"],
        since: Personality::V580,
        help: "Prepare device_query when the daemon starts.",
    },
    OptionSpec {
        flag: Flag::Quit,
        letters: &[],
        words: &["--quit"],
        since: Personality::V595,
        help: "End the daemon.",
    },
    OptionSpec {
        flag: Flag::StaticPartitioning,
        letters: &['S', 's'],
        words: &["--static-partitioning"],
        since: Personality::V595,
        help: "Clients must name a static SM partition.",
    },
    OptionSpec {
        flag: Flag::Protocol,
        letters: &['p'],
        words: &["--protocol"],
        // Release 615's, with any driver.
        since: Personality::V535,
        help: "With -d or -f: start for protocol 2, the default, or 3; commands of both are understood in either.",
    },
    OptionSpec {
        flag: Flag::Apply,
        letters: &['a'],
        words: &["--apply"],
        // Release 615's, with any driver.
        since: Personality::V535,
        help: "With -d or -f: make the servers and namespaces of the file that follows.",
    },
    OptionSpec {
        flag: Flag::Join,
        letters: &[],
        words: &["--join"],
        // It is ours, whatever release is played.
        since: Personality::V535,
        help: "With -d or -f: have the daemon whose pipe directory follows serve the clients of this one.",
    },
    OptionSpec {
        flag: Flag::JoinName,
        letters: &[],
        words: &["--join-name"],
        // It is ours, whatever release is played.
        since: Personality::V535,
        help: "With --join: the name of the server there, in place of one that belongs to the pipe directory.",
    },
    OptionSpec {
        flag: Flag::CheckConfig,
        letters: &[],
        words: &["--check-config"],
        // It is ours, whatever release is played.
        since: Personality::V535,
        help: "Check mps-control.toml or FILE, and print every value in force.",
    },
];

/// The flags of one argument: a whole word, or letters behind one dash. `None` when any of it is unknown.
pub(super) fn flags_of(argument: &str) -> Option<Vec<Flag>> {
    if let Some(spec) = OPTIONS.iter().find(|spec| spec.words.contains(&argument)) {
        return Some(vec![spec.flag]);
    }
    let letters = argument.strip_prefix('-')?;
    letters.chars().map(|letter| Some(OPTIONS.iter().find(|spec| spec.letters.contains(&letter))?.flag)).collect()
}
