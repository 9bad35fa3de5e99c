//! Strangers: requests with prompts, lengths and seeds of their own that come, go, and sometimes leave before they are served.

use crate::determinism::subject::Streams;
use crate::engine::noise::Noise;
use crate::engine::{Engine, EngineConfig, Request, RequestId, RowModel, Sampling};

/// Longest prompt of a stranger, in tokens.
const PROMPT_TOKENS_MAX: usize = 24;
/// Longest answer to one.
const ANSWER_TOKENS_MAX: usize = 32;
/// Tokens of a page: small, so that a short conversation has several.
const PAGE_TOKENS: usize = 16;

/// A crowd around one request.
pub(super) struct Crowd {
    noise: Noise,
    streams: Streams,
    others_max: usize,
    live: Vec<RequestId>,
    /// Strangers over time.
    pub strangers: usize,
    /// Those that came after the request.
    pub late: usize,
    /// Those that were cancelled.
    pub left: usize,
}

impl Crowd {
    /// Nobody yet. `passage` is text that some of them quote.
    pub fn new(seed: u64, others_max: usize, passage: Vec<u32>, vocab: usize) -> Self {
        let noise = Noise::new(seed);
        // The last token of the vocabulary is one that no text has in most models; any token would do.
        let streams = Streams::new(passage, vocab, vocab as u32 - 1);
        Self { noise, streams, others_max, live: Vec::new(), strangers: 0, late: 0, left: 0 }
    }

    /// An engine for `tokens` tokens of the request beside the crowd, with a chunk budget and a page order of the crowd's own.
    pub fn config(&mut self, tokens: usize) -> EngineConfig {
        let stranger = (PROMPT_TOKENS_MAX + ANSWER_TOKENS_MAX).div_ceil(PAGE_TOKENS);
        EngineConfig {
            page_tokens: PAGE_TOKENS,
            pages: tokens.div_ceil(PAGE_TOKENS) + self.others_max * stranger,
            step_rows_max: self.others_max + 8 + self.noise.below(48),
            page_order: Some(self.noise.next_u64()),
            ..EngineConfig::default()
        }
    }

    /// How many steps the crowd is there before the request.
    pub fn head_start(&mut self) -> usize {
        1 + self.noise.below(4)
    }

    /// Lets strangers come and go before a step. `late` says that the request is already there.
    pub fn mingle<M: RowModel>(&mut self, engine: &mut Engine<M>, late: bool) {
        self.live.retain(|id| engine.history(*id).is_some());
        if self.live.len() > 1 && self.noise.one_in(8) {
            let leaver = self.live.swap_remove(self.noise.below(self.live.len()));
            self.left += usize::from(engine.cancel(leaver));
        }
        // At least half full, so that the request is never alone for long.
        while self.live.len() < self.others_max
            && (self.live.len() < self.others_max.div_ceil(2) || self.noise.one_in(3))
        {
            let request = self.stranger();
            // One that does not fit is not worth a word: the next one will.
            let Ok(id) = engine.submit(request) else { break };
            self.live.push(id);
            self.strangers += 1;
            self.late += usize::from(late);
        }
    }

    fn stranger(&mut self) -> Request {
        let noise = &mut self.noise;
        let prompt = self.streams.tokens(noise.below(1 << 16), 1 + noise.below(PROMPT_TOKENS_MAX));
        Request {
            prompt,
            sampling: Sampling {
                temperature: noise.below(3) as f32 * 0.5,
                seed: noise.next_u64(),
                ..Sampling::default()
            },
            tokens_max: 1 + noise.below(ANSWER_TOKENS_MAX),
            ..Request::default()
        }
    }
}
