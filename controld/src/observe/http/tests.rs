//! Real sockets, a driver of a few lines, and peers that mean no good.

use super::listener::ListenError;
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpStream, UnixStream};

/// Whatever takes longer than this has hung.
const LIMIT: Duration = Duration::from_secs(120);
/// Longer than anything hangs.
const NEVER: Duration = Duration::from_secs(3600);
const METRICS: &str = "# HELP mps_x A count.\n# TYPE mps_x counter\nmps_x_total 1\n# EOF\n";

struct Served {
    address: String,
    task: AbortHandle,
    asked: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An endpoint with a driver that answers with these obstacles.
async fn served(address: Option<&str>, obstacles: &[&str]) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let listen = address.map_or_else(|| format!("unix:{}/m.sock", folder.path().display()), str::to_owned);
    let endpoint = Endpoint::bind(&listen).await.unwrap();
    let address = endpoint.local_address().unwrap();
    let (task, mut questions_rx) = serve_within(endpoint, NEVER, NEVER);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let obstacles: Vec<String> = obstacles.iter().map(|&text| text.to_owned()).collect();
    tokio::spawn(async move {
        while let Some(Question { metrics, vitals_tx }) = questions_rx.recv().await {
            count.fetch_add(1, Ordering::Relaxed);
            let metrics = metrics.then(|| METRICS.to_owned());
            let _ = vitals_tx.send(Vitals { obstacles: obstacles.clone(), metrics });
        }
    });
    Served { address, task, asked, _folder: folder }
}

async fn connect(address: &str) -> Stream {
    match address.strip_prefix("unix:") {
        Some(path) => Stream::Unix(UnixStream::connect(path).await.unwrap()),
        None => Stream::Tcp(TcpStream::connect(address).await.unwrap()),
    }
}

/// Sends bytes, and gives everything that comes back.
async fn exchange(address: &str, request: &[u8]) -> String {
    let mut stream = connect(address).await;
    // One that has been given up already takes nothing, and its answer says so.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    // A peer that has not read all of a request may reset the connection after its answer.
    let _ = timeout(LIMIT, stream.read_to_end(&mut answer)).await.expect("an answer in time");
    String::from_utf8(answer).unwrap()
}

async fn get(address: &str, path: &str) -> (String, String) {
    let answer = exchange(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())) && head.contains("Connection: close"),
        "{head}"
    );
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn every_path_answers_over_either_kind_of_socket() {
    for address in [None, Some("127.0.0.1:0"), Some("[::1]:0")] {
        if address.is_some_and(|address| address.contains("::1")) && std::net::TcpListener::bind("[::1]:0").is_err() {
            println!("Skipped(this machine has no IPv6 loopback)");
            continue;
        }
        let served = served(address, &[]).await;
        for path in ["/livez", "/readyz", "/startupz", "/readyz?verbose=1"] {
            assert_eq!(get(&served.address, path).await, ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()), "{path}");
        }
        let (status, body) = get(&served.address, "/metrics").await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert_eq!(body, "# HELP mps_x_total A count.\n# TYPE mps_x_total counter\nmps_x_total 1\n");
        assert_eq!(get(&served.address, "/").await.0, "HTTP/1.1 404 Not Found");
    }
}

#[tokio::test]
async fn openmetrics_is_for_who_accepts_it() {
    let served = served(None, &[]).await;
    let ask = async |accept: &str| {
        exchange(&served.address, format!("GET /metrics HTTP/1.1\r\nACCEPT: {accept}\r\n\r\n").as_bytes()).await
    };
    let openmetrics = ask("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3").await;
    assert!(openmetrics.contains("application/openmetrics-text") && openmetrics.ends_with("# EOF\n"), "{openmetrics}");
    for accept in ["text/plain", "*/*", "application/openmetrics-text;q=0", "\u{fffd}"] {
        let classic = ask(accept).await;
        assert!(classic.contains("text/plain; version=0.0.4") && !classic.contains("EOF"), "{accept}: {classic}");
    }
}

