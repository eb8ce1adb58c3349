//! What a client's handshake takes, alone and beside peers that connect and leave.

use super::figures::{Figure, Samples};
use super::programs::Programs;
use super::{BenchError, system};
use crate::lab::LIMIT;
use crate::lab::crowd::{CLIENTS, rude, serve_beside};
use crate::lab::noise::Noise;
use crate::lab::pace::Pace;
use crate::lab::peer::Peer;
use crate::lab::stage::Stage;
use std::time::{Duration, Instant};

/// Peers that connect and leave.
const RUDE_EACH_SECOND: u32 = 200;
/// How often each client does its handshake.
const PERIOD: Duration = Duration::from_millis(250);
/// How long, with and without.
const TIME: Duration = Duration::from_secs(10);
/// Contexts that are made one after the other.
const CONTEXTS: usize = 200;

pub(super) fn measure(programs: &Programs) -> Result<Vec<Figure>, BenchError> {
    let stage = programs.stage();
    let alone = one_after_the_other(&stage)?;
    let (calm, loaded) = (crowd(&stage, false)?, crowd(&stage, true)?);
    let about = format!(
        "The connection that `cuInit` makes, of {CLIENTS} clients that come together every {} ms, for {} s each; the \
         peers leave anywhere in the handshake.",
        PERIOD.as_millis(),
        TIME.as_secs()
    );
    let crowd = Figure::new("handshakes of a crowd", about)
        .with("alone, ms", calm)
        .with(format!("beside {RUDE_EACH_SECOND} rude connections a second, ms"), loaded);
    Ok(vec![alone, crowd])
}

fn one_after_the_other(stage: &Stage) -> Result<Figure, BenchError> {
    let once = |_| {
        let began = Instant::now();
        let peer = Peer::attach(stage.pipe_dir(), LIMIT).map_err(system("attach"))?;
        let time = began.elapsed();
        drop(peer);
        Ok(time)
    };
    let times = (0..CONTEXTS).map(once).collect::<Result<Vec<_>, BenchError>>()?;
    let about = "A process's connection, its first context and one answer of the server, one client after the other.";
    Ok(Figure::new("a client and its context", about).with("ms", Samples::milliseconds(times)))
}

fn crowd(stage: &Stage, is_rude: bool) -> Result<Samples, BenchError> {
    let path = stage.pipe_dir().join("control");
    let mut pace = Pace::every(Duration::from_secs(1) / RUDE_EACH_SECOND);
    let mut noise = Noise::new();
    let end = Instant::now() + TIME;
    let times = serve_beside(stage.pipe_dir(), Some(PERIOD), |_| {
        pace.wait();
        if is_rude {
            rude(&path, &mut noise);
        }
        Instant::now() < end
    });
    times.map(Samples::milliseconds).map_err(system("a client's handshake"))
}
