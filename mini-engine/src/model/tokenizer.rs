//! Text to tokens and back. Streaming decodes one token at a time and never emits half a character.

use super::error::{Error, Result};
use super::tiny;

/// A model's vocabulary.
pub struct Tokenizer {
    kind: Kind,
}

enum Kind {
    /// One token a byte, then start and end: the vocabulary of [`tiny`].
    Bytes,
    /// Anything that `tokenizer.json` or a GGUF vocabulary describes.
    Trained { tokenizer: Box<tokenizers::Tokenizer>, prefix: Vec<u32> },
}

impl Tokenizer {
    /// The byte-level vocabulary.
    pub fn bytes() -> Self {
        Self { kind: Kind::Bytes }
    }

    /// A trained vocabulary. `prefix` is put before a plain prompt (a GGUF file names the start token apart; a
    /// `tokenizer.json` has it in its post-processor).
    pub fn trained(tokenizer: tokenizers::Tokenizer, prefix: Vec<u32>) -> Self {
        Self { kind: Kind::Trained { tokenizer: Box::new(tokenizer), prefix } }
    }

    /// Tokens of a plain prompt, with the start token where the model wants one.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::Bytes => Ok(std::iter::once(tiny::BOS).chain(text.bytes().map(u32::from)).collect()),
            Kind::Trained { prefix, .. } => Ok(prefix.iter().copied().chain(self.encode_with(text, true)?).collect()),
        }
    }

    /// Tokens of text that already holds its special tokens, such as a rendered chat template.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        match &self.kind {
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::Trained { tokenizer, .. } => {
                let encoding = tokenizer
                    .encode_fast(text, add_special)
                    .map_err(|error| Error::input("prompt", "text that the tokenizer can encode", error.to_string()))?;
                Ok(encoding.get_ids().to_vec())
            }
        }
    }

    /// Text of tokens, without special tokens. Bytes that are not UTF-8 become U+FFFD; an unknown token is empty.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.kind {
            Kind::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Kind::Trained { tokenizer, .. } => tokenizer.decode(tokens, true).unwrap_or_default(),
        }
    }

    /// The token of a special or ordinary vocabulary entry, such as `<|im_end|>`.
    pub fn token(&self, entry: &str) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Trained { tokenizer, .. } => tokenizer.token_to_id(entry),
        }
    }

    /// The vocabulary entry of a token, as it is written in the vocabulary.
    pub fn entry(&self, token: u32) -> Option<String> {
        match &self.kind {
            Kind::Bytes => None,
            Kind::Trained { tokenizer, .. } => tokenizer.id_to_token(token),
        }
    }

    /// A decoder for tokens as they are sampled.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder { tokenizer: self, tokens: Vec::new(), emitted_bytes: 0 }
    }
}

/// Decodes a growing sequence. The pieces it returns, joined, are [`Tokenizer::decode`] of all tokens.
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Tokens since the last point where the text was whole, after one token of context.
    tokens: Vec<u32>,
    /// Bytes of their text that have been returned.
    emitted_bytes: usize,
}

/// After this many tokens without a whole character the text is not UTF-8 and is given out as it is.
const UNFINISHED_TOKENS_MAX: usize = 16;

impl StreamDecoder<'_> {
    /// The text that `token` completes; empty while a character is unfinished.
    pub fn push(&mut self, token: u32) -> String {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens);
        if text.ends_with('\u{fffd}') && self.tokens.len() < UNFINISHED_TOKENS_MAX {
            return String::new();
        }
        let piece = text.get(self.emitted_bytes..).unwrap_or_default().to_owned();
        // Keep the newest token: a decoder may treat the first token of a text specially.
        self.tokens.drain(..self.tokens.len() - 1);
        self.emitted_bytes = self.tokenizer.decode(&self.tokens).len();
        piece
    }

    /// What is left when the sequence ends: an unfinished character becomes U+FFFD.
    pub fn finish(self) -> String {
        self.tokenizer.decode(&self.tokens).get(self.emitted_bytes..).unwrap_or_default().to_owned()
    }
}
