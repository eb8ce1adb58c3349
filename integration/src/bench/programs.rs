//! The programs that are measured: those beside this one, so that a release is measured as a release.

use super::BenchError;
use crate::lab::stage::{CLIENT, CONTROL, SERVER, Stage, VAULT_CLIENT};
use crate::under_test::Subject;
use remps_proto::admin::Personality;
use std::path::{Path, PathBuf};

/// The preload library, in the profile that users build.
const LIBRARY: &str = "../shim/libmps_client_shim.so";
/// The program that makes calls, and the simulated driver.
const COST: &str = "mps-cost";
const DRIVER: &str = "deps/libcuda.so";
const BUILD_CONTROL: &str = "cargo build --release -p remps-controld";
const BUILD_OURS: &str = "cargo build --release -p integration";
const BUILD_LIBRARY: &str = "cargo rustc --profile shim -p remps-client-shim --crate-type cdylib";
/// A bench that was killed leaves nothing behind for long.
const CONFIG: &str = "successor_wait = 5\n";

/// Where everything is.
#[derive(Debug)]
pub(super) struct Programs {
    control: PathBuf,
    others: [PathBuf; 3],
    /// The preload library.
    pub(super) library: PathBuf,
    /// The program that makes calls.
    pub(super) cost: PathBuf,
    /// The simulated driver.
    pub(super) driver: PathBuf,
}

impl Programs {
    /// Looks for them.
    pub(super) fn find() -> Result<Self, BenchError> {
        let own = std::env::current_exe().map_err(super::system("find this program"))?;
        let dir = own.parent().unwrap_or(Path::new("/"));
        let existing = |name: &str, build| {
            let path = dir.join(name);
            if path.is_file() { Ok(path) } else { Err(BenchError::Missing(path, build)) }
        };
        Ok(Self {
            control: existing(CONTROL, BUILD_CONTROL)?,
            others: [existing(SERVER, BUILD_OURS)?, existing(CLIENT, BUILD_OURS)?, existing(VAULT_CLIENT, BUILD_OURS)?],
            library: existing(LIBRARY, BUILD_LIBRARY)?,
            cost: existing(COST, BUILD_OURS)?,
            driver: existing(DRIVER, BUILD_OURS)?,
        })
    }

    /// A bench with a daemon that answers.
    pub(super) fn stage(&self) -> Stage {
        let subject = Subject { control: self.control.clone(), personality: Personality::V580, ours: true };
        let mut stage = Stage::on(&subject, self.others.clone());
        stage.config(CONFIG);
        stage.start(&[]);
        stage
    }
}
