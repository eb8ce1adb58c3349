//! 200 connections a second, opened and dropped anywhere in the handshake, while 20 clients are served.
//!
//! Ten seconds, a minute with `REMPS_LONG=1`. None of the 20 may be delayed by more than 50 ms, and neither the daemon
//! nor its holder may keep a descriptor.

use integration::lab::client::Connection;
use integration::lab::noise::Noise;
use integration::lab::pace::Pace;
use integration::lab::peer::Peer;
use integration::lab::stage::{Part, Stage, descriptors, long_or};
use integration::lab::{LIMIT, watch};
use remps_proto::mps::handshake::Role;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RUDE_EACH_SECOND: u32 = 200;
const CLIENTS: usize = 20;
/// How often each of the 20 makes a context.
const CONTEXT_PERIOD: Duration = Duration::from_millis(250);
/// The most that the load may add to what a client takes otherwise.
const LARGEST_DELAY: Duration = Duration::from_millis(50);
/// A machine that stands still for a moment delays one handshake of many; a daemon that delays its clients does it in
/// every try.
const TRIES: usize = 3;

/// Connects and leaves after a random number of steps.
fn rude(path: &Path, noise: &mut Noise) {
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

/// The longest that a context took, and how many were made.
fn serve(path: &Path, over: &AtomicBool) -> std::io::Result<(Duration, usize)> {
    let mut longest = Duration::ZERO;
    let mut made = 0;
    let mut pace = Pace::every(CONTEXT_PERIOD);
    while !over.load(Ordering::Relaxed) {
        pace.wait();
        let began = Instant::now();
        drop(Peer::init(path, LIMIT)?);
        longest = longest.max(began.elapsed());
        made += 1;
    }
    Ok((longest, made))
}

fn longest(stage: &Stage, time: Duration, load: bool) -> (Duration, usize) {
    let over = AtomicBool::new(false);
    let path = stage.pipe_dir().join("control");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| serve(stage.pipe_dir(), &over))).collect();
        let end = Instant::now() + time;
        let mut pace = Pace::every(Duration::from_secs(1) / RUDE_EACH_SECOND);
        let mut noise = Noise::new();
        while Instant::now() < end {
            pace.wait();
            if load {
                rude(&path, &mut noise);
            }
        }
        over.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|client| client.join().expect("no panic").expect("no client sees an error"))
            .fold((Duration::ZERO, 0), |(longest, made), (client, count)| (longest.max(client), made + count))
    })
}

#[test]
fn two_hundred_rude_connections_a_second_delay_no_client() {
    Stage::run(|stage| {
        stage.start(&[]);
        Peer::attach(stage.pipe_dir(), LIMIT).expect("served");
        let (server, holder) = (stage.only(Part::Server), stage.only(Part::Holder));
        let parts = [stage.daemon().pid(), holder, server];
        let before = parts.map(descriptors);
        // As long without as with: the longest of more handshakes is longer.
        let time = Duration::from_secs(long_or(60, 10));
        let is_undelayed = (0..TRIES).any(|_| {
            let (alone, _) = longest(stage, time, false);
            let (loaded, made) = longest(stage, time, true);
            let _ = writeln!(
                std::io::stderr(),
                "longest of {made} handshakes of {CLIENTS} clients: {loaded:?} with {RUDE_EACH_SECOND} rude connections \
                 a second, {alone:?} without"
            );
            loaded.saturating_sub(alone) < LARGEST_DELAY
        });
        assert!(is_undelayed, "in {TRIES} tries");
        let fits = || parts.map(descriptors).iter().zip(&before).all(|(now, before)| now <= before);
        let given_back = watch::became_true(stage.pipe_dir(), stage.pipe_dir(), LIMIT, fits);
        assert!(
            given_back,
            "descriptors of daemon, holder and server: {:?}, before {before:?}",
            parts.map(descriptors)
        );
        assert_eq!(stage.servers(), [server]);
    });
}

#[test]
fn six_hundred_clients_that_wait_are_all_served_when_the_server_is_ready() {
    Stage::run(|stage| {
        stage.script("MPS_SIM_INIT_MS=1000\n");
        stage.start(&[]);
        let waiting: Vec<_> = (0..600)
            .map(|_| integration::lab::peer::Arriving::connect(stage.pipe_dir(), LIMIT).expect("greeted"))
            .collect();
        let holder = stage.only(Part::Holder);
        // Each on its own: the server takes them one after the other, in an order that none of them knows.
        std::thread::scope(|scope| {
            for client in waiting {
                scope.spawn(|| {
                    let context =
                        client.handed_over().and_then(|client| client.attach(0, 0xff, LIMIT)).expect("served");
                    context.ping().expect("it works");
                });
            }
        });
        assert_eq!(stage.only(Part::Holder), holder, "the holder kept up");
        let fits = || descriptors(holder).is_some_and(|count| count < 20);
        assert!(watch::became_true(stage.pipe_dir(), stage.pipe_dir(), LIMIT, fits), "{:?}", descriptors(holder));
    });
}

#[test]
fn a_thousand_clients_that_wait_are_let_go_when_the_daemon_quits() {
    Stage::run(|stage| {
        stage.script("MPS_SIM_HANG=role\n");
        stage.config("kill_timeout = 0.5\n");
        stage.start(&[]);
        let waiting: Vec<_> = (0..1000)
            .map(|_| integration::lab::peer::Arriving::connect(stage.pipe_dir(), LIMIT).expect("greeted"))
            .collect();
        assert_eq!(stage.ask("quit\n"), "");
        for client in waiting {
            let error = client.handed_over().expect_err("there is nobody to serve it");
            assert_ne!(error.kind(), std::io::ErrorKind::TimedOut, "it still waits");
        }
    });
}
