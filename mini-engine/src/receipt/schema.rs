//! The document itself. Every field is required and no other is allowed, so there is one way to write a receipt.

use serde::{Deserialize, Serialize};

use super::Digest;
use super::number::{binary32, seed};
use crate::engine::adjust::Adjust;
use crate::engine::{Request, Sampling};

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// What is stored: the record and the digest over all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The record.
    pub receipt: Body,
    /// BLAKE3 of the record in the canonical form of RFC 8785.
    pub digest: Digest,
}

/// The record of one answer. Two answers to one request by one model have the same record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// [`VERSION`].
    pub version: u32,
    /// Digest of the model's shape and of every weight as it is used.
    pub model: Digest,
    /// Digest of what cuts text into tokens and joins them.
    pub tokenizer: Digest,
    /// Name of the rounding of matrix products.
    pub arithmetic: String,
    /// The trees.
    pub plan: PlanRecord,
    /// The input.
    pub prompt: Prompt,
    /// How the output was chosen.
    pub sampling: SamplingRecord,
    /// The output.
    pub output: Output,
}

/// The trees of all operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRecord {
    /// Digest of the plan's canonical text, which is made of the arithmetic and the operators.
    pub digest: Digest,
    /// The operators in the order that they run.
    pub operators: Vec<OperatorRecord>,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorRecord {
    /// Such as `qkv`.
    pub name: String,
    /// First layer and the one after the last; `null` outside the layers.
    #[serde(deserialize_with = "Option::deserialize")]
    pub layers: Option<[u32; 2]>,
    /// Digest of its reduction tree.
    pub tree: Digest,
}

/// Where the prompt's tokens came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptSource {
    /// The client sent tokens; there is no text.
    Tokens,
    /// Plain text, before which a start token is put where the model has one.
    Text,
    /// A rendered chat template, which holds its special tokens itself.
    Template,
}

/// The input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Where the tokens came from.
    pub source: PromptSource,
    /// The text that was cut into tokens; `null` where the source is `tokens`.
    #[serde(deserialize_with = "Option::deserialize")]
    pub text: Option<String>,
    /// The tokens that were computed with.
    pub tokens: Vec<u32>,
}

/// Everything beside the logits that shaped the output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplingRecord {
    /// 0 chooses the most likely token.
    #[serde(with = "binary32")]
    pub temperature: f32,
    /// Keeps the k most likely tokens; `null` keeps all.
    #[serde(deserialize_with = "Option::deserialize")]
    pub top_k: Option<u32>,
    /// Keeps the most likely tokens whose probabilities sum to this.
    #[serde(with = "binary32")]
    pub top_p: f32,
    /// Keeps tokens of at least this fraction of the largest probability.
    #[serde(with = "binary32")]
    pub min_p: f32,
    /// Key of the noise.
    #[serde(with = "seed")]
    pub seed: u64,
    /// Factor against tokens of the prompt and the output so far; 1 changes nothing.
    #[serde(with = "binary32")]
    pub repetition_penalty: f32,
    /// Subtracted for every time that a token stands in the output so far.
    #[serde(with = "binary32")]
    pub frequency_penalty: f32,
    /// Subtracted once for a token that stands in the output so far.
    #[serde(with = "binary32")]
    pub presence_penalty: f32,
    /// Added to the logits of some tokens; the tokens ascend, none comes twice.
    pub logit_bias: Vec<BiasRecord>,
    /// Tokens that end the output, ascending, none twice.
    pub stop_tokens: Vec<u32>,
    /// Text that ends the output, in the order given.
    pub stop_strings: Vec<String>,
    /// Most output tokens, as the model's context limits them.
    pub max_tokens: u32,
}

/// What is added to the logit of one token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BiasRecord {
    /// The token.
    pub token: u32,
    /// What is added.
    #[serde(with = "binary32")]
    pub bias: f32,
}

impl SamplingRecord {
    /// The record of a request's settings. `max_tokens` is what the model's context leaves of them.
    pub fn of(request: &Request, stops: &[String], context_max: usize) -> Self {
        let Sampling { temperature, top_k, top_p, min_p, seed, adjust } = &request.sampling;
        let Adjust { repetition_penalty, frequency_penalty, presence_penalty, logit_bias } = adjust;
        let mut stop_tokens = request.stop_tokens.clone();
        stop_tokens.sort_unstable();
        stop_tokens.dedup();
        let max_tokens = request.tokens_total_max(context_max).saturating_sub(request.prompt.len());
        Self {
            temperature: *temperature,
            top_k: *top_k,
            top_p: *top_p,
            min_p: *min_p,
            seed: *seed,
            repetition_penalty: *repetition_penalty,
            frequency_penalty: *frequency_penalty,
            presence_penalty: *presence_penalty,
            logit_bias: logit_bias.iter().map(|(&token, &bias)| BiasRecord { token, bias }).collect(),
            stop_tokens,
            stop_strings: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
            max_tokens: u32::try_from(max_tokens).unwrap_or(u32::MAX),
        }
    }

    /// The engine's settings that this record is of.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
            adjust: Adjust {
                repetition_penalty: self.repetition_penalty,
                frequency_penalty: self.frequency_penalty,
                presence_penalty: self.presence_penalty,
                logit_bias: self.logit_bias.iter().map(|entry| (entry.token, entry.bias)).collect(),
            },
        }
    }
}

/// Why the output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Its last token is a stop token.
    StopToken,
    /// Its text completed a stop string, which is cut off with what follows.
    StopString,
    /// It has as many tokens as allowed.
    Length,
}

impl End {
    /// The name in receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::StopToken => "stop-token",
            Self::StopString => "stop-string",
            Self::Length => "length",
        }
    }
}

/// The output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The chosen tokens, the one that ended the output included.
    pub tokens: Vec<u32>,
    /// Their text, up to a stop string.
    pub text: String,
    /// Why it ended.
    pub end: End,
    /// For each token, BLAKE3 of the complete logits row that it was chosen from.
    pub logits: Vec<Digest>,
}

impl Receipt {
    /// A record with its digest.
    pub fn seal(receipt: Body) -> Self {
        let digest = receipt.digest();
        Self { receipt, digest }
    }

    /// The document as it is stored.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a receipt has only text keys and finite numbers") + "\n"
    }
}

impl Body {
    /// BLAKE3 of the record in the canonical form of RFC 8785.
    pub fn digest(&self) -> Digest {
        let canonical = serde_json_canonicalizer::to_vec(self).expect("a record has only text keys and finite numbers");
        blake3::hash(&canonical).into()
    }
}
