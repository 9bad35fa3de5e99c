//! Receipts of answers: made when a request asks for one, kept in a folder under their digests, read back over HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::app::App;
use super::error::ApiError;
use crate::receipt::{Digest, Identity, PromptSource, Receipt, store};

/// What receipts are made of, and where they go.
pub struct Receipts {
    /// The served model.
    pub identity: Arc<Identity>,
    /// The folder, which exists.
    pub folder: PathBuf,
}

/// A prompt with what its receipt says about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Where they came from.
    pub source: PromptSource,
    /// The text that they were cut from.
    pub text: Option<Arc<str>>,
}

impl Prompt {
    /// Tokens that a client sent.
    pub fn tokens(tokens: Vec<u32>) -> Self {
        Self { tokens, source: PromptSource::Tokens, text: None }
    }

    /// Tokens of a text.
    pub fn text(tokens: Vec<u32>, source: PromptSource, text: &str) -> Self {
        Self { tokens, source, text: Some(text.into()) }
    }
}

/// Writes a receipt, away from the threads that serve connections.
pub async fn keep(receipts: &Receipts, receipt: Receipt) -> Result<Digest, ApiError> {
    let folder = receipts.folder.clone();
    let work = tokio::task::spawn_blocking(move || {
        store::write_to_folder(&receipt, &folder).map(|_| receipt.digest).map_err(|error| error.to_string())
    });
    let failed = |why: String| {
        tracing::error!(why, "a receipt cannot be written");
        ApiError::failed("the receipt cannot be written")
    };
    work.await.map_err(|error| failed(error.to_string()))?.map_err(failed)
}

/// `GET /v1/receipts/DIGEST`: a kept receipt.
pub async fn kept(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let unknown = || ApiError::unknown_path(&format!("/v1/receipts/{name}"));
    // Nothing but a digest becomes part of a path.
    let (Some(receipts), Some(digest)) = (&app.served.receipts, Digest::parse(&name)) else { return Err(unknown()) };
    let path = store::path(&receipts.folder, digest);
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    let Ok(Ok(bytes)) = read else { return Err(unknown()) };
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response())
}
