//! `/v1/tokenize`: the tokens that a prompt or a conversation becomes.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use serde_json::{Value, json};

use super::app::App;
use super::body::receive;
use super::chat;
use super::common::read_body;
use super::error::ApiError;
use super::fields::{Field, Fields, extension};

/// Its fields.
pub const TOKENIZE_FIELDS: &[Field] = &[
    extension("model", "The served model's name, or absent."),
    extension("prompt", "Text, as `/v1/completions` would read it."),
    extension("messages", "A conversation, as `/v1/chat/completions` would read it; only one of the two."),
    extension("tools", "With `messages`."),
];

/// Answers a request.
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Json<Value>, ApiError> {
    let body = receive(&app, request).await?;
    read_body(&app, body, read).await.map(Json)
}

/// Reads a body and cuts its text.
pub fn read(app: &App, body: &[u8]) -> Result<Value, ApiError> {
    let mut fields = Fields::parse(body, &[TOKENIZE_FIELDS])?;
    app.check_model(fields.text("model")?)?;
    let tokens = match (fields.text("prompt")?, fields.take("messages"), fields.take("tools")) {
        (Some(text), None, None) => app.encode_prompt(&text)?,
        (None, Some(messages), tools) => chat::tokens(app, messages, tools)?,
        _ => return Err(ApiError::field("prompt", "either a prompt or messages", "both or neither")),
    };
    let context = app.worker.limits().context_max;
    Ok(json!({ "count": tokens.len(), "max_model_len": context, "tokens": tokens }))
}
