//! Random and mutated packets on every socket and in the FIFO: nothing crashes and nobody else notices.
//!
//! 5,000 packets a place, a million with `REMPS_LONG=1`. A witness client and a witness session use the daemon all the
//! while; the daemon and its holder must be the same processes afterwards.

use integration::lab::client::Connection;
use integration::lab::peer::Peer;
use integration::lab::program::Program;
use integration::lab::stage::{Part, Stage, descriptors, long_or};
use integration::lab::{LIMIT, noise::Noise};
use nix::unistd::Pid;
use remps_proto::mps::handshake::{CREDENTIALS, Role};
use remps_proto::mps::server::Hello;
use std::io::Write;
use std::time::Duration;

const ROOT: u32 = 0;
/// How many packets go to one place.
fn packets() -> usize {
    long_or(1_000_000, 5_000)
}

/// Serves as witness while `throw` runs, and looks that everything is as before.
fn unharmed(stage: &mut Stage, throw: impl FnOnce(&Stage, &mut Noise)) {
    stage.start(&[]);
    let mut witness = Program::attached(stage, ROOT);
    let (server, holder) = (stage.only(Part::Server), stage.only(Part::Holder));
    // The daemon watches every process that has been a client, this one too from now on.
    Peer::attach(stage.pipe_dir(), LIMIT).expect("served");
    let before = [stage.daemon().pid(), holder].map(descriptors);
    throw(stage, &mut Noise::new());
    assert!(!stage.daemon().ended_within(Duration::ZERO), "the daemon has ended");
    assert_eq!(stage.only(Part::Holder), holder);
    witness.ping();
    witness.does("context", "context");
    assert_eq!(stage.servers(), [server]);
    Peer::attach(stage.pipe_dir(), LIMIT).expect("newcomers are served");
    stage.wait_for("descriptors given back", || {
        let now = [stage.daemon().pid(), holder].map(descriptors);
        now.iter().zip(&before).all(|(now, before)| now <= before)
    });
}

/// Sends up to `most` packets over connections that are opened anew whenever the daemon has closed one.
fn flood(
    stage: &Stage,
    noise: &mut Noise,
    socket: &str,
    sound: impl Fn(&Connection, &mut Noise) -> std::io::Result<Vec<Vec<u8>>>,
) {
    let path = stage.pipe_dir().join(socket);
    let mut left = packets();
    let mut rounds = 0_usize;
    while left > 0 {
        rounds += 1;
        if rounds.is_multiple_of(500) {
            // The witness session, in the middle of it all.
            assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "100.0\n");
        }
        let Ok(connection) = Connection::open(&path) else { continue };
        let Ok(whole) = sound(&connection, noise) else {
            left = left.saturating_sub(1);
            continue;
        };
        for packet in whole {
            left = left.saturating_sub(1);
            if connection.send(&noise.mutated(&packet)).is_err() {
                break;
            }
        }
        for _ in 0..noise.below(4) {
            left = left.saturating_sub(1);
            if connection.send(&noise.packet()).is_err() {
                break;
            }
        }
    }
}

fn role(role: Role) -> Vec<u8> {
    role.encode().to_vec()
}

#[test]
fn garbage_instead_of_a_handshake() {
    for socket in ["control", "control_privileged"] {
        Stage::run(|stage| {
            unharmed(stage, |stage, noise| {
                flood(stage, noise, socket, |_, noise| {
                    Ok(vec![CREDENTIALS.to_vec(), role(Role(noise.below(6))), noise.packet()])
                });
            });
        });
    }
}

/// A sound handshake with this role.
fn greet(connection: &Connection, role: Role) -> std::io::Result<()> {
    connection.receive()?;
    connection.send_credentials()?;
    connection.send(&role.encode())
}

