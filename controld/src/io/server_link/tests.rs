use super::*;
use crate::io::seqpacket::pair;

fn link() -> (ServerLink, SeqPacket) {
    let (near, far) = pair().expect("descriptors");
    let near = Arc::new(SeqPacket::new(near).expect("a socket"));
    (ServerLink::new(near, Dialect::Keys), SeqPacket::new(far).expect("a socket"))
}

async fn answer(link: &mut ServerLink, server: &SeqPacket, reply: &Reply) -> Option<(RequestId, Reply)> {
    let mut result = None;
    for packet in reply.packets() {
        server.send(&packet, None).expect("room");
        let packet = link.socket().clone().receive(MAX_PACKET).await.expect("readable").expect("a packet");
        result = link.received(&packet).expect("it fits");
    }
    result
}

#[tokio::test(flavor = "current_thread")]
async fn answers_are_matched_in_order() {
    let (mut link, server) = link();
    let now = Instant::now();
    link.ask(now, RequestId(1), &Request::Clients).expect("room");
    link.ask(now, RequestId(2), &Request::Status).expect("room");
    let clients = Reply::Clients(vec![5, 6]);
    assert_eq!(answer(&mut link, &server, &clients).await, Some((RequestId(1), clients)));
    assert_eq!(answer(&mut link, &server, &Reply::Active(true)).await, Some((RequestId(2), Reply::Active(true))));
}

#[tokio::test(flavor = "current_thread")]
async fn a_late_answer_is_dropped_and_the_next_one_still_matched() {
    let (mut link, server) = link();
    let now = Instant::now();
    link.ask(now, RequestId(1), &Request::Shutdown).expect("room");
    link.ask(now + ANSWER_TIMEOUT, RequestId(2), &Request::Status).expect("room");
    assert!(!link.seems_overdue(now));
    assert!(link.seems_overdue(now + ANSWER_TIMEOUT));
    assert_eq!(link.overdue(), [RequestId(1)]);
    assert_eq!(link.overdue(), []);
    assert!(!link.seems_overdue(now + ANSWER_TIMEOUT));
    assert_eq!(answer(&mut link, &server, &Reply::ActiveWorkers(2)).await, None);
    assert_eq!(answer(&mut link, &server, &Reply::Active(false)).await, Some((RequestId(2), Reply::Active(false))));
}

#[tokio::test(flavor = "current_thread")]
async fn an_answer_that_lay_unread_when_its_time_was_over_counts() {
    let (mut link, server) = link();
    let now = Instant::now();
    link.ask(now, RequestId(1), &Request::Clients).expect("room");
    link.ask(now, RequestId(2), &Request::Status).expect("room");
    assert!(link.seems_overdue(now + ANSWER_TIMEOUT));
    // Nobody is asked a second time to read, and no timer is set for what is known to be over.
    assert!(!link.seems_overdue(now + ANSWER_TIMEOUT));
    assert_eq!(link.next_deadline(), None);
    link.ask(now + ANSWER_TIMEOUT, RequestId(3), &Request::Status).expect("room");
    let clients = Reply::Clients(vec![5]);
    assert_eq!(answer(&mut link, &server, &clients).await, Some((RequestId(1), clients)));
    assert_eq!(link.overdue(), [RequestId(2)]);
    assert_eq!(link.next_deadline(), Some(now + ANSWER_TIMEOUT + ANSWER_TIMEOUT));
}

#[tokio::test(flavor = "current_thread")]
async fn whatever_an_earlier_daemon_had_asked_is_dropped() {
    let lists = Reply::Clients(vec![1, 2, 3]);
    let earlier = [
        None,
        Some(Reply::ThreadPercentage(5.0)),
        Some(Reply::ActiveWorkers(2)),
        Some(lists),
        Some(Reply::PinnedLimit(4)),
        Some(Reply::Devices(vec![])),
    ];
    for earlier in earlier {
        let (near, far) = pair().expect("descriptors");
        let server = SeqPacket::new(far).expect("a socket");
        let near = Arc::new(SeqPacket::new(near).expect("a socket"));
        // Two daemons died before; the second one while it was taking over.
        let dead = ServerLink::resume(near.clone(), Dialect::Keys).expect("room").marker.expect("it waits");
        let mut link = ServerLink::resume(near, Dialect::Keys).expect("room");
        link.ask(Instant::now(), RequestId(9), &Request::Shutdown).expect("room");
        let replies = |row: &[bool]| -> Vec<Reply> {
            let reply = |long: &bool| if *long { Reply::ThreadPercentage(100.0) } else { Reply::Active(true) };
            row.iter().map(reply).collect()
        };
        let own = replies(&link.marker.as_ref().expect("it waits").row);
        for reply in earlier.iter().chain(&replies(&dead.row)).chain(&earlier).chain(&own) {
            assert_eq!(answer(&mut link, &server, reply).await, None);
        }
        let own = answer(&mut link, &server, &Reply::ActiveWorkers(1)).await;
        assert_eq!(own, Some((RequestId(9), Reply::ActiveWorkers(1))), "after {earlier:?}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_does_not_read_gets_everything_later_and_in_order() {
    let (mut link, server) = link();
    let tell = |value: u32| Request::SetPriority(value).packets();
    let mut told = 0;
    while link.queued.len() < 8 {
        link.send(&tell(told), None).expect("it is queued");
        told += 1;
    }
    assert!(link.is_backed_up());
    for value in 0..told {
        let operation = server.receive(64).await.expect("readable").expect("a packet");
        assert_eq!(operation.bytes, Request::SetPriority(value).packets()[0]);
        link.flush().expect("room");
        let number = server.receive(64).await.expect("readable").expect("a packet");
        assert_eq!(number.bytes, value.to_le_bytes());
        link.flush().expect("room");
    }
    assert!(!link.is_backed_up());
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_never_reads_is_given_up() {
    let (mut link, _server) = link();
    let packets = Request::Status.packets();
    let error = (0..100_000).find_map(|_| link.send(&packets, None).err());
    assert!(matches!(error, Some(LinkError::Stuck)));
}

#[tokio::test(flavor = "current_thread")]
async fn a_packet_that_nobody_asked_for_is_an_error() {
    let (mut link, server) = link();
    server.send(b"????", None).expect("room");
    let packet = link.socket().clone().receive(MAX_PACKET).await.expect("readable").expect("a packet");
    assert!(matches!(link.received(&packet), Err(LinkError::Unasked(4))));
}
