//! Every refusal and failure in the shape that OpenAI's clients understand:
//! `{"error": {"message", "type", "param", "code"}}`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::engine::Refusal;

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None }
    }

    /// A body or field that is not what it should be.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field that is not what it should be.
    pub fn field(param: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Self {
        Self::bad_request(format!("{param}: expected {expected}, got {got}")).about(param)
    }

    /// A field that this server does not have.
    pub fn unknown_field(param: &str) -> Self {
        Self::bad_request(format!("{param}: not a field of this request")).about(param).coded("unknown_parameter")
    }

    /// A field that this server refuses.
    pub fn unsupported_field(param: &str, why: &str) -> Self {
        Self::bad_request(format!("{param}: not supported by this server ({why})"))
            .about(param)
            .coded("unsupported_parameter")
    }

    /// Another model than the one that is served.
    pub fn unknown_model(asked: &str, served: &str) -> Self {
        let message = format!("model: expected {served:?}, got {:?}", shortened(asked));
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message).about("model").coded("model_not_found")
    }

    /// The prompt and the answer asked for are longer than the model's context.
    pub fn context_exceeded(context: usize, prompt: usize, answer: usize) -> Self {
        let message = format!(
            "the model's context holds {context} tokens, got {prompt} of the prompt and up to {answer} of the answer"
        );
        let param = if prompt >= context { "prompt" } else { "max_tokens" };
        Self::bad_request(message).about(param).coded("context_length_exceeded")
    }

    /// No such address.
    pub fn unknown_path(path: &str) -> Self {
        let message = format!("no such path: {:?}", shortened(path));
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message).coded("unknown_url")
    }

    /// The address exists for another method.
    pub fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", "this path has another method")
    }

    /// No key, or a wrong one.
    pub fn unauthorized() -> Self {
        let message = "expected the header `Authorization: Bearer KEY` with the server's key";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", message).coded("invalid_api_key")
    }

    /// The body is larger than the server takes.
    pub fn too_large(bytes_max: usize) -> Self {
        let message = format!("body: expected at most {bytes_max} bytes, got more");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    /// The body is not declared to be JSON.
    pub fn not_json() -> Self {
        let message = "expected the header `Content-Type: application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
    }

    /// The body did not arrive in time.
    pub fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", "the body did not arrive in time")
    }

    /// As many requests as may wait are waiting.
    pub fn queue_full() -> Self {
        let message = "as many requests as may wait are waiting; try again later";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message).coded("queue_full")
    }

    /// The server is shutting down or its engine is gone.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message)
    }

    /// The engine could not compute this request.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Names the field at fault.
    pub fn about(mut self, param: &str) -> Self {
        self.param = Some(shortened(param));
        self
    }

    fn coded(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The field at fault.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// The body of the response, or of an event in a stream.
    pub fn body(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.code } })
    }
}

/// What the engine refuses is a fault of one field of the request.
impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let param = match &refusal {
            Refusal::EmptyPrompt | Refusal::UnknownToken { .. } => "prompt",
            Refusal::PromptTooLong { .. } | Refusal::PoolTooSmall { .. } => {
                return Self::bad_request(refusal.to_string()).about("prompt").coded("context_length_exceeded");
            }
            Refusal::NoTokens => "max_tokens",
            Refusal::Sampling { field, .. } => field,
        };
        Self::bad_request(refusal.to_string()).about(param)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Text from outside, short enough to be sent back.
pub fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