#[test]
fn garbage_as_a_server() {
    Stage::run(|stage| {
        unharmed(stage, |stage, noise| {
            flood(stage, noise, "control", |connection, _| {
                greet(connection, Role::SERVER)?;
                Ok(vec![Hello { shared_memory: "mps.shm.0.1".to_owned(), flags: 0 }.encode().to_vec()])
            });
        });
    });
}

#[test]
fn garbage_as_a_client() {
    Stage::run(|stage| {
        unharmed(stage, |stage, noise| {
            flood(stage, noise, "control", |connection, _| {
                greet(connection, Role::CLIENT)?;
                Ok(vec![0_u32.to_le_bytes().to_vec()])
            });
        });
    });
}

#[test]
fn garbage_as_a_session() {
    Stage::run(|stage| {
        unharmed(stage, |stage, noise| {
            let commands = ["get_server_list\n", "ps\n", "get_client_list 1\n", "lspart\n", "device_query\n", "x\n"];
            for socket in ["control", "control_privileged"] {
                flood(stage, noise, socket, |connection, noise| {
                    greet(connection, Role::UI)?;
                    let line = commands[noise.index(commands.len())];
                    let text = [line.as_bytes(), b"\0"].concat();
                    Ok(vec![(text.len() as u64).to_le_bytes().to_vec(), text])
                });
            }
        });
    });
}

#[test]
fn garbage_to_the_holder_as_another_user() {
    Stage::run(|stage| {
        unharmed(stage, |stage, noise| {
            let socket = ".nvidia-cuda-mps-control.holder";
            // Its file lets nobody else in at all. Whoever gets past that, root here, must not disturb it either.
            let path = stage.pipe_dir().join(socket);
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).expect("it is there"));
            assert_eq!(mode & 0o777, 0o600);
            let mut left = packets() / 20;
            while left > 0 {
                left -= 1;
                let Ok(connection) = Connection::open(&path) else { continue };
                for _ in 0..20 {
                    if connection.send(&noise.packet()).is_err() {
                        break;
                    }
                }
            }
        });
    });
}

#[test]
fn garbage_in_the_fifo() {
    Stage::run(|stage| {
        unharmed(stage, |stage, noise| {
            use remps_proto::mps::log::{LocalTime, Record, Source};
            let mut fifo =
                std::fs::OpenOptions::new().write(true).open(stage.pipe_dir().join("log")).expect("it is there");
            let sound = Record {
                source: Source::SERVER,
                pid: 7,
                time: LocalTime { month: 1, day: 1, ..LocalTime::default() },
                text: b"sound".to_vec(),
            };
            for round in 0..packets() {
                let packet = if round.is_multiple_of(2) { noise.packet() } else { noise.mutated(&sound.encode()) };
                // It blocks while the daemon is behind, and no longer.
                fifo.write_all(&packet).expect("somebody reads");
                if round.is_multiple_of(5000) {
                    assert_eq!(stage.ask("get_default_active_thread_percentage\n"), "100.0\n");
                }
            }
            let last = Record { text: b"the last record of all".to_vec(), ..sound };
            stage.wait_for("a sound record in the log", || {
                (&fifo).write_all(&last.encode()).expect("somebody reads");
                stage.daemon().output().contains("the last record of all")
            });
        });
    });
}

#[test]
fn garbage_from_a_server_ends_that_server_only() {
    // A server that says nonsense after its hello is the test process itself: the daemon does not know its pid, so it
    // is shown the door before it is asked anything.
    Stage::run(|stage| {
        unharmed(stage, |stage, noise| {
            for _ in 0..100 {
                let connection = Connection::greeted(&stage.pipe_dir().join("control"), Role::SERVER).expect("greeted");
                let hello = Hello { shared_memory: format!("mps.shm.0.{}", Pid::this()), flags: 0 };
                connection.send(&hello.encode()).expect("sent");
                let _ = connection.send(&noise.packet());
                let answer = connection.receive();
                assert!(answer.as_ref().map_or(true, |packet| packet.bytes.is_empty()), "it is let in: {answer:?}");
            }
        });
    });
}
