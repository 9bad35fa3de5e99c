//! `/v1/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::app::App;
use super::body::receive;
use super::common::{ANSWERS_MAX, SHARED_FIELDS, Shared, read_body, token};
use super::error::ApiError;
use super::fields::{Field, Fields, describe, refused, supported};
use super::job::Job;
use super::receipts::Prompt;
use super::run::Asked;
use super::shape::Shape;
use crate::receipt::PromptSource;

/// Tokens of an answer unless the request says otherwise, as with OpenAI.
const TOKENS_DEFAULT: u64 = 16;
/// Most log-probabilities that OpenAI gives at this endpoint is 5; other servers give more.
const LOGPROBS_MAX: u64 = super::common::TOP_LOGPROBS_MAX;

/// The fields beside the shared ones.
pub const COMPLETION_FIELDS: &[Field] = &[
    supported("prompt", "Text, a list of texts, a list of tokens or a list of such lists."),
    supported("max_tokens", "At most what is left of the context; 16 when absent; 0 only with `echo`."),
    supported("logprobs", "0 to 20 of the most likely tokens a position, under the unmodified logits."),
    supported("echo", "The prompt in front of the answer; with `logprobs` also its tokens' log-probabilities."),
    refused("best_of", &["1"], "every answer is sent"),
    refused("suffix", &["\"\""], "the models continue a prompt and do not fill a gap"),
];

/// Answers a request.
pub async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    let job = async {
        let body = receive(&app, request).await?;
        read_body(&app, body, read).await
    };
    match job.await {
        Ok(job) => job.answer(app).await,
        Err(error) => error.into_response(),
    }
}

/// Reads and checks a body.
pub fn read(app: &App, body: &[u8]) -> Result<Job, ApiError> {
    let mut fields = Fields::parse(body, &[SHARED_FIELDS, COMPLETION_FIELDS])?;
    let shared = Shared::read(&mut fields, app)?;
    let prompts = prompts(app, fields.take("prompt"))?;
    let echo = fields.flag("echo")?;
    let logprobs = fields.whole("logprobs", 0, LOGPROBS_MAX)?.map(|top| top as usize);
    let least = u64::from(!echo);
    let tokens_max = fields.whole("max_tokens", least, u64::from(u32::MAX))?.unwrap_or(TOKENS_DEFAULT) as usize;
    debug_assert_eq!(fields.unread().count(), 0, "a supported field was not read");
    if shared.receipt && tokens_max == 0 {
        return Err(ApiError::field("receipt", "nothing, since max_tokens is 0", "true"));
    }
    let asked = Asked { logprobs, echo, echo_only: tokens_max == 0 };
    for prompt in &prompts {
        super::common::fits(app, prompt.tokens.len(), tokens_max)?;
    }
    Ok(Job { shape: Shape::Completion, prompts, tokens_max: tokens_max.max(1), shared, asked, constraints: Vec::new() })
}

fn prompts(app: &App, value: Option<Value>) -> Result<Vec<Prompt>, ApiError> {
    let expected = "text, a list of texts, a list of tokens or a list of lists of tokens";
    let wrong = |value: &Value| ApiError::field("prompt", expected, describe(value));
    let tokens = |list: &[Value]| -> Result<Prompt, ApiError> {
        let tokens = list.iter().map(|value| token("prompt", value, app.worker.limits().vocab));
        Ok(Prompt::tokens(tokens.collect::<Result<_, _>>()?))
    };
    let text = |text: &str| Ok(Prompt::text(app.encode_prompt(text)?, PromptSource::Text, text));
    match value {
        None => Err(ApiError::field("prompt", expected, "nothing")),
        Some(Value::String(prompt)) => Ok(vec![text(&prompt)?]),
        Some(Value::Array(list)) => match list.first() {
            None => Err(ApiError::field("prompt", expected, "an empty list")),
            Some(Value::Number(_)) => Ok(vec![tokens(&list)?]),
            Some(_) if list.len() > ANSWERS_MAX => {
                Err(ApiError::field("prompt", format!("at most {ANSWERS_MAX} prompts"), list.len()))
            }
            Some(Value::String(_) | Value::Array(_)) => list
                .iter()
                .map(|item| match item {
                    Value::String(prompt) => text(prompt),
                    Value::Array(list) => tokens(list),
                    other => Err(wrong(other)),
                })
                .collect(),
            Some(other) => Err(wrong(other)),
        },
        Some(other) => Err(wrong(&other)),
    }
}
