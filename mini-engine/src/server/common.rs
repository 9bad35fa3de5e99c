//! The fields that completions and chats share: how tokens are chosen, when to stop, how to answer.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::app::App;
use super::body::Received;
use super::error::{ApiError, shortened};
use super::fields::{Field, Fields, describe, extension, ignored, supported};
use crate::engine::{Adjust, Sampling};
use crate::model::GenerationDefaults;

/// Most answers to one body, over all of its prompts.
pub const ANSWERS_MAX: usize = 128;
/// Most stop strings.
const STOPS_MAX: usize = 16;
/// Longest stop string, in bytes.
const STOP_BYTES_MAX: usize = 1024;
/// Most log-probabilities a position.
pub const TOP_LOGPROBS_MAX: u64 = 20;
/// Most tokens with a bias.
const BIAS_TOKENS_MAX: usize = 1024;
/// Most stop tokens.
const STOP_TOKENS_MAX: usize = 64;

/// What is known of the shared fields.
pub const SHARED_FIELDS: &[Field] = &[
    supported("model", "The served model's name, or absent; any other name is answered with 404."),
    supported("n", "1 to 128 answers. Answer i is what `seed + i` gives with `n` 1."),
    supported(
        "seed",
        "Key of the noise, 0 to 2^64 - 1 or negative from -2^63; drawn anew for each request when absent.",
    ),
    supported(
        "temperature",
        "0 to 2; 0 chooses the most likely token. When absent the model's own recommendation, or 1.",
    ),
    supported("top_p", "Above 0, at most 1."),
    extension("top_k", "Keeps the k most likely tokens; -1 or 0 keeps all."),
    extension("min_p", "0 to 1: keeps tokens of at least this fraction of the largest probability."),
    supported("frequency_penalty", "-2 to 2, by how often the answer so far holds a token."),
    supported("presence_penalty", "-2 to 2, once for a token that the answer so far holds."),
    extension(
        "repetition_penalty",
        "0.1 to 10: divides, or multiplies if negative, the logits of tokens of prompt and answer.",
    ),
    supported("logit_bias", "-100 to 100, added to the logits of up to 1,024 tokens."),
    supported("stop", "Text or a list of up to 16; found across token borders and never sent."),
    extension("stop_token_ids", "Up to 64 tokens that end the answer."),
    extension("ignore_eos", "Goes on after the model's own end tokens."),
    supported("stream", "Server-sent events, closed by `[DONE]`."),
    supported("stream_options", "`include_usage`; `include_obfuscation` only as false."),
    extension(
        "receipt",
        "Keeps a receipt of each answer, whose digest is in `choices[].receipt`; needs `serve --receipts`; not with `response_format`.",
    ),
    ignored("user", "Nothing is kept about users."),
];

/// Values of the shared fields.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Answers to each prompt.
    pub n: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Tokens that end an answer.
    pub stop_tokens: Vec<u32>,
    /// Text that ends an answer.
    pub stops: Vec<String>,
    /// Whether to keep receipts.
    pub receipt: bool,
    /// Whether to stream.
    pub stream: Option<StreamOptions>,
}

/// How to stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Close with a chunk that counts tokens.
    pub include_usage: bool,
}

impl Shared {
    /// Reads the shared fields.
    pub fn read(fields: &mut Fields, app: &App) -> Result<Self, ApiError> {
        app.check_model(fields.text("model")?)?;
        let vocab = app.worker.limits().vocab;
        let n = fields.whole("n", 1, ANSWERS_MAX as u64)?.unwrap_or(1) as usize;
        let ignore_eos = fields.flag("ignore_eos")?;
        let mut stop_tokens = stop_tokens(fields.take("stop_token_ids"), vocab)?;
        if !ignore_eos {
            stop_tokens.extend(&app.served.eos);
        }
        Ok(Self {
            n,
            sampling: sampling(fields, &app.served.defaults, vocab)?,
            stop_tokens,
            stops: stops(fields.take("stop"))?,
            receipt: receipt(fields, app)?,
            stream: stream(fields)?,
        })
    }
}

fn sampling(fields: &mut Fields, defaults: &GenerationDefaults, vocab: usize) -> Result<Sampling, ApiError> {
    let number = |value: f64| value as f32;
    let top_k = match fields.take("top_k") {
        None => defaults.top_k,
        Some(value) => match value.as_i64() {
            Some(-1 | 0) => None,
            Some(k @ 1..=0xffff_ffff) => Some(k as u32),
            _ => return Err(ApiError::field("top_k", "-1, 0 or a whole number from 1", describe(&value))),
        },
    };
    let top_p = match fields.number("top_p", 0.0, 1.0)?.map(number) {
        // Rounded to binary32 it may be nothing.
        Some(0.0) => return Err(ApiError::field("top_p", "a number above 0", "0")),
        given => given.or(defaults.top_p).unwrap_or(1.0),
    };
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0, 2.0)?.map(number).or(defaults.temperature).unwrap_or(1.0),
        top_k,
        top_p,
        min_p: fields.number("min_p", 0.0, 1.0)?.map(number).or(defaults.min_p).unwrap_or(0.0),
        seed: seed(fields.take("seed"))?,
        adjust: adjust(fields, vocab)?,
    })
}

