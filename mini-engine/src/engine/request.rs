//! What a caller asks for, what the engine answers, and why it may refuse.

use kernels_rs::backend::{SampleParams, Sampled};

use super::adjust::Adjust;
use super::constraint::Constraint;

/// Name of a submitted request. Ids grow with arrival and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// How tokens are chosen. Every choice is a function of the logits row, these values and the absolute position.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 means greedy.
    pub temperature: f32,
    /// Keep logits not below the k-th largest.
    pub top_k: Option<u32>,
    /// Keep the smallest set of largest probabilities whose sum reaches this.
    pub top_p: f32,
    /// Keep probabilities of at least this fraction of the largest.
    pub min_p: f32,
    /// Key of the noise.
    pub seed: u64,
    /// Changes to the logits before the choice.
    pub adjust: Adjust,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: None, top_p: 1.0, min_p: 0.0, seed: 0, adjust: Adjust::default() }
    }
}

impl Sampling {
    /// The parameters of the choice of the token at an absolute position.
    pub fn params(&self, position: usize) -> SampleParams {
        let Self { temperature, top_k, top_p, min_p, seed, .. } = *self;
        SampleParams { temperature, top_k, top_p, min_p, seed, position: position as u32 }
    }

    /// Refuses values out of range. The adjustment needs the vocabulary and is checked with the request.
    pub fn check(&self) -> Result<(), Refusal> {
        let outside = |field, expected, got: f32| Err(Refusal::Sampling { field, expected, got: got.to_string() });
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return outside("temperature", "a finite number of at least 0", self.temperature);
        }
        if self.top_k == Some(0) {
            return outside("top_k", "at least 1", 0.0);
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return outside("top_p", "above 0 and at most 1", self.top_p);
        }
        if !(self.min_p >= 0.0 && self.min_p <= 1.0) {
            return outside("min_p", "between 0 and 1", self.min_p);
        }
        Ok(())
    }
}

/// One prompt to continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Input tokens; at least one.
    pub prompt: Vec<u32>,
    /// How the continuation is chosen.
    pub sampling: Sampling,
    /// Tokens that end the continuation; the stop token itself is reported.
    pub stop_tokens: Vec<u32>,
    /// Most tokens to generate; at least one. The model's context limits it further.
    pub tokens_max: usize,
    /// Teacher forcing: these tokens are committed, in order, in place of the chosen ones.
    pub forced: Vec<u32>,
    /// Report the logits row of every computed position from this one on. Positions answered by the prefix cache are not
    /// computed; positions computed again after a preemption are reported again.
    pub logits_from: Option<usize>,
    /// Report with each chosen token the digest of the logits row that it was chosen from.
    pub digest_logits: bool,
    /// Do not read the prefix cache for this request.
    pub bypass_cache: bool,
    /// Which tokens may follow; it acts after [`Sampling::adjust`].
    pub constraint: Option<Constraint>,
}

/// Why a request was not admitted. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is nothing to continue.
    #[error("prompt: expected at least 1 token, got none")]
    EmptyPrompt,
    /// Nothing is asked for.
    #[error("max tokens: expected at least 1, got 0")]
    NoTokens,
    /// The prompt leaves no room in the model's context.
    #[error("prompt: expected fewer than {context_max} tokens, the model's context, got {got}")]
    PromptTooLong {
        /// The model's context.
        context_max: usize,
        /// The prompt's tokens.
        got: usize,
    },
    /// The prompt names a token that the model lacks.
    #[error("prompt: token {index} must be below the vocabulary's {vocab}, got {got}")]
    UnknownToken {
        /// Position in the prompt.
        index: usize,
        /// Vocabulary size.
        vocab: usize,
        /// The token.
        got: u32,
    },
    /// The request could not run even with the whole pool to itself.
    #[error(
        "pool too small: {tokens} tokens of context need {needed} pages of {page_tokens} tokens, the pool has {pages}"
    )]
    PoolTooSmall {
        /// Prompt and continuation.
        tokens: usize,
        /// Pages they need.
        needed: usize,
        /// Tokens of a page.
        page_tokens: usize,
        /// Pages of the pool.
        pages: usize,
    },
    /// A sampling parameter is out of range.
    #[error("sampling: {field} must be {expected}, got {got}")]
    Sampling {
        /// Parameter.
        field: &'static str,
        /// Its range.
        expected: &'static str,
        /// Its value.
        got: String,
    },
}

/// The limits a request is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Vocabulary size of the model.
    pub vocab: usize,
    /// Most tokens of prompt and continuation together.
    pub context_max: usize,
    /// Tokens of a page.
    pub page_tokens: usize,
    /// Pages of the pool.
    pub pages: usize,
}

impl Request {
    /// Whether tokens are chosen from another row than the model's own.
    pub fn shapes_rows(&self) -> bool {
        self.constraint.is_some() || !self.sampling.adjust.is_neutral()
    }

    /// Most tokens of prompt and continuation together.
    pub fn tokens_total_max(&self, context_max: usize) -> usize {
        self.prompt.len().saturating_add(self.tokens_max).min(context_max)
    }

