//! The page at `/` and the experiment behind it. The page is static; both need the key.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::app::App;
use super::body::receive;
use super::error::ApiError;
use crate::showroom::{Ask, PAGE, Voice};

/// Lines that may wait for a slow visitor before the experiment waits too.
const LINES_AHEAD: usize = 16;

/// `GET /`. The policy lets nothing be loaded from elsewhere, not even by a fault of the page.
pub async fn page() -> impl IntoResponse {
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)], PAGE)
}

/// `GET /demo`: what is on show.
pub async fn about(State(app): State<Arc<App>>) -> impl IntoResponse {
    let stage = app.served.stage.as_deref();
    axum::Json(json!({
        "model": app.served.model_name,
        "plan": app.served.fingerprint,
        "vocab": app.worker.limits().vocab,
        "arithmetic": stage.map(|stage| stage.arithmetic()),
        "open": stage.is_some(),
    }))
}

/// `POST /demo/run`: one JSON object a line while the experiment runs.
pub async fn run(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    if app.served.stage.is_none() {
        return Err(ApiError::unknown_path("/demo/run"));
    }
    let body = receive(&app, request).await?;
    let ask: Ask = serde_json::from_slice(&body.bytes).map_err(|error| ApiError::bad_request(error.to_string()))?;
    ask.check().map_err(|error| ApiError::field(error.field, &error.expected, &error.got))?;
    // One visitor at a time: the experiment shares the processor with everybody else.
    let place = app.visitors.clone().try_acquire_owned().map_err(|_| ApiError::queue_full())?;
    let (lines, body) = mpsc::channel::<String>(LINES_AHEAD);
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let served = &app.served;
        let voice = Voice { tokenizer: &served.tokenizer, chat: served.chat.as_ref(), eos: &served.eos };
        let Some(stage) = &served.stage else { return };
        let mut emit = |line| match serde_json::to_string(&line) {
            Ok(line) => lines.blocking_send(line + "\n").is_ok(),
            Err(_) => false,
        };
        if let Err(trouble) = stage.run(voice, &ask, &mut emit) {
            let _ = lines.blocking_send(json!({ "error": trouble.to_string() }).to_string() + "\n");
        }
    });
    let body = ReceiverStream::new(body).map(|line| Ok::<_, std::convert::Infallible>(Bytes::from(line)));
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(body)).into_response())
}
