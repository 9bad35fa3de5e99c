//! The JSON of answers: whole and in chunks, for completions and for chats.

use serde_json::{Map, Value, json};

use super::app::{App, now};
use super::choice::{Entry, Piece};
use super::run::Answer;
use crate::engine::Finish;

/// Which endpoint's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `/v1/completions`
    Completion,
    /// `/v1/chat/completions`
    Chat,
}

/// Tokens that a request cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    prompt: usize,
    cached: usize,
    completion: usize,
}

impl Usage {
    /// Adds an answer. A prompt counts once, however many answers it has.
    pub fn count(&mut self, answer: &Answer, first_of_prompt: bool) {
        let part =
            Self { prompt: answer.request.prompt.len(), cached: answer.cached_tokens, completion: answer.tokens.len() };
        self.add(part, first_of_prompt);
    }

    /// Adds the count of one answer.
    pub fn add(&mut self, part: Self, first_of_prompt: bool) {
        if first_of_prompt {
            self.prompt += part.prompt;
            self.cached += part.cached;
        }
        self.completion += part.completion;
    }

    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// What all chunks of a response have in common.
pub struct Envelope {
    shape: Shape,
    id: String,
    created: u64,
    model: String,
    fingerprint: String,
}

impl Envelope {
    /// The frame of a new response.
    pub fn new(app: &App, shape: Shape) -> Self {
        let prefix = match shape {
            Shape::Completion => "cmpl",
            Shape::Chat => "chatcmpl",
        };
        Self {
            shape,
            id: app.response_id(prefix),
            created: now(),
            model: app.served.model_name.clone(),
            fingerprint: app.served.fingerprint.clone(),
        }
    }

    fn json(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        })
    }

    /// The whole response.
    pub fn whole(&self, choices: Vec<Value>, usage: Usage) -> Value {
        let object = match self.shape {
            Shape::Completion => "text_completion",
            Shape::Chat => "chat.completion",
        };
        let mut whole = self.json(object, choices);
        whole["usage"] = usage.json();
        whole
    }

    fn chunks(&self, choices: Vec<Value>) -> Value {
        let object = match self.shape {
            Shape::Completion => "text_completion",
            Shape::Chat => "chat.completion.chunk",
        };
        self.json(object, choices)
    }

    /// One chunk of a stream; with a field for the usage, which only the last chunk fills, where that was asked for.
    pub fn chunk(&self, choice: Value, usage_field: bool) -> Value {
        let mut chunk = self.chunks(vec![choice]);
        if usage_field {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// The chunk that counts tokens.
    pub fn usage(&self, usage: Usage) -> Value {
        let mut chunk = self.chunks(Vec::new());
        chunk["usage"] = usage.json();
        chunk
    }
}

impl Shape {
    /// A whole answer.
    pub fn choice(self, app: &App, index: usize, piece: &Piece, logprobs: bool, finish: Finish) -> Value {
        let logprobs = self.logprobs(app, piece, logprobs);
        let finish = reason(finish);
        match self {
            Self::Completion => {
                json!({ "index": index, "text": piece.text, "logprobs": logprobs, "finish_reason": finish })
            }
            Self::Chat => {
                let message = json!({ "role": "assistant", "content": piece.text, "refusal": null });
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish })
            }
        }
    }

    /// What a streamed answer begins with.
    pub fn opening(self, index: usize) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "", "refusal": null });
        let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
        (self == Self::Chat).then_some(choice)
    }

    /// A piece of a streamed answer.
    pub fn delta(self, app: &App, index: usize, piece: &Piece, logprobs: bool) -> Value {
        let logprobs = self.logprobs(app, piece, logprobs);
        match self {
            Self::Completion => {
                json!({ "index": index, "text": piece.text, "logprobs": logprobs, "finish_reason": null })
            }
            Self::Chat => {
                json!({ "index": index, "delta": { "content": piece.text }, "logprobs": logprobs, "finish_reason": null })
            }
        }
    }

    /// What a streamed answer ends with.
    pub fn closing(self, index: usize, finish: Finish) -> Value {
        let finish = reason(finish);
        match self {
            Self::Completion => json!({ "index": index, "text": "", "logprobs": null, "finish_reason": finish }),
            Self::Chat => json!({ "index": index, "delta": {}, "logprobs": null, "finish_reason": finish }),
        }
    }

    fn logprobs(self, app: &App, piece: &Piece, wanted: bool) -> Value {
        match self {
            _ if !wanted => Value::Null,
            Self::Completion => completion_logprobs(app, &piece.entries),
            Self::Chat => {
                let content: Vec<Value> = piece.entries.iter().map(|entry| chat_logprob(app, entry)).collect();
                json!({ "content": content, "refusal": null })
            }
        }
    }
}

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

/// A token as text; one that is no text by itself as OpenAI writes it, `bytes:\xe2\x96`.
fn token_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| text + &format!("\\x{byte:02x}")),
    }
}

fn completion_logprobs(app: &App, entries: &[Entry]) -> Value {
    let text = |token| token_text(&app.served.tokenizer.bytes_of(token));
    let top = |entry: &Entry| match entry.logprob {
        None => Value::Null,
        // Two tokens may have one text; the more likely one stays.
        Some(_) => {
            let mut map = Map::new();
            for &(token, logprob) in &entry.top {
                map.entry(text(token)).or_insert(json!(logprob));
            }
            Value::Object(map)
        }
    };
    json!({
        "tokens": entries.iter().map(|entry| text(entry.token)).collect::<Vec<_>>(),
        "token_logprobs": entries.iter().map(|entry| entry.logprob).collect::<Vec<_>>(),
        "top_logprobs": entries.iter().map(top).collect::<Vec<_>>(),
        "text_offset": entries.iter().map(|entry| entry.start).collect::<Vec<_>>(),
    })
}

fn chat_logprob(app: &App, entry: &Entry) -> Value {
    let one = |token: u32, logprob: Option<f32>| {
        let bytes = app.served.tokenizer.bytes_of(token);
        json!({ "token": token_text(&bytes), "logprob": logprob, "bytes": bytes })
    };
    let mut value = one(entry.token, entry.logprob);
    value["top_logprobs"] = entry.top.iter().map(|&(token, logprob)| one(token, Some(logprob))).collect();
    value
}
