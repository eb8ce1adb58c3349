//! The head of a request, as far as it matters here.

use super::MAX_HEADERS;

/// The media type that asks for OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text";

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadRequest {
    /// It is no HTTP/1 request.
    Malformed,
    /// Its head is longer than there is room for.
    TooLong,
}

/// How something is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// `GET`.
    Get,
    /// `HEAD`: the answer without its body.
    Head,
    /// Anything else.
    Other,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// How.
    pub(super) method: Method,
    /// What, without a query.
    pub(super) path: String,
    /// Whether OpenMetrics' format is accepted.
    pub(super) openmetrics: bool,
}

impl Request {
    /// Reads a head; `None` while it is not whole.
    pub(super) fn parse(head: &[u8]) -> Result<Option<Self>, BadRequest> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(httparse::Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(BadRequest::TooLong),
            Err(_) => return Err(BadRequest::Malformed),
        }
        let method = match request.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            _ => Method::Other,
        };
        let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
        let accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
        let openmetrics = accepts.flat_map(|header| header.value.split(|&byte| byte == b',')).any(wants_openmetrics);
        Ok(Some(Self { method, path, openmetrics }))
    }
}

/// Whether an element of `Accept` is OpenMetrics, and not with a weight of 0.
fn wants_openmetrics(element: &[u8]) -> bool {
    let Ok(element) = std::str::from_utf8(element) else {
        return false;
    };
    let mut parts = element.split(';').map(str::trim);
    let refused = |part: &str| part.strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0f32));
    parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case(OPENMETRICS)) && !parts.any(refused)
}
