//! Peers that the cluster's part is told to, each on a thread of its own.
//!
//! The tests of the whole daemon in `integration` take this file, too: so it names nothing of either.

use parking_lot::Mutex;
use remps_proto::sentinel::{CALL, HealthEvents};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Ends a hang.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        std::thread::yield_now();
    }
}

/// A file beside this one.
pub(super) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../controld/src/observe/cluster/tests").join(name)
}

fn on_a_thread(act: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(act));
}

/// What a request is answered with, where 409 is that there is an object of this name; 201 when there is nothing left.
#[derive(Debug, Clone, Copy)]
pub(super) enum ApiAnswer {
    Status(u16),
    /// The connection is closed.
    Close,
    /// The answer is that it is elsewhere, at this port.
    Redirect(u16),
    /// Words without end that are no HTTP.
    Nonsense,
    /// Nothing, and the connection stays.
    Silence,
}

#[derive(Debug, Clone)]
pub(super) struct ApiRequest {
    pub(super) head: Vec<String>,
    pub(super) body: Value,
}

/// Kubernetes' API server.
pub(super) struct Api {
    port: u16,
    requests: Arc<Mutex<Vec<ApiRequest>>>,
    folder: tempfile::TempDir,
}

impl Api {
    pub(super) fn begin(answers: Vec<ApiAnswer>) -> Self {
        let chain = CertificateDer::pem_file_iter(file("server.pem")).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<ApiRequest>>>::default();
        on_a_thread(serve(listener, TlsAcceptor::from(Arc::new(config)), answers.into(), Arc::clone(&requests)));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "token-of-the-account\n").unwrap();
        Self { port, requests, folder }
    }

    /// Where it listens, on 127.0.0.1.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// The file with the account's token.
    pub(super) fn token(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// The requests so far, when there are as many.
    pub(super) fn requests(&self, count: usize) -> Vec<ApiRequest> {
        wait_for("requests", || self.requests.lock().len() >= count);
        self.requests.lock().clone()
    }
}

async fn serve(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    answers: VecDeque<ApiAnswer>,
    requests: Arc<Mutex<Vec<ApiRequest>>>,
) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let answers = Arc::new(Mutex::new(answers));
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, answers, requests) = (acceptor.clone(), Arc::clone(&answers), Arc::clone(&requests));
        tokio::spawn(async move {
            // Who does not trust the certificate goes away.
            if let Ok(stream) = acceptor.accept(stream).await {
                answer(BufReader::new(stream), &answers, &requests).await;
            }
        });
    }
}

async fn answer(
    mut stream: BufReader<TlsStream<TcpStream>>,
    answers: &Mutex<VecDeque<ApiAnswer>>,
    requests: &Mutex<Vec<ApiRequest>>,
) {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let length = head.iter().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    requests.lock().push(ApiRequest { head, body: serde_json::from_slice(&body).unwrap() });
    let answer = answers.lock().pop_front().unwrap_or(ApiAnswer::Status(201));
    let reason = if matches!(answer, ApiAnswer::Status(409)) { "AlreadyExists" } else { "Another" };
    let body = format!("{{\"kind\":\"Status\",\"message\":\"because of a test\",\"reason\":\"{reason}\"}}");
    let length = body.len();
    let text = match answer {
        ApiAnswer::Status(status) => format!("HTTP/1.1 {status} Whatever\r\nContent-Length: {length}\r\n\r\n{body}"),
        ApiAnswer::Redirect(port) => {
            let to = format!("Location: https://127.0.0.1:{port}/apis/events.k8s.io/v1/namespaces/x/events");
            format!("HTTP/1.1 307 Elsewhere\r\n{to}\r\nContent-Length: 0\r\n\r\n")
        }
        ApiAnswer::Nonsense => {
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
            return;
        }
        ApiAnswer::Close => return,
        ApiAnswer::Silence => return std::future::pending().await,
    };
    // Who has gone meanwhile does not hear it.
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// NVSentinel's platform connector.
pub(super) struct Sentinel {
    folder: tempfile::TempDir,
    calls: Arc<Mutex<Vec<HealthEvents>>>,
}

impl Sentinel {
    /// One that answers its calls with these statuses.
    pub(super) fn begin(statuses: Vec<u32>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join("sentinel.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let calls = Arc::<Mutex<Vec<HealthEvents>>>::default();
        on_a_thread(connector(listener, statuses.into(), Arc::clone(&calls)));
        Self { folder, calls }
    }

    /// Its socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("sentinel.sock")
    }

    /// The calls so far, when there are as many.
    pub(super) fn calls(&self, count: usize) -> Vec<HealthEvents> {
        wait_for("calls", || self.calls.lock().len() >= count);
        self.calls.lock().clone()
    }
}

async fn connector(
    listener: std::os::unix::net::UnixListener,
    mut statuses: VecDeque<u32>,
    calls: Arc<Mutex<Vec<HealthEvents>>>,
) {
    use prost::Message as _;
    let listener = tokio::net::UnixListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let status = statuses.pop_front().unwrap_or_default();
            let calls = Arc::clone(&calls);
            // The connection has to be driven while the body comes.
            tokio::spawn(async move {
                assert_eq!((request.method().as_str(), request.uri().path()), ("POST", CALL));
                assert_eq!(request.headers()["content-type"], "application/grpc");
                assert_eq!(request.headers()["te"], "trailers");
                let (mut body, mut bytes) = (request.into_body(), Vec::new());
                while let Some(Ok(data)) = body.data().await {
                    bytes.extend_from_slice(&data);
                    body.flow_control().release_capacity(data.len()).unwrap();
                }
                let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
                assert_eq!((bytes[0], bytes.len()), (0, 5 + length));
                calls.lock().push(HealthEvents::decode(&bytes[5..]).unwrap());
                let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut answer = respond.send_response(head, false).unwrap();
                if status == 0 {
                    answer.send_data(bytes::Bytes::from_static(&[0; 5]), false).unwrap();
                }
                let mut trailers = http::HeaderMap::new();
                trailers.insert("grpc-status", status.to_string().parse().unwrap());
                answer.send_trailers(trailers).unwrap();
            });
        }
    }
}