#[tokio::test]
async fn one_that_cannot_admit_clients_is_alive_and_not_ready() {
    let served = served(None, &["the holder is gone", "the daemon is about to end"]).await;
    assert_eq!(get(&served.address, "/livez").await.0, "HTTP/1.1 200 OK");
    let (status, body) = get(&served.address, "/readyz").await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(body, "the holder is gone\nthe daemon is about to end\n");
}

#[tokio::test]
async fn a_driver_that_does_not_turn_is_not_alive() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/m.sock", folder.path().display());
    // The questions are kept and never answered.
    let (task, _questions_rx) = serve_within(Endpoint::bind(&address).await.unwrap(), Duration::from_millis(50), NEVER);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(&address, path).await.0, "HTTP/1.1 503 Service Unavailable", "{path}");
    }
    assert_eq!(get(&address, "/startupz").await.0, "HTTP/1.1 200 OK");
    task.abort();
}

#[tokio::test]
async fn what_is_no_request_gets_a_clear_answer() {
    let served = served(None, &[]).await;
    let address = &served.address;
    assert!(exchange(address, b"\x16\x03\x01\x02\x00\x01\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    assert!(exchange(address, b"PUT /metrics HTTP/1.1\r\n\r\n").await.contains("405 Method Not Allowed\r\n"));
    assert!(
        exchange(address, b"POST /quit HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").await.contains("Allow: GET, HEAD")
    );
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "y".repeat(2 * MAX_HEAD));
    assert!(exchange(address, long.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
    assert!(exchange(address, many.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    let head = exchange(address, b"HEAD /metrics HTTP/1.0\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(served.asked.load(Ordering::Relaxed), 1, "only the last one reached the driver");
}

#[tokio::test]
async fn peers_that_say_nothing_keep_no_probe_out() {
    let served = served(None, &[]).await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS * 3 {
        let mut stream = connect(&served.address).await;
        stream.write_all(b"GET /met").await.unwrap();
        silent.push(stream);
    }
    assert_eq!(get(&served.address, "/livez").await.0, "HTTP/1.1 200 OK");
    // The first of them have given way.
    let mut rest = Vec::new();
    let _ = timeout(LIMIT, silent[0].read_to_end(&mut rest)).await.expect("it is closed");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_peer_that_does_not_come_to_the_end_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/m.sock", folder.path().display());
    let endpoint = Endpoint::bind(&address).await.unwrap();
    let (task, _questions_rx) = serve_within(endpoint, NEVER, Duration::from_millis(50));
    // One sends half a request; the other asks and gets no answer in its time.
    for request in [b"GET /livez HT".as_slice(), b"GET /livez HTTP/1.1\r\n\r\n"] {
        assert_eq!(exchange(&address, request).await, "");
    }
    task.abort();
}

#[tokio::test]
async fn a_flood_of_scrapes_asks_the_driver_seldom() {
    let served = served(None, &[]).await;
    let start = Instant::now();
    for _ in 0..300 {
        assert_eq!(get(&served.address, "/metrics").await.0, "HTTP/1.1 200 OK");
    }
    let most = start.elapsed().as_millis() / FRESH.as_millis() + 1;
    assert!(served.asked.load(Ordering::Relaxed) as u128 <= most);
}

#[tokio::test]
async fn a_socket_is_for_user_and_group_and_goes_with_its_endpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sock");
    let listen = format!("unix:{}", path.display());
    let endpoint = Endpoint::bind(&listen).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    assert!(matches!(Endpoint::bind(&listen).await, Err(ListenError::InTheWay(_))), "another daemon's is left alone");
    drop(endpoint);
    assert!(!path.exists());
    // A killed daemon leaves its file.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Endpoint::bind(&listen).await.unwrap());
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(Endpoint::bind(&listen).await, Err(ListenError::InTheWay(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn no_address_of_the_network_is_served() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        assert!(matches!(Endpoint::bind(listen).await, Err(ListenError::NotLoopback(_))), "{listen}");
    }
    assert!(matches!(Endpoint::bind("9400").await, Err(ListenError::NoAddress(_))));
}
