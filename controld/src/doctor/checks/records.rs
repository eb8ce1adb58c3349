//! Compute modes that a daemon has changed and nobody has given back.

use crate::core::ComputeMode;
use crate::doctor::Outcome;
use crate::doctor::machine::{Daemon, Machine};
use crate::io::folder::Folder;
use crate::io::mode_records::{self, NoRecord, Record};

pub(super) fn mode_records(machine: &Machine) -> Outcome {
    const NONE: &str = "no GPU waits for the compute mode that it had";
    // A directory that is not there or not for this user to open has nothing to tell.
    let Ok(folder) = Folder::open(&machine.pipe_directory) else { return Outcome::ok(NONE) };
    let found = mode_records::names(&folder).into_iter().map(|uuid| (mode_records::read(&folder, &uuid), uuid));
    let (mut owed, mut strange) = (Vec::new(), Vec::new());
    for (read, uuid) in found {
        match read {
            Ok((record, _)) => owed.push((uuid, record)),
            Err(NoRecord::Missing | NoRecord::EarlierBoot) => {}
            Err(error) => strange.push(format!("{}{uuid}: {error}", mode_records::PREFIX)),
        }
    }
    if let [first, ..] = &strange[..] {
        return Outcome::warning(
            format!("no record of a compute mode in {}: {first}", folder.path().display()),
            "a mode that it may have been about is not given back",
            "the next daemon sets it aside; nvidia-smi -c sets the mode that the GPU is to have",
        );
    }
    let Some((uuid, record)) = owed.first() else { return Outcome::ok(NONE) };
    let names: Vec<String> = owed.iter().map(|(uuid, record)| told(uuid, record)).collect();
    let names = names.join(", ");
    match machine.daemon {
        Daemon::Answers { .. } | Daemon::Silent(_) => Outcome::ok(format!("when the daemon ends: {names}")),
        Daemon::Awaited => Outcome::ok(format!("when no daemon comes in time: {names}")),
        Daemon::Absent | Daemon::StaleSocket => Outcome::warning(
            format!("a daemon that was killed with its holder has not given back {names}"),
            "programs can pass MPS by on a GPU that was exclusive",
            format!(
                "start the daemon, with whatever compute_mode, which sees to it; or nvidia-smi -i {uuid} -c {}, and \
                 remove {}{uuid} from {}",
                ComputeMode(record.mode),
                mode_records::PREFIX,
                folder.path().display()
            ),
        ),
    }
}

fn told(uuid: &str, record: &Record) -> String {
    format!("{uuid} {} since {}", ComputeMode(record.mode), record.at())
}
