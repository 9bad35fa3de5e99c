//! `/v1/chat/completions`: messages go through the model's own template, and the rest is as with completions.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::app::App;
use super::body::receive;
use super::common::{SHARED_FIELDS, Shared, TOP_LOGPROBS_MAX, fits, read_body};
use super::error::ApiError;
use super::fields::{Field, Fields, describe, ignored, refused, supported};
use super::grammar::Format;
use super::job::Job;
use super::receipts::Prompt;
use super::run::Asked;
use super::shape::Shape;
use crate::receipt::PromptSource;

/// Most messages.
const MESSAGES_MAX: usize = 4096;

/// The fields beside the shared ones.
pub const CHAT_FIELDS: &[Field] = &[
    supported(
        "messages",
        "Any role that the model's template accepts; `content` as text or as text parts. Fields beside `content`, such as `tool_calls` and `tool_call_id`, are passed to the template.",
    ),
    supported("max_completion_tokens", "At most what is left of the context, which is also the default."),
    supported("max_tokens", "The older name of `max_completion_tokens`; only one of them."),
    supported("logprobs", "Log-probabilities of the answer's tokens, under the unmodified logits."),
    supported("top_logprobs", "0 to 20, with `logprobs`."),
    supported("tools", "Passed to the model's template, where it takes tools; calls stay in the answer's text."),
    supported("tool_choice", "`auto`, or `none`, which keeps `tools` from the template."),
    supported(
        "response_format",
        "`text`, `json_object` or `json_schema`; the answer follows the schema unless `max_tokens` cuts it. What of a schema cannot be followed is refused.",
    ),
    ignored("parallel_tool_calls", "What the model calls is up to it."),
    ignored("metadata", "Nothing is stored."),
    ignored("prompt_cache_key", "Equal prefixes are found without it."),
    ignored("prompt_cache_retention", "Pages are kept as long as there is room."),
    ignored("prompt_cache_options", "Equal prefixes are found without it."),
    ignored("safety_identifier", "Nothing is kept about users."),
    refused("store", &["false"], "nothing is stored"),
    refused("service_tier", &["\"auto\"", "\"default\""], "there is one tier"),
    refused("modalities", &["[\"text\"]"], "the models speak text"),
    refused("audio", &[], "the models speak text"),
    refused("moderation", &[], "nothing is moderated"),
    refused("prediction", &[], "there is no speculative decoding"),
    refused("reasoning_effort", &["\"none\""], "the models have one effort"),
    refused("verbosity", &["\"medium\""], "the models have one verbosity"),
    refused("web_search_options", &[], "the server reaches no other"),
    refused("functions", &[], "`tools` has replaced it"),
    refused("function_call", &["\"none\"", "\"auto\""], "`tool_choice` has replaced it"),
];

/// Answers a request.
pub async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
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
    let mut fields = Fields::parse(body, &[SHARED_FIELDS, CHAT_FIELDS])?;
    let shared = Shared::read(&mut fields, app)?;
    let logprobs = fields.flag("logprobs")?;
    let top = fields.whole("top_logprobs", 0, TOP_LOGPROBS_MAX)?.map(|top| top as usize);
    if top.is_some_and(|top| top > 0) && !logprobs {
        return Err(ApiError::field("top_logprobs", "nothing, since `logprobs` is not set", top.unwrap_or(0)));
    }
    let tokens_max = tokens_max(&mut fields)?;
    let messages = messages(fields.take("messages"))?;
    let format = Format::read(fields.take("response_format"))?;
    if shared.receipt && format != Format::Text {
        return Err(ApiError::field("receipt", "nothing beside response_format, which a receipt cannot hold", "true"));
    }
    let tools = tools(fields.take("tools"), fields.take("tool_choice"))?;
    debug_assert_eq!(fields.unread().count(), 0, "a supported field was not read");
    if format != Format::Text && !shared.stop_tokens.iter().any(|token| app.served.eos.contains(token)) {
        return Err(ApiError::field("ignore_eos", "false, since JSON ends with an end token", "true"));
    }
    let constraints = app.grammars.constraints(&app.served, app.worker.limits().vocab, &format, shared.n)?;
    let prompt = render(app, &messages, &tools)?;
    let tokens_max = match tokens_max {
        Some(given) => {
            fits(app, prompt.tokens.len(), given)?;
            given
        }
        None => app.tokens_left(prompt.tokens.len()),
    };
    let asked = Asked { logprobs: logprobs.then_some(top.unwrap_or(0)), ..Asked::default() };
    Ok(Job { shape: Shape::Chat, prompts: vec![prompt], tokens_max, shared, asked, constraints })
}