fn adjust(fields: &mut Fields, vocab: usize) -> Result<Adjust, ApiError> {
    let mut penalty = |name| fields.number(name, -2.0, 2.0).map(|value| value.unwrap_or(0.0) as f32);
    let (frequency_penalty, presence_penalty) = (penalty("frequency_penalty")?, penalty("presence_penalty")?);
    let repetition_penalty = fields.number("repetition_penalty", 0.1, 10.0)?.unwrap_or(1.0) as f32;
    let bias = match fields.take("logit_bias") {
        None => Map::new(),
        Some(Value::Object(bias)) if bias.len() <= BIAS_TOKENS_MAX => bias,
        Some(other) => {
            let expected = format!("an object of at most {BIAS_TOKENS_MAX} tokens");
            return Err(ApiError::field("logit_bias", expected, describe(&other)));
        }
    };
    let entry = |(name, value): (String, Value)| {
        let token = name.parse().ok().filter(|&token: &u32| (token as usize) < vocab);
        let amount = value.as_f64().filter(|amount| (-100.0..=100.0).contains(amount));
        token.zip(amount.map(|amount| amount as f32)).ok_or_else(|| {
            let expected = format!("numbers from -100 to 100 for tokens below {vocab}");
            ApiError::field("logit_bias", expected, format!("{:?}: {}", shortened(&name), describe(&value)))
        })
    };
    Ok(Adjust {
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        logit_bias: bias.into_iter().map(entry).collect::<Result<_, _>>()?,
    })
}

fn receipt(fields: &mut Fields, app: &App) -> Result<bool, ApiError> {
    let wanted = fields.flag("receipt")?;
    if wanted && app.served.receipts.is_none() {
        return Err(ApiError::unsupported_field("receipt", "this server keeps none; it needs --receipts"));
    }
    Ok(wanted)
}

fn seed(value: Option<Value>) -> Result<u64, ApiError> {
    let Some(value) = value else {
        return getrandom::u64().map_err(|error| ApiError::failed(format!("no seed can be drawn: {error}")));
    };
    // A negative seed is its two's complement.
    let seed = value.as_u64().or_else(|| value.as_i64().map(|seed| seed as u64));
    seed.ok_or_else(|| ApiError::field("seed", "a whole number of 64 bits", describe(&value)))
}

fn stops(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let expected = || format!("text or a list of at most {STOPS_MAX} texts, each of 1 to {STOP_BYTES_MAX} bytes");
    let wrong = |got: String| Err(ApiError::field("stop", expected(), got));
    let list = match value {
        None => Vec::new(),
        Some(Value::Array(list)) if list.len() > STOPS_MAX => return wrong(format!("{} texts", list.len())),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    let mut stops = Vec::with_capacity(list.len());
    for value in list {
        match value {
            Value::String(text) if (1..=STOP_BYTES_MAX).contains(&text.len()) => stops.push(text),
            Value::String(text) => return wrong(format!("a text of {} bytes", text.len())),
            other => return wrong(describe(&other)),
        }
    }
    Ok(stops)
}

fn stop_tokens(value: Option<Value>, vocab: usize) -> Result<Vec<u32>, ApiError> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) if list.len() <= STOP_TOKENS_MAX => {
            list.iter().map(|value| token("stop_token_ids", value, vocab)).collect()
        }
        Some(other) => Err(ApiError::field(
            "stop_token_ids",
            format!("a list of at most {STOP_TOKENS_MAX} tokens"),
            describe(&other),
        )),
    }
}

/// A token of the vocabulary.
pub fn token(field: &str, value: &Value, vocab: usize) -> Result<u32, ApiError> {
    match value.as_u64().filter(|&token| token < vocab as u64) {
        Some(token) => Ok(token as u32),
        None => Err(ApiError::field(field, format!("tokens below {vocab}"), describe(value))),
    }
}

fn stream(fields: &mut Fields) -> Result<Option<StreamOptions>, ApiError> {
    let stream = fields.flag("stream")?;
    let options = match fields.take("stream_options") {
        None => Map::new(),
        Some(Value::Object(options)) => options,
        Some(other) => return Err(ApiError::field("stream_options", "an object", describe(&other))),
    };
    if !stream && !options.is_empty() {
        return Err(ApiError::field("stream_options", "nothing, since `stream` is not set", "an object"));
    }
    let mut include_usage = false;
    for (name, value) in options {
        match (name.as_str(), value) {
            (_, Value::Null) | ("include_obfuscation", Value::Bool(false)) => {}
            ("include_usage", Value::Bool(flag)) => include_usage = flag,
            (name @ ("include_usage" | "include_obfuscation"), other) => {
                return Err(ApiError::field(
                    &format!("stream_options.{name}"),
                    "a flag that is supported",
                    describe(&other),
                ));
            }
            (name, _) => return Err(ApiError::unknown_field(&format!("stream_options.{name}"))),
        }
    }
    Ok(stream.then_some(StreamOptions { include_usage }))
}

/// Reads a body away from the threads that serve connections: it may be large, and its text has to be cut into tokens. Only as
/// many are read at a time as there are readers.
pub async fn read_body<T: Send + 'static>(
    app: &Arc<App>,
    body: Received,
    read: impl FnOnce(&App, &[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let permit = app.readers.clone().acquire_owned().await;
    let permit = permit.map_err(|_| ApiError::unavailable("the server is shutting down"))?;
    let app = app.clone();
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read(&app, &body.bytes)
    });
    work.await.unwrap_or_else(|_| Err(ApiError::failed("the request could not be read")))
}

/// Refuses an answer that the model's context has no room for.
pub fn fits(app: &App, prompt: usize, tokens_max: usize) -> Result<(), ApiError> {
    let context = app.worker.limits().context_max;
    if prompt.saturating_add(tokens_max) > context {
        return Err(ApiError::context_exceeded(context, prompt, tokens_max));
    }
    Ok(())
}
