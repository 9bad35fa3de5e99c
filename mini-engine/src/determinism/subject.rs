//! What is compared: token sequences that are partly prefilled and partly forced through decode.

use crate::engine::noise::Noise;
use crate::engine::{Request, Sampling};

/// A request whose every token is known in advance, so that its rows have one reference however it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Every token that is computed with.
    pub tokens: Vec<u32>,
    /// How many of them are the prompt; the rest is forced, one decode step each.
    pub prompt: usize,
    /// First position whose logits row is compared.
    pub watch_from: usize,
    /// How tokens are chosen (what is chosen is compared, then overruled).
    pub sampling: Sampling,
    /// Nothing is overruled: the tokens behind the prompt are known to be those that are chosen, until these stop tokens end them.
    pub free: Option<Vec<u32>>,
}

impl Subject {
    /// The request that runs this subject.
    pub fn request(&self) -> Request {
        let stop_tokens = self.free.clone().unwrap_or_default();
        // A stop token ends the answer before its length does.
        let tokens_max = self.tokens.len() - self.prompt + if stop_tokens.is_empty() { 1 } else { 4 };
        Request {
            prompt: self.tokens[..self.prompt].to_vec(),
            sampling: self.sampling.clone(),
            tokens_max,
            forced: if self.free.is_none() { self.tokens[self.prompt..].to_vec() } else { Vec::new() },
            stop_tokens,
            logits_from: Some(self.watch_from),
            ..Request::default()
        }
    }

    /// The request that gives the reference: all tokens in one prefill.
    pub fn reference_request(&self) -> Request {
        Request {
            prompt: self.tokens.clone(),
            tokens_max: 1,
            logits_from: Some(self.watch_from),
            bypass_cache: true,
            ..Request::default()
        }
    }

    /// The same tokens with another split between prompt and decode.
    pub fn with_prompt(&self, prompt: usize) -> Self {
        Self { prompt, ..self.clone() }
    }

    /// The same with another way to choose.
    pub fn with_sampling(&self, sampling: Sampling) -> Self {
        Self { sampling, ..self.clone() }
    }

    /// The same, compared from another position on.
    pub fn watched_from(&self, watch_from: usize) -> Self {
        Self { watch_from, ..self.clone() }
    }
}

/// Endless token streams: even ones read a passage from different places, odd ones are noise over the vocabulary.
#[derive(Clone, Debug)]
pub struct Streams {
    passage: Vec<u32>,
    vocab: usize,
    avoid: u32,
}

impl Streams {
    /// Streams over a passage of at least one token; `avoid` never occurs in them.
    pub fn new(passage: Vec<u32>, vocab: usize, avoid: u32) -> Self {
        let mut passage: Vec<u32> =
            passage.into_iter().filter(|&token| token != avoid && (token as usize) < vocab).collect();
        if passage.is_empty() {
            passage.push(u32::from(avoid == 0));
        }
        Self { passage, vocab, avoid }
    }

    /// The first `len` tokens of a stream.
    pub fn tokens(&self, stream: usize, len: usize) -> Vec<u32> {
        if stream.is_multiple_of(2) {
            // The stream's own first token keeps streams apart that read from the same place of a short passage.
            let start = stream * 7 % self.passage.len();
            let rest = self.passage.iter().cycle().skip(start).copied();
            return self.noise(stream).take(1).chain(rest).take(len).collect();
        }
        self.noise(stream).take(len).collect()
    }

    fn noise(&self, stream: usize) -> impl Iterator<Item = u32> {
        let (mut noise, vocab, avoid) = (Noise::new(stream as u64), self.vocab, self.avoid);
        std::iter::repeat_with(move || noise.below(vocab) as u32).filter(move |&token| token != avoid)
    }

    /// A greedy subject of `prompt` + `decode` tokens whose last four prompt rows and all decode rows are compared.
    pub fn subject(&self, stream: usize, prompt: usize, decode: usize) -> Subject {
        Subject {
            tokens: self.tokens(stream, prompt + decode),
            prompt,
            watch_from: prompt.saturating_sub(4),
            sampling: Sampling::default(),
            free: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_distinct_extend_each_other_and_avoid_a_token() {
        let streams = Streams::new((0..100).collect(), 50, 7);
        for stream in 0..20 {
            let long = streams.tokens(stream, 200);
            assert_eq!(streams.tokens(stream, 50), long[..50]);
            assert!(long.iter().all(|&token| token < 50 && token != 7));
            assert!((0..stream).all(|other| streams.tokens(other, 8) != long[..8]), "stream {stream} repeats another");
        }
    }

    #[test]
    fn an_unusable_passage_still_gives_tokens() {
        assert_eq!(Streams::new(vec![], 2, 0).tokens(0, 3), [1, 1, 1]);
        assert_eq!(Streams::new(vec![5], 3, 1).tokens(1, 40).iter().max(), Some(&2));
    }
}
