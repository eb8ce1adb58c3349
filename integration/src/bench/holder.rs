//! What a request to the holder takes: to send it, which the daemon waits for, and with the holder's own work.

use super::figures::{Figure, Samples};
use super::programs::Programs;
use super::{BenchError, system};
use remps_controld::parts::holder::{FromHolder, HolderError, HolderLink, Kind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// It is measured in so many parts.
const PARTS: usize = 20;
/// Descriptors that are held, updated and released in a part.
const CYCLES: u32 = 500;
/// What can be asked of one.
const REQUESTS: u32 = 3;
/// How long a holder may take to end.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn measure(_programs: &Programs) -> Result<Vec<Figure>, BenchError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system("make a runtime"))?;
    runtime.block_on(cycles()).map(|figure| vec![figure])
}

fn wrong(error: HolderError) -> BenchError {
    BenchError::Wrong(format!("the holder: {error}"))
}

/// Waits until the holder has done everything asked so far.
async fn settle(link: &mut HolderLink) -> Result<(), BenchError> {
    loop {
        match link.barrier(0) {
            Ok(()) => break,
            Err(HolderError::Full) => tokio::task::yield_now().await,
            Err(error) => return Err(wrong(error)),
        }
    }
    match link.next().await.map_err(wrong)? {
        FromHolder::Passed { .. } => Ok(()),
        other @ (FromHolder::Accepted { .. } | FromHolder::Failed { .. }) => {
            Err(BenchError::Wrong(format!("the holder says {other:?}")))
        }
    }
}

async fn cycles() -> Result<Figure, BenchError> {
    let folder = tempfile::Builder::new().prefix("mps-bench-").tempdir_in("/tmp").map_err(system("make a folder"))?;
    let (mut link, _) = HolderLink::attach(folder.path()).await.map_err(wrong)?;
    let (_here, there) = UnixStream::pair().map_err(system("make a pair"))?;
    settle(&mut link).await?;
    let (mut sends, mut wholes) = (Vec::new(), Vec::new());
    for _ in 0..PARTS {
        let (mut sending, began) = (Duration::ZERO, Instant::now());
        for number in 0..CYCLES {
            for request in 0..REQUESTS {
                sending += send(&mut link, u64::from(number % 100), request, &there).await?;
            }
        }
        settle(&mut link).await?;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(CYCLES * REQUESTS);
        sends.push(each(sending));
        wholes.push(each(began.elapsed()));
    }
    link.leave(LIMIT).await.map_err(wrong)?;
    let about = format!("Hold, update and release of one descriptor, {PARTS} parts of {CYCLES} each.");
    Ok(Figure::new("a request to the holder", about)
        .with("to send it, µs", Samples::new(sends))
        .with("with the holder's work, µs", Samples::new(wholes)))
}

/// Sends a request, however often there is no room; how long the sending took that succeeded.
async fn send(link: &mut HolderLink, key: u64, request: u32, there: &UnixStream) -> Result<Duration, BenchError> {
    let state = [7; 64];
    loop {
        let begun = Instant::now();
        let done = match request {
            0 => link.hold(key, Kind::CLIENT_END, &state, &[there.as_fd()]),
            1 => link.update(key, &state[..32]),
            _ => link.release(key),
        };
        let time = begun.elapsed();
        match done {
            Ok(()) => return Ok(time),
            Err(HolderError::Full) => settle(link).await?,
            Err(error) => return Err(wrong(error)),
        }
    }
}