fn tokens_max(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let most = u64::from(u32::MAX);
    let old = fields.whole("max_tokens", 1, most)?;
    let new = fields.whole("max_completion_tokens", 1, most)?;
    if old.is_some() && new.is_some() && old != new {
        return Err(ApiError::field("max_tokens", "nothing beside max_completion_tokens", "another number"));
    }
    Ok(new.or(old).map(|tokens| tokens as usize))
}

/// Messages as templates expect them: every `content` is one text.
fn messages(value: Option<Value>) -> Result<Vec<Value>, ApiError> {
    let expected = format!("a list of 1 to {MESSAGES_MAX} messages");
    let list = match value {
        Some(Value::Array(list)) if (1..=MESSAGES_MAX).contains(&list.len()) => list,
        Some(Value::Array(list)) => {
            return Err(ApiError::field("messages", expected, format!("{} messages", list.len())));
        }
        other => {
            let got = other.as_ref().map_or_else(|| "nothing".to_owned(), describe);
            return Err(ApiError::field("messages", expected, got));
        }
    };
    list.into_iter().enumerate().map(|(index, value)| message(index, value)).collect()
}

fn message(index: usize, value: Value) -> Result<Value, ApiError> {
    let place = |field: &str| format!("messages[{index}]{field}");
    let Value::Object(mut message) = value else {
        return Err(ApiError::field(&place(""), "an object", describe(&value)));
    };
    match message.get("role") {
        Some(Value::String(role)) if !role.is_empty() => {}
        other => {
            let got = other.map_or_else(|| "nothing".to_owned(), describe);
            return Err(ApiError::field(&place(".role"), "a role", got));
        }
    }
    let content = match message.remove("content") {
        // An assistant that only calls tools says nothing.
        None | Some(Value::Null) if message.contains_key("tool_calls") => String::new(),
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let mut whole = String::new();
            for (part, value) in parts.iter().enumerate() {
                match (value.get("type").and_then(Value::as_str), value.get("text").and_then(Value::as_str)) {
                    (Some("text"), Some(text)) => whole += text,
                    (kind, _) => {
                        let got = kind.map_or_else(|| describe(value), |kind| format!("type {kind:?}"));
                        return Err(ApiError::field(&place(&format!(".content[{part}]")), "a text part", got));
                    }
                }
            }
            whole
        }
        other => {
            let got = other.as_ref().map_or_else(|| "nothing".to_owned(), describe);
            return Err(ApiError::field(&place(".content"), "text or a list of text parts", got));
        }
    };
    message.insert("content".into(), content.into());
    Ok(Value::Object(message))
}

/// The tools for the template.
fn tools(tools: Option<Value>, choice: Option<Value>) -> Result<Vec<Value>, ApiError> {
    let list = match tools {
        None => Vec::new(),
        Some(Value::Array(list)) if list.iter().all(Value::is_object) => list,
        Some(other) => return Err(ApiError::field("tools", "a list of objects", describe(&other))),
    };
    match choice {
        None => Ok(list),
        Some(Value::String(choice)) if choice == "auto" => Ok(list),
        Some(Value::String(choice)) if choice == "none" => Ok(Vec::new()),
        Some(_) => Err(ApiError::unsupported_field("tool_choice", "only auto and none: no call can be forced")),
    }
}

/// Tokens of messages that were not read yet.
pub fn tokens(app: &App, value: Value, tool_list: Option<Value>) -> Result<Vec<u32>, ApiError> {
    Ok(render(app, &messages(Some(value))?, &tools(tool_list, None)?)?.tokens)
}

/// Tokens of a conversation.
fn render(app: &App, messages: &[Value], tools: &[Value]) -> Result<Prompt, ApiError> {
    let Some(template) = &app.served.chat else {
        let message = format!("messages: {} has no chat template; use /v1/completions", app.served.model_name);
        return Err(ApiError::bad_request(message).about("messages"));
    };
    if !tools.is_empty() && !template.takes_tools() {
        return Err(ApiError::unsupported_field("tools", "the model's chat template takes none"));
    }
    let text = template.render_with(messages, tools).map_err(|error| {
        // What a template raises is about the messages, such as an order of roles.
        ApiError::bad_request(format!("messages: {error}")).about("messages")
    })?;
    let tokens = app.served.tokenizer.encode(&text);
    let tokens = tokens.map_err(|error| ApiError::bad_request(error.to_string()).about("messages"))?;
    Ok(Prompt::text(tokens, PromptSource::Template, &text))
}
