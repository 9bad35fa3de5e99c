//! Receiving a body: bounded in size and time, and all bodies together bounded in memory.

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;

use super::app::App;
use super::error::ApiError;

/// A body and its share of the memory for bodies.
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    _share: Option<OwnedSemaphorePermit>,
}

/// Receives the body of a request, which must be declared to be JSON: no web page can send that elsewhere without asking.
pub async fn receive(app: &App, request: Request) -> Result<Received, ApiError> {
    let bytes_max = app.options.body_bytes_max;
    check_head(request.headers(), bytes_max)?;
    let received = tokio::time::timeout(app.options.body_timeout, collect(app, request, bytes_max)).await;
    received.unwrap_or_else(|_| Err(ApiError::too_slow()))
}

fn check_head(headers: &HeaderMap, bytes_max: usize) -> Result<(), ApiError> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let media_type = header(header::CONTENT_TYPE).and_then(|value| value.split(';').next()).unwrap_or_default();
    if !media_type.trim().eq_ignore_ascii_case("application/json") {
        return Err(ApiError::not_json());
    }
    let declared = header(header::CONTENT_LENGTH).and_then(|value| value.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(ApiError::too_large(bytes_max));
    }
    Ok(())
}

async fn collect(app: &App, request: Request, bytes_max: usize) -> Result<Received, ApiError> {
    let mut body = request.into_body();
    let mut received = Received { bytes: Vec::new(), _share: None };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad_request(format!("body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > bytes_max - received.bytes.len() {
            return Err(ApiError::too_large(bytes_max));
        }
        let share = app.body_budget.clone().try_acquire_many_owned(data.len() as u32);
        let share = share.map_err(|_| ApiError::unavailable("too many bodies are being received"))?;
        match &mut received._share {
            Some(whole) => whole.merge(share),
            none => *none = Some(share),
        }
        received.bytes.extend_from_slice(&data);
    }
    Ok(received)
}
