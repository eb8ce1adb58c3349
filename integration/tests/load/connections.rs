//! Connections that are opened and dropped anywhere in the handshake, while 20 clients are served.
//!
//! None of the 20 sees an error, and neither daemon, holder nor server keeps a descriptor. How long the clients take
//! meanwhile is for the benchmark to say (`integration::bench`).

use integration::lab::crowd::{CLIENTS, rude, serve_beside};
use integration::lab::noise::Noise;
use integration::lab::peer::Peer;
use integration::lab::stage::{Part, Stage, descriptors, long_or};
use integration::lab::{LIMIT, watch};

/// Rude connections for each handshake of a client.
const RUDE_FOR_EACH: usize = 4;

#[test]
fn rude_connections_harm_no_client_and_leak_nothing() {
    Stage::run(|stage| {
        stage.start(&[]);
        Peer::attach(stage.pipe_dir(), LIMIT).expect("served");
        let (server, holder) = (stage.only(Part::Server), stage.only(Part::Holder));
        let parts = [stage.daemon().pid(), holder, server];
        let before = parts.map(descriptors);
        let (least_rude, least_served) = (long_or(12_000, 400), long_or(4_800, 100));
        let path = stage.pipe_dir().join("control");
        let mut noise = Noise::new();
        let mut rudely = 0;
        // So many for each client that is served: more than the server can take would keep everybody waiting.
        let times = serve_beside(stage.pipe_dir(), None, |served| {
            if rudely < RUDE_FOR_EACH * (served + 1) {
                rude(&path, &mut noise);
                rudely += 1;
            } else {
                std::thread::yield_now();
            }
            rudely < least_rude || served < least_served
        });
        let served = times.expect("no client sees an error");
        assert!(served.len() >= least_served, "{} handshakes of {CLIENTS} clients", served.len());
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
