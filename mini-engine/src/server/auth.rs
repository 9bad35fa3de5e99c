//! The key that clients send. It is compared in constant time, by digests, so that neither its length nor its first wrong
//! byte shows in the time that a refusal takes.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use super::app::App;
use super::error::ApiError;

/// The paths that need no key: whoever watches the server has none, and the page, which says nothing of the server, asks for it.
pub const OPEN_PATHS: [&str; 2] = ["/health", "/"];

/// Lets a request through when it brings the key, where one is set.
pub async fn require_key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if let Some(key) = &app.options.api_key
        && !OPEN_PATHS.contains(&request.uri().path())
        && !brings(&request, key)
    {
        return ApiError::unauthorized().into_response();
    }
    next.run(request).await
}

fn brings(request: &Request, key: &str) -> bool {
    let Some(value) = request.headers().get(header::AUTHORIZATION) else { return false };
    let bytes = value.as_bytes();
    let Some((scheme, sent)) = bytes.split_at_checked("Bearer ".len()) else { return false };
    scheme.eq_ignore_ascii_case(b"Bearer ")
        && bool::from(blake3::hash(sent).as_bytes().ct_eq(blake3::hash(key.as_bytes()).as_bytes()))
}