    /// Refuses what can never run. An accepted request finishes, alone in the pool at worst.
    pub fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        if self.prompt.is_empty() {
            return Err(Refusal::EmptyPrompt);
        }
        if self.tokens_max == 0 {
            return Err(Refusal::NoTokens);
        }
        if self.prompt.len() >= limits.context_max {
            return Err(Refusal::PromptTooLong { context_max: limits.context_max, got: self.prompt.len() });
        }
        for (index, &token) in self.prompt.iter().chain(&self.forced).enumerate() {
            if token as usize >= limits.vocab {
                return Err(Refusal::UnknownToken { index, vocab: limits.vocab, got: token });
            }
        }
        self.sampling.check()?;
        self.sampling.adjust.check(limits.vocab)?;
        // The last generated token is never computed with, so it needs no slot.
        let tokens = self.tokens_total_max(limits.context_max) - 1;
        let needed = tokens.div_ceil(limits.page_tokens);
        if needed > limits.pages {
            return Err(Refusal::PoolTooSmall { tokens, needed, page_tokens: limits.page_tokens, pages: limits.pages });
        }
        Ok(())
    }
}

/// Why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop token was chosen.
    Stop,
    /// The token limit or the model's context was reached.
    Length,
}

/// Why a request failed after it was admitted. Its neighbours go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A key or value of the request's own prefix was NaN or infinite.
    #[error("the model produced a non-finite key or value at position {position}")]
    NonFiniteKv {
        /// First such position.
        position: usize,
    },
    /// The constraint could not say which tokens may follow, or allows none.
    #[error("the constraint allows no token at position {position}")]
    Constraint {
        /// Position of the token.
        position: usize,
    },
    /// The logits row was not finite.
    #[error("the model produced non-finite logits at position {position}")]
    NonFiniteLogits {
        /// Its position.
        position: usize,
    },
}

/// What a step reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The complete logits row of a watched position.
    Logits {
        /// Request.
        id: RequestId,
        /// Position whose successor the row predicts.
        position: usize,
        /// `[vocab]` logits.
        row: Vec<f32>,
    },
    /// A token was chosen.
    Token {
        /// Request.
        id: RequestId,
        /// Absolute position of the token.
        position: usize,
        /// What the sampler chose.
        sampled: Sampled,
        /// What joined the history: the chosen token, or the forced one.
        committed: u32,
        /// Digest of the row that it was chosen from, exactly when the request asks for digests.
        logits_digest: Option<blake3::Hash>,
        /// Positions of the request so far that the prefix cache answered, so that they were never computed for it.
        cached_tokens: usize,
    },
    /// The continuation is complete.
    Finished {
        /// Request.
        id: RequestId,
        /// Why.
        reason: Finish,
    },
    /// The request failed.
    Failed {
        /// Request.
        id: RequestId,
        /// Why.
        failure: Failure,
    },
}

impl Event {
    /// The request that the event belongs to.
    pub fn id(&self) -> RequestId {
        match self {
            Self::Logits { id, .. } | Self::Token { id, .. } | Self::Finished { id, .. } | Self::Failed { id, .. } => {
                *id
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { vocab: 10, context_max: 20, page_tokens: 4, pages: 3 };

    fn refusal(change: impl FnOnce(&mut Request)) -> String {
        let mut request = Request { prompt: vec![1, 2, 3], tokens_max: 4, ..Request::default() };
        assert_eq!(request.check(&LIMITS), Ok(()));
        change(&mut request);
        request.check(&LIMITS).unwrap_err().to_string()
    }

    #[test]
    fn refusals_say_what_was_expected_and_what_came() {
        insta::assert_snapshot!(
            [
                refusal(|r| r.prompt.clear()),
                refusal(|r| r.tokens_max = 0),
                refusal(|r| r.prompt = vec![1; 20]),
                refusal(|r| r.prompt[2] = 10),
                refusal(|r| r.forced = vec![11]),
                refusal(|r| r.tokens_max = 11),
                refusal(|r| r.sampling.temperature = f32::NAN),
                refusal(|r| r.sampling.temperature = -1.0),
                refusal(|r| r.sampling.top_k = Some(0)),
                refusal(|r| r.sampling.top_p = 0.0),
                refusal(|r| r.sampling.min_p = 1.5),
            ]
            .join("\n"),
            @r"
        prompt: expected at least 1 token, got none
        max tokens: expected at least 1, got 0
        prompt: expected fewer than 20 tokens, the model's context, got 20
        prompt: token 2 must be below the vocabulary's 10, got 10
        prompt: token 3 must be below the vocabulary's 10, got 11
        pool too small: 13 tokens of context need 4 pages of 4 tokens, the pool has 3
        sampling: temperature must be a finite number of at least 0, got NaN
        sampling: temperature must be a finite number of at least 0, got -1
        sampling: top_k must be at least 1, got 0
        sampling: top_p must be above 0 and at most 1, got 0
        sampling: min_p must be between 0 and 1, got 1.5
        "
        );
    }

    #[test]
    fn a_request_that_exactly_fits_is_accepted() {
        // 3 + 10 tokens, of which 12 need a slot.
        let request = Request { prompt: vec![0; 3], tokens_max: 10, ..Request::default() };
        assert_eq!(request.check(&LIMITS), Ok(()));
    }
}
