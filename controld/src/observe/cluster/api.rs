//! Makes an Event at Kubernetes' API server: one request of HTTP/1.1 over TLS, and its answer.
//!
//! The service account's token and the cluster's certificates are read for each, since the kubelet renews both. There is
//! no request without TLS: the token would be anybody's on the way.

use super::events::Event;
use super::{ApiServer, Failure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Bytes of an answer that are read; what an error says is in the first of them.
const LONGEST_ANSWER: usize = 16 * 1024;
/// Lines of an answer's head.
const MOST_HEADERS: usize = 64;
/// Bytes of files that are read: a token has some 1,500, and a bundle of certificates may have many.
const LONGEST_TOKEN: usize = 64 * 1024;
const LONGEST_BUNDLE: usize = 1 << 20;
/// There is one of this name, or something else was changed by two at once.
const CONFLICT: u16 = 409;
/// The reason of the first of these.
const EXISTS: &str = "AlreadyExists";
/// Too many requests.
const SLOW_DOWN: u16 = 429;

fn passing(what: &str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Passing(format!("{what}: {error}"))
}

/// Makes an Event. `may_be_made` says whether it has been asked for before and never answered: the name is its own then, and
/// otherwise another object's.
pub(super) async fn post(server: &ApiServer, event: &Event, may_be_made: &Cell<bool>) -> Result<(), Failure> {
    let token = String::from_utf8(read(&server.token, LONGEST_TOKEN)?)
        .map_err(|_| Failure::Lasting(format!("{} is no token", server.token.display())))?;
    let token = token.trim();
    if token.is_empty() || token.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(Failure::Lasting(format!("{} is no token", server.token.display())));
    }
    let connector = TlsConnector::from(Arc::new(trust(&server.ca)?));
    let name = ServerName::try_from(server.host.clone())
        .map_err(|_| Failure::Lasting(format!("{} is no name of a server", server.host)))?;
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(passing("no connection"))?;
    let mut stream = connector.connect(name, stream).await.map_err(passing("no TLS"))?;
    let body = event.body.to_string();
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    let head = format!(
        "POST /apis/events.k8s.io/v1/namespaces/{}/events HTTP/1.1\r\nHost: {host}:{}\r\nAuthorization: Bearer {token}\r\n\
         User-Agent: nvidia-cuda-mps-control\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        event.namespace,
        server.port,
        body.len(),
    );
    let was_asked = may_be_made.replace(true);
    stream.write_all(head.as_bytes()).await.map_err(passing("it takes nothing"))?;
    stream.write_all(body.as_bytes()).await.map_err(passing("it takes nothing"))?;
    stream.flush().await.map_err(passing("it takes nothing"))?;
    let mut answer = Vec::new();
    let mut limited = stream.take(LONGEST_ANSWER as u64);
    match limited.read_to_end(&mut answer).await {
        // Some servers close without saying goodbye.
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(passing("no answer")(error)),
    }
    let judged = judged(&answer);
    if matches!(judged, Err(Failure::Taken)) && was_asked {
        return Ok(());
    }
    // Whatever is refused is not made.
    if matches!(judged, Err(Failure::Refused(_))) {
        may_be_made.set(was_asked);
    }
    judged
}

/// What an answer says of the request.
pub(super) fn judged(answer: &[u8]) -> Result<(), Failure> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = response.parse(answer) else {
        return Err(Failure::Passing("its answer is no HTTP".to_owned()));
    };
    let text = String::from_utf8_lossy(&answer[length..]);
    let said = |key: &str| {
        let value = text.split_once(key).and_then(|(_, rest)| rest.split('"').nth(1)).unwrap_or_default();
        value.chars().filter(|c| !c.is_control()).take(200).collect::<String>()
    };
    let why = |code| format!("it answers {code}: {}", said("\"message\":"));
    match response.code.unwrap_or_default() {
        200..=299 => Ok(()),
        CONFLICT if said("\"reason\":") == EXISTS => Err(Failure::Taken),
        // A quota, for one, is changed by several at once, and the next try succeeds.
        code @ (CONFLICT | SLOW_DOWN) => Err(Failure::Refused(why(code))),
        code @ 500.. => Err(Failure::Passing(why(code))),
        code => Err(Failure::Lasting(why(code))),
    }
}

fn read(path: &Path, longest: usize) -> Result<Vec<u8>, Failure> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    let read = file.and_then(|file| file.take(longest as u64).read_to_end(&mut bytes));
    // The kubelet may be about to exchange it.
    read.map_err(|error| Failure::Passing(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

/// Whom to trust: the certificates of this file and nobody else.
fn trust(ca: &Path) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    let bundle = read(ca, LONGEST_BUNDLE)?;
    let certificates = CertificateDer::pem_slice_iter(&bundle).flatten();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(Failure::Lasting(format!("{} has no certificate", ca.display())));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| Failure::Lasting(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
