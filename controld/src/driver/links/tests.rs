//! What a server has said last, before a daemon that starts again has caught up.

use super::*;
use crate::io::seqpacket::pair;
use tokio::time::timeout;

const SERVER: ServerEpoch = ServerEpoch(1);
const LIMIT: Duration = Duration::from_secs(120);

fn ends() -> (Arc<SeqPacket>, SeqPacket) {
    let (near, far) = pair().unwrap();
    (Arc::new(SeqPacket::new(near).unwrap()), SeqPacket::new(far).unwrap())
}

#[tokio::test(flavor = "current_thread")]
async fn all_that_a_server_has_said_is_told_before_the_daemon_has_caught_up() {
    const PACKETS: usize = 20;
    let (events, mut events_rx) = Events::channel();
    // So full that the reader has to wait for room with every packet.
    for _ in 0..events_rx.max_capacity() {
        events.send(Event::LinkWritable { server: SERVER }).await;
    }
    let (socket, server) = ends();
    tokio::spawn(catch_up(Arc::downgrade(&socket), events.clone(), Event::CaughtUp { server: SERVER }));
    tokio::spawn(read_link(SERVER, socket, events.clone()));
    for _ in 0..PACKETS {
        server.send(b"packet", None).unwrap();
    }
    // Long enough for it to queue its report at once, were that its way.
    sleep_until((Instant::now() + LOOK * 10).into()).await;
    let mut told = Vec::new();
    while !matches!(told.last(), Some(Event::CaughtUp { .. })) {
        told.push(timeout(LIMIT, events_rx.recv()).await.unwrap().unwrap());
        // There is room for one at a time.
        yield_now().await;
    }
    assert_eq!(told.iter().filter(|event| matches!(event, Event::LinkPacket { .. })).count(), PACKETS);
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_lost_link_still_has_is_not_waited_for() {
    let (events, mut events_rx) = Events::channel();
    let (socket, server) = ends();
    server.send(b"nobody reads it", None).unwrap();
    tokio::spawn(catch_up(Arc::downgrade(&socket), events, Event::CaughtUp { server: SERVER }));
    drop(socket);
    let told = timeout(LIMIT, events_rx.recv()).await.unwrap().unwrap();
    assert!(matches!(told, Event::CaughtUp { server: SERVER }));
}
