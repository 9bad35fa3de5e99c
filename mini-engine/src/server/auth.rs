//! The key that clients send. It is compared in constant time, by digests, so that neither its length nor its first wrong
//! byte shows in the time that a refusal takes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::app::App;
use super::error::ApiError;

/// The path that needs no key: whoever watches the server has none.
const OPEN_PATH: &str = "/health";
/// The path that people open in a browser, which asks them for a name and a password where it is told so.
const PAGE_PATH: &str = "/";
/// What a browser is told.
const CHALLENGE: &str = "Basic realm=\"any name, and the server's key as the password\"";

/// Lets a request through when it brings the key, where one is set.
pub async fn require_key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let passes = |key: &String| path == OPEN_PATH || brings(&request, key);
    if app.options.api_key.as_ref().is_none_or(passes) {
        return next.run(request).await;
    }
    let mut refusal = ApiError::unauthorized().into_response();
    if path == PAGE_PATH {
        refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    }
    refusal
}

/// Whether the key comes as clients send it (RFC 6750), or as browsers do: the password after any name (RFC 7617).
fn brings(request: &Request, key: &str) -> bool {
    let Some(value) = request.headers().get(header::AUTHORIZATION) else { return false };
    let Some(space) = value.as_bytes().iter().position(|&byte| byte == b' ') else { return false };
    let (scheme, sent) = (&value.as_bytes()[..space], &value.as_bytes()[space + 1..]);
    if scheme.eq_ignore_ascii_case(b"Bearer") {
        return equal(sent, key);
    }
    let Some(pair) = scheme.eq_ignore_ascii_case(b"Basic").then(|| STANDARD.decode(sent).ok()).flatten() else {
        return false;
    };
    let colon = pair.iter().position(|&byte| byte == b':');
    colon.is_some_and(|colon| equal(&pair[colon + 1..], key))
}

fn equal(sent: &[u8], key: &str) -> bool {
    blake3::hash(sent).as_bytes().ct_eq(blake3::hash(key.as_bytes()).as_bytes()).into()
}
