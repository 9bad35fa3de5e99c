//! From a running request to its receipt.

use std::sync::Arc;

use super::Digest;
use super::identity::Identity;
use super::schema::{Body, End, Output, Prompt, PromptSource, Receipt, SamplingRecord, VERSION};
use crate::engine::Request;

/// Collects what the engine reports about one request.
#[derive(Clone, Debug)]
pub struct Recorder {
    identity: Arc<Identity>,
    prompt: Prompt,
    sampling: SamplingRecord,
    tokens: Vec<u32>,
    logits: Vec<Digest>,
}

impl Recorder {
    /// A record of `request`, which must ask for `digest_logits` and must neither force
    /// tokens nor have a constraint, which a receipt cannot hold. `text` is the text that the prompt
    /// was cut from; `stops` are the strings that end the output; `context_max` is the model's.
    pub fn new(
        identity: Arc<Identity>,
        request: &Request,
        source: PromptSource,
        text: Option<String>,
        stops: &[String],
        context_max: usize,
    ) -> Self {
        debug_assert!(request.digest_logits && request.forced.is_empty() && request.constraint.is_none());
        let sampling = SamplingRecord::of(request, stops, context_max);
        let prompt = Prompt { source, text, tokens: request.prompt.clone() };
        Self { identity, prompt, sampling, tokens: Vec::new(), logits: Vec::new() }
    }

    /// The next output token, with the digest of the row that it was chosen from.
    pub fn token(&mut self, token: u32, logits: impl Into<Digest>) {
        self.tokens.push(token);
        self.logits.push(logits.into());
    }

    /// The receipt of a finished output. `text` and `end` are what the client was told.
    pub fn finish(self, text: String, end: End) -> Receipt {
        Receipt::seal(Body {
            version: VERSION,
            model: self.identity.model,
            tokenizer: self.identity.tokenizer,
            arithmetic: self.identity.arithmetic.name().to_owned(),
            plan: self.identity.plan.clone(),
            prompt: self.prompt,
            sampling: self.sampling,
            output: Output { tokens: self.tokens, text, end, logits: self.logits },
        })
    }
}
