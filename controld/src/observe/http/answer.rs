//! From a request to the bytes of its answer.

use super::Vitals;
use super::request::{BadRequest, Method, Request};
use crate::observe::metrics::{CLASSIC_TYPE, OPENMETRICS_TYPE, classic};
use std::sync::Arc;

const PLAIN: &str = "text/plain; charset=utf-8";
const NOT_ALIVE: &str = "the daemon does not answer\n";

/// An answer before it is written out.
struct Response {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Response {
    fn plain(status: &'static str, body: impl Into<String>) -> Self {
        Self { status, kind: PLAIN, body: body.into() }
    }

    fn encode(&self, with_body: bool) -> Vec<u8> {
        let allow = if self.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{allow}Connection: \
             close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        );
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        bytes
    }
}

/// The answer to a request. `ask` asks the driver, with the metrics or without, and gives `None` when it does not answer
/// in time.
pub(super) async fn respond(
    request: &Result<Request, BadRequest>,
    ask: impl AsyncFnOnce(bool) -> Option<Arc<Vitals>>,
) -> Vec<u8> {
    let request = match request {
        Ok(request) => request,
        Err(BadRequest::Malformed) => return Response::plain("400 Bad Request", "no HTTP request\n").encode(true),
        Err(BadRequest::TooLong) => {
            return Response::plain("431 Request Header Fields Too Large", "the head is too long\n").encode(true);
        }
    };
    if request.method == Method::Other {
        return Response::plain("405 Method Not Allowed", "only GET and HEAD\n").encode(true);
    }
    let response = match request.path.as_str() {
        "/livez" => match ask(false).await {
            Some(_) => Response::plain("200 OK", "ok\n"),
            None => Response::plain("503 Service Unavailable", NOT_ALIVE),
        },
        "/readyz" => match ask(false).await {
            Some(vitals) if vitals.obstacles.is_empty() => Response::plain("200 OK", "ok\n"),
            Some(vitals) => Response::plain("503 Service Unavailable", vitals.obstacles.join("\n") + "\n"),
            None => Response::plain("503 Service Unavailable", NOT_ALIVE),
        },
        "/startupz" => Response::plain("200 OK", "ok\n"),
        "/metrics" => match ask(true).await.and_then(|vitals| vitals.metrics.clone()) {
            Some(metrics) if request.openmetrics => {
                Response { status: "200 OK", kind: OPENMETRICS_TYPE, body: metrics }
            }
            Some(metrics) => Response { status: "200 OK", kind: CLASSIC_TYPE, body: classic(&metrics) },
            None => Response::plain("503 Service Unavailable", NOT_ALIVE),
        },
        _ => Response::plain("404 Not Found", "/metrics /livez /readyz /startupz\n"),
    };
    response.encode(request.method == Method::Get)
}
