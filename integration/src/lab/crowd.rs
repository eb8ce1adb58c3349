//! Twenty clients that make contexts, and peers that connect and leave anywhere in the handshake.

use super::LIMIT;
use super::client::Connection;
use super::noise::Noise;
use super::pace::Pace;
use super::peer::Peer;
use remps_proto::mps::handshake::Role;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Clients that make contexts.
pub const CLIENTS: usize = 20;

/// Connects and leaves after a random number of steps.
pub fn rude(path: &Path, noise: &mut Noise) {
    let Ok(connection) = Connection::open(path) else { return };
    let steps = noise.below(6);
    let role = [Role::CLIENT, Role::CLIENT, Role::SERVER, Role::UI][noise.index(4)];
    let sent = match steps {
        0 => return,
        1 => connection.receive().map(drop),
        2 => connection.send_credentials(),
        3 => connection.send_credentials().and_then(|()| connection.send(&role.encode()[..2])),
        4 => connection.send_credentials().and_then(|()| connection.send(&role.encode())),
        _ => connection
            .receive()
            .and_then(|_| connection.send_credentials())
            .and_then(|()| connection.send(&role.encode()))
            .and_then(|()| connection.send(&noise.packet())),
    };
    // A daemon that has closed already is as good.
    drop(sent);
}

/// Has clients do their handshake again and again, each one every `period` at most, as long as `beside` says so, which is told how many there were; how
/// long each took.
///
/// # Errors
/// Whatever a client saw.
///
/// # Panics
/// When a client does.
pub fn serve_beside(
    pipe_dir: &Path,
    period: Option<Duration>,
    mut beside: impl FnMut(usize) -> bool,
) -> io::Result<Vec<Duration>> {
    let (is_over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let serve = || {
            let (mut times, mut pace) = (Vec::new(), period.map(Pace::every));
            while !is_over.load(Ordering::Relaxed) {
                if let Some(pace) = &mut pace {
                    pace.wait();
                }
                let began = Instant::now();
                drop(Peer::init(pipe_dir, LIMIT)?);
                times.push(began.elapsed());
                served.fetch_add(1, Ordering::Relaxed);
            }
            Ok(times)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(serve)).collect();
        // A client that sees an error makes no more.
        while beside(served.load(Ordering::Relaxed)) && !clients.iter().any(|client| client.is_finished()) {}
        is_over.store(true, Ordering::Relaxed);
        let times = clients.into_iter().map(|client| client.join().expect("no panic"));
        times.collect::<io::Result<Vec<_>>>().map(|times| times.concat())
    })
}
